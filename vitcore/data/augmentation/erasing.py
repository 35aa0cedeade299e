"""Random erasing (arXiv 1708.04896), as timm.data.RandomErasing: a rectangle of an image becomes 0 or noise.

Images are standardized, so 0 is the mean of the data. All random choices are a hash of the image's key, computed on its
device, so that a CUDA graph can hold them.
"""

import math

import torch
from torch import Tensor

from vitcore.keyed_random import bits, code

TRIES = 10
AREA = (0.02, 1 / 3)  # of the image
ASPECT = math.log(0.3)  # from 0.3 to 1 / 0.3


def erased(images: Tensor, keys: Tensor, probability: float, fill: str) -> Tensor:
    """Return images in which a random rectangle of each image (B, C, H, W) is erased with `probability`.

    keys: the images' keys (B,). fill: "pixel" for standard normal noise, anything else for 0.
    """
    rows, columns = images.shape[-2:]
    top, left, height, width = rectangles(keys, rows, columns, probability).view(-1, 4, 1, 1, 1).unbind(1)
    y, x = torch.arange(rows, device=keys.device)[:, None], torch.arange(columns, device=keys.device)
    inside = (y >= top) & (y < top + height) & (x >= left) & (x < left + width)  # (B, 1, H, W)
    colours = noise(keys, images) if fill == "pixel" else images.new_zeros(())
    return colours.where(inside, images)


def rectangles(keys: Tensor, rows: int, columns: int, probability: float) -> Tensor:
    """Draw a rectangle (top, left, height, width) for each key: (B, 4), int64, in pixels.

    With `probability`, it is the first of ten random rectangles that fits into rows x columns pixels. Otherwise, or if
    none fits, it is all zeros.
    """
    uniform = (bits(keys, code("erasing"), 1 + 4 * TRIES).double() + 2**31) / 2**32  # (B, 41), in [0, 1)
    share, ratio, down, across = uniform[:, 1:].view(-1, TRIES, 4).unbind(dim=2)  # (B, TRIES)
    area = rows * columns * (AREA[0] + (AREA[1] - AREA[0]) * share)
    aspect = (ASPECT * (1 - 2 * ratio)).exp()
    height, width = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (height < rows) & (width < columns)
    top, left = (down * (rows - height + 1)).floor(), (across * (columns - width + 1)).floor()
    tries = torch.stack([top, left, height, width], dim=2).long()  # (B, TRIES, 4)
    found = tries[torch.arange(len(keys), device=keys.device), fits.int().argmax(dim=1)]
    chosen = fits.any(dim=1) & (uniform[:, 0] < probability)
    return found * chosen[:, None]


def noise(keys: Tensor, images: Tensor) -> Tensor:
    """Return standard normal noise (B, C, H, W), which depends on each image's key (B,) alone."""
    uniform = (bits(keys, code("erased"), images[0].numel()).float() + 0.5) / 2**31  # in [-1, 1]
    normal = uniform.clamp(-1 + 2**-24, 1 - 2**-24).erfinv() * math.sqrt(2)
    return normal.view(images.shape).to(images.dtype)
