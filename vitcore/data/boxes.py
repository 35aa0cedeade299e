"""Random boxes of images, and crops by matrix products, which a CUDA graph can hold."""

import math

import torch
from torch import Tensor

from vitcore.keyed_random import site_code, uniforms

TRIES = 10  # random boxes per image


def random_boxes(rng_keys: Tensor, side: int, areas: tuple[float, float], ratio: float) -> Tensor:
    """Return a random box (top, left, height, width) for each image of `side` x `side` pixels: (B, 4), int64.

    areas: the smallest and the largest fraction of the image. ratio: the largest of the longer side to the shorter. The
    first of ten boxes that fits is taken, or the whole image if none fits. rng_keys: (B,), on any device.
    """
    uniform = uniforms(rng_keys, site_code("box"), 4 * TRIES).view(-1, TRIES, 4)
    share, aspect, down, across = uniform.unbind(dim=2)  # (B, TRIES)
    pixels = side**2 * (areas[0] + (areas[1] - areas[0]) * share)
    aspect = ((2 * aspect - 1) * math.log(ratio)).exp()
    width = (pixels * aspect).sqrt().round()
    height = (pixels / aspect).sqrt().round()
    fits = (width > 0) & (width <= side) & (height > 0) & (height <= side)
    top = (down * (side - height + 1)).floor()
    left = (across * (side - width + 1)).floor()
    tries = torch.stack([top, left, height, width], dim=2).long()  # (B, TRIES, 4)
    first_fit = tries[torch.arange(len(rng_keys), device=rng_keys.device), fits.int().argmax(dim=1)]
    whole = torch.zeros_like(first_fit)
    whole[:, 2:] = side  # made on the device, so that a CUDA graph can hold it
    return torch.where(fits.any(dim=1, keepdim=True), first_fit, whole)


def crop_by_products(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Crop uint8 images (B, C, S, S) to their boxes (B, 4) and resize the crops to (B, C, size, size).

    Pixels differ from those of `F.interpolate` by at most one level, because matrix products round differently.
    """
    plain = images.to(torch.float32, memory_format=torch.contiguous_format)
    return resized_boxes(plain, boxes, size).round_().clamp_(0, 255).to(torch.uint8)


def resized_boxes(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Return the boxes (B, 4) of float images (B, C, S, S), resized to (B, C, size, size).

    boxes: top, left, height and width in pixels, on the images' device. Resizing is bilinear with antialiasing.
    """
    top, left, height, width = boxes.unbind(dim=1)
    rows = resize_weights(top, height, size, images.shape[2]).to(images.dtype)  # (B, size, H)
    columns = resize_weights(left, width, size, images.shape[3]).to(images.dtype)  # (B, size, W)
    return rows[:, None] @ (images @ columns[:, None].transpose(2, 3))  # (B, C, size, size), separable by axis


def resize_weights(start: Tensor, length: Tensor, size: int, side: int) -> Tensor:
    """Return the weights (B, size, side) of `side` input pixels in each of `size` output pixels, along one axis.

    An output pixel's weights form a triangle. The half-width is the output pixel's width in the input, at least 1.
    start, length: first pixel (B,) and number of pixels (B,) of the boxes along this axis.
    """
    scale = (length / size)[:, None, None]
    centers = (torch.arange(size, device=start.device) + 0.5)[:, None] * scale  # (B, size, 1), in the box
    pixels = torch.arange(side, device=start.device) - start[:, None, None] + 0.5  # (B, 1, side)
    inside = (pixels > 0) & (pixels < length[:, None, None])
    triangle = (1 - (pixels - centers).abs() / scale.clamp(min=1)).clamp(min=0) * inside
    return triangle / triangle.sum(dim=2, keepdim=True)
