"""Random boxes of images, and crops by matrix products, which a CUDA graph can hold."""

import math
from typing import Literal

import torch
from torch import Tensor

from vitcore.keyed_random import site_code, uniforms
from vitcore.settings import Shape

Interpolation = Literal["bilinear", "bicubic"]
TRIES = 10  # random boxes per image
BOX = site_code("box")


def largest_window(stored: Shape, aspect: float) -> Shape:
    """Return the largest height and width in an image `stored` whose width over height is `aspect`, in whole pixels."""
    rows, columns = stored
    if columns > rows * aspect:
        return rows, max(1, round(rows * aspect))
    return max(1, round(columns / aspect)), columns


def random_boxes(
    rng_keys: Tensor, stored: Shape, areas: tuple[float, float], ratio: float, middle: float = 1.0
) -> Tensor:
    """Return a random box (top, left, height, width) for each image of shape `stored`: (B, 4), int64.

    areas: the smallest and the largest fraction of the image. The box's width over its height is between middle / ratio
    and middle * ratio. The first of ten boxes that fits is taken, or else the largest centered window.
    """
    rows, columns = stored
    uniform = uniforms(rng_keys, BOX, 4 * TRIES).view(-1, TRIES, 4)
    share, aspect, down, across = uniform.unbind(dim=2)  # (B, TRIES)
    pixels = rows * columns * (areas[0] + (areas[1] - areas[0]) * share)
    aspect = middle * ((2 * aspect - 1) * math.log(ratio)).exp()
    width = (pixels * aspect).sqrt().round()
    height = (pixels / aspect).sqrt().round()
    fits = (width > 0) & (width <= columns) & (height > 0) & (height <= rows)
    top = (down * (rows - height + 1)).floor()
    left = (across * (columns - width + 1)).floor()
    tries = torch.stack([top, left, height, width], dim=2).long()  # (B, TRIES, 4)
    first_fit = tries[torch.arange(len(rng_keys), device=rng_keys.device), fits.int().argmax(dim=1)]
    nearest = min(max(columns / rows, middle / ratio), middle * ratio)
    height_left, width_left = largest_window(stored, nearest)
    fallback = box_like(first_fit, (rows - height_left) // 2, (columns - width_left) // 2, height_left, width_left)
    return torch.where(fits.any(dim=1, keepdim=True), first_fit, fallback)


def box_like(boxes: Tensor, *box: int) -> Tensor:
    """Return `box` for each of the images of `boxes` (B, 4), made on the device, so that a CUDA graph can hold it."""
    same = torch.empty_like(boxes)
    for column, value in enumerate(box):
        same[:, column] = value
    return same


def crop_by_products(images: Tensor, boxes: Tensor, shape: Shape, interpolation: Interpolation = "bilinear") -> Tensor:
    """Crop uint8 images (B, C, H, W) to their boxes (B, 4), resized to `shape`, within a level of `F.interpolate`."""
    plain = images.to(torch.float32, memory_format=torch.contiguous_format)
    return resized_boxes(plain, boxes, shape, interpolation).round_().clamp_(0, 255).to(torch.uint8)


def resized_boxes(images: Tensor, boxes: Tensor, shape: Shape, interpolation: Interpolation = "bilinear") -> Tensor:
    """Return the boxes (B, 4) of float images (B, C, H, W), resized with antialiasing to (B, C, h, w).

    Bicubic resizing is for values from 0 to 255, which it rounds and clamps after the first axis, as PIL does.
    """
    top, left, height, width = boxes.unbind(dim=1)
    rows = resize_weights(top, height, shape[0], images.shape[2], interpolation).to(images.dtype)  # (B, h, H)
    columns = resize_weights(left, width, shape[1], images.shape[3], interpolation).to(images.dtype)  # (B, w, W)
    narrow = images @ columns[:, None].transpose(2, 3)  # (B, C, H, w)
    if interpolation == "bicubic":
        narrow = narrow.round_().clamp_(0, 255)
    return rows[:, None] @ narrow  # (B, C, h, w), separable by axis


def resize_weights(start: Tensor, length: Tensor, size: int, side: int, interpolation: Interpolation) -> Tensor:
    """Return the weights (B, size, side) of `side` input pixels in each of `size` output pixels, along one axis.

    An output pixel's weights form a triangle, or Keys' cubic with a = -1/2, as wide as in PIL. start, length: first
    pixel (B,) and number of pixels (B,) of the boxes along this axis.
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
