"""Crops of stored uint8 images on any device: random boxes and the center crop.

The stored images of a pack (B, C, S, S) are channels-last, which a CPU resizes fastest. Crops are channels-first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.keyed_random import bits, code
from vitcore.runtime.device import sent

TRIES = 10
GROUP = 64  # images resized at once on a GPU, for the memory that it takes


class Window(NamedTuple):
    """The center crop for evaluation: the middle square with side `crop`, resized to side `size`, in pixels."""

    crop: int
    size: int

    def __call__(self, images: Tensor) -> Tensor:
        """Crop and resize uint8 images (B, C, S, S) to (B, C, size, size)."""
        first = round((images.shape[-1] - self.crop) / 2)  # as torchvision's center_crop
        middle = images[:, :, first : first + self.crop, first : first + self.crop]
        if self.crop == self.size:
            return middle.contiguous()
        if images.device.type == "cpu":
            return F.interpolate(middle, (self.size, self.size), mode="bilinear", antialias=True).contiguous()
        box = torch.zeros(len(images), 4, dtype=torch.int64, device=images.device)
        box[:, 2:] = self.crop  # made on the device, so that a CUDA graph can hold it
        return by_products(middle, box, self.size)


def random_boxes(keys: Tensor, side: int, area: float, ratio: float) -> Tensor:
    """Draw a box (top, left, height, width) for each key: (B, 4), int64, in pixels.

    keys: (B,), on the CPU. side: the images' side in pixels. The distribution equals torchvision's
    RandomResizedCrop.get_params with scale=(area, 1) and ratio=(1 / ratio, ratio). A box is the first of ten random
    ones that lies within the image, or the whole image if none does.
    """
    uniform = (bits(keys, code("box"), 4 * TRIES).double() + 2**31) / 2**32  # (B, 40), in [0, 1)
    share, aspect, down, across = uniform.view(-1, TRIES, 4).unbind(dim=2)  # (B, TRIES)
    pixels = side**2 * (area + (1 - area) * share)
    aspect = ((2 * aspect - 1) * math.log(ratio)).exp()
    width, height = (pixels * aspect).sqrt().round(), (pixels / aspect).sqrt().round()
    fits = (width > 0) & (width <= side) & (height > 0) & (height <= side)
    top, left = (down * (side - height + 1)).floor(), (across * (side - width + 1)).floor()
    tries = torch.stack([top, left, height, width], dim=2).long()  # (B, TRIES, 4)
    found = tries[torch.arange(len(keys)), fits.int().argmax(dim=1)]
    return torch.where(fits.any(dim=1, keepdim=True), found, torch.tensor([0, 0, side, side]))


def cut(images: Tensor, boxes: Tensor, size: int, fixed: bool = False) -> Tensor:
    """Crop each uint8 image (B, C, S, S) to its box, resized to (B, C, size, size), bilinear with antialiasing.

    boxes: top, left, height and width (B, 4), on the CPU, or on the images' device if `fixed`. fixed: launch kernels
    that depend on shapes only, as a CUDA graph needs.

    Unless `fixed`, a CPU uses PyTorch's resampling of uint8 images, one at a time. Otherwise, matrix products take
    fewer launches; their rounding differs by one level at most.
    """
    if fixed or images.device.type != "cpu":
        groups = zip(torch.split(images, GROUP), torch.split(sent(boxes, images.device), GROUP), strict=True)
        return torch.cat([by_products(some, own, size) for some, own in groups])
    pieces = images.new_empty((*images.shape[:2], size, size))  # channels first
    for image, (top, left, height, width), piece in zip(images, boxes.tolist(), pieces, strict=True):
        box = image[None, :, top : top + height, left : left + width]
        piece[:] = F.interpolate(box, (size, size), mode="bilinear", antialias=True)[0]
    return pieces


def by_products(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Return what `cut` does, by matrix products, for images and boxes on one device."""
    top, left, height, width = boxes.unbind(dim=1)
    rows = weights(top, height, size, images.shape[2])  # (B, size, H)
    columns = weights(left, width, size, images.shape[3])  # (B, size, W)
    plain = images.to(torch.float32, memory_format=torch.contiguous_format)
    pieces = rows[:, None] @ (plain @ columns[:, None].transpose(2, 3))  # (B, C, size, size), separable by axis
    return pieces.round_().clamp_(0, 255).to(torch.uint8)


def weights(start: Tensor, length: Tensor, size: int, side: int) -> Tensor:
    """Return the weight of each of `side` input pixels in each of `size` output pixels (B, size, side).

    An output pixel's weights are a triangle, whose half-width is the pixel's width in the input, at least 1. start,
    length: first pixel (B,) and number of pixels (B,) of the boxes along this axis.
    """
    scale = (length / size)[:, None, None]
    centres = (torch.arange(size, device=start.device) + 0.5)[:, None] * scale  # (B, size, 1), in the box
    pixels = torch.arange(side, device=start.device) - start[:, None, None] + 0.5  # (B, 1, side)
    inside = (pixels > 0) & (pixels < length[:, None, None])
    triangle = (1 - (pixels - centres).abs() / scale.clamp(min=1)).clamp(min=0) * inside
    return triangle / triangle.sum(dim=2, keepdim=True)
