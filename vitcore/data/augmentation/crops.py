"""Cropping and resizing of stored uint8 images on any device.

Images have shape (B, C, H, W). A pack's images are channels-last in memory, which a CPU resizes fastest. Crops are
contiguous.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def center_crop(images: Tensor, crop: int, size: int) -> Tensor:
    """Return the middle square of uint8 images (B, C, S, S), `crop` pixels a side, resized to (B, C, size, size)."""
    first = round((images.shape[-1] - crop) / 2)  # as in torchvision's center_crop
    middle = images[:, :, first : first + crop, first : first + crop]
    if crop == size:
        return middle.contiguous()
    if images.device.type == "cpu":
        return F.interpolate(middle, (size, size), mode="bilinear", antialias=True).contiguous()
    box = torch.zeros(len(images), 4, dtype=torch.int64, device=images.device)
    box[:, 2:] = crop  # made on the device, so that a CUDA graph can hold it
    return crop_by_products(middle, box, size)


def crop_by_products(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Crop uint8 images (B, C, S, S) to their boxes (B, 4) and resize the crops to (B, C, size, size).

    boxes: top, left, height and width in pixels, on the images' device. Resizing is bilinear with antialiasing. Pixels
    differ from those of `F.interpolate` by at most one level, because matrix products round differently.
    """
    top, left, height, width = boxes.unbind(dim=1)
    rows = weights(top, height, size, images.shape[2])  # (B, size, H)
    columns = weights(left, width, size, images.shape[3])  # (B, size, W)
    plain = images.to(torch.float32, memory_format=torch.contiguous_format)
    pieces = rows[:, None] @ (plain @ columns[:, None].transpose(2, 3))  # (B, C, size, size), separable by axis
    return pieces.round_().clamp_(0, 255).to(torch.uint8)


def weights(start: Tensor, length: Tensor, size: int, side: int) -> Tensor:
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
