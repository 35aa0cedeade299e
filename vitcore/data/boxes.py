"""Random boxes of images, and crops by matrix products, which a CUDA graph can hold."""

import math
from typing import Literal

import torch
from torch import Tensor

from vitcore.keyed_random import site_code, uniforms

Interpolation = Literal["bilinear", "bicubic"]
TRIES = 10  # random boxes per image
BOX = site_code("box")


def random_boxes(rng_keys: Tensor, side: int, areas: tuple[float, float], ratio: float) -> Tensor:
    """Return a random box (top, left, height, width) for each image of `side` x `side` pixels: (B, 4), int64.

    areas: the smallest and the largest fraction of the image. ratio: the largest of the longer side to the shorter. The
    first of ten boxes that fits is taken, or the whole image if none fits. rng_keys: (B,), on any device.
    """
    uniform = uniforms(rng_keys, BOX, 4 * TRIES).view(-1, TRIES, 4)
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


def crop_by_products(images: Tensor, boxes: Tensor, size: int, interpolation: Interpolation = "bilinear") -> Tensor:
    """Crop uint8 images (B, C, S, S) to their boxes (B, 4) and resize the crops to (B, C, size, size).

    Pixels differ from those of `F.interpolate` by at most one level, because matrix products round differently.
    """
    plain = images.to(torch.float32, memory_format=torch.contiguous_format)
    return resized_boxes(plain, boxes, size, interpolation).round_().clamp_(0, 255).to(torch.uint8)


def resized_boxes(images: Tensor, boxes: Tensor, size: int, interpolation: Interpolation = "bilinear") -> Tensor:
    """Return the boxes (B, 4) of float images (B, C, S, S), resized with antialiasing to (B, C, size, size).

    boxes: top, left, height and width in pixels, on the images' device. Bicubic resizing is for values from 0 to 255,
    which it rounds and clamps after the first axis, as PyTorch and PIL do.
    """
    top, left, height, width = boxes.unbind(dim=1)
    rows = resize_weights(top, height, size, images.shape[2], interpolation).to(images.dtype)  # (B, size, H)
    columns = resize_weights(left, width, size, images.shape[3], interpolation).to(images.dtype)  # (B, size, W)
    narrow = images @ columns[:, None].transpose(2, 3)  # (B, C, S, size)
    if interpolation == "bicubic":
        narrow = narrow.round_().clamp_(0, 255)
    return rows[:, None] @ narrow  # (B, C, size, size), separable by axis


def resize_weights(start: Tensor, length: Tensor, size: int, side: int, interpolation: Interpolation) -> Tensor:
    """Return the weights (B, size, side) of `side` input pixels in each of `size` output pixels, along one axis.

    An output pixel's weights form a triangle, or Keys' cubic with a = -1/2 as in PIL. The triangle's half-width is the
    output pixel's width in the input, at least 1. The cubic's is twice as long. start, length: first pixel (B,) and
    number of pixels (B,) of the boxes along this axis.
    """
    scale = (length / size)[:, None, None]
    centers = (torch.arange(size, device=start.device) + 0.5)[:, None] * scale  # (B, size, 1), in the box
    pixels = torch.arange(side, device=start.device) - start[:, None, None] + 0.5  # (B, 1, side)
    inside = (pixels > 0) & (pixels < length[:, None, None])
    distance = (pixels - centers).abs() / scale.clamp(min=1)
    weights = (1 - distance).clamp(min=0)
    if interpolation == "bicubic":
        near = (1.5 * distance - 2.5) * distance**2 + 1
        far = ((2.5 - 0.5 * distance) * distance - 4) * distance + 2
        weights = near.where(distance < 1, far.where(distance < 2, 0))
    weights = weights * inside
    return weights / weights.sum(dim=2, keepdim=True)
