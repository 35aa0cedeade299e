"""Resampling of learned position tables to another patch grid.

Shapes: R x C patches (rows, columns) in raster order, D channels, H heads.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

Grid = tuple[int, int]  # rows, columns


def resample(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Return a table (R*C, D) for the locations of grid `old`, resampled to grid `new`: (R'*C', D).

    The interpolation is bicubic with antialiasing, as in timm's `resample_abs_pos_embed` (arXiv 2010.11929, section
    3.2: "2D interpolation"). A single axis is a grid with one row.
    """
    if old == new:
        return table
    image = table.reshape(*old, -1).permute(2, 0, 1)[None]  # (1, D, R, C)
    for size in reversed(new):  # an axis at a time: PyTorch 2.14 resamples columns of width 1 wrongly
        image = F.interpolate(image, size=(image.shape[2], size), mode="bicubic", antialias=True).transpose(2, 3)
    return image[0].flatten(1).T


def square_grid(places: int) -> Grid:
    """Return the square grid with `places` patches; raise ValueError if `places` is not a square number."""
    side = math.isqrt(places)
    if side * side != places:
        raise ValueError(f"{places} places are no square grid")
    return side, side


def resample_offsets(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Return a table ((2R-1)*(2C-1), H) for offsets on grid `old`, resampled to grid `new`: ((2R'-1)*(2C'-1), H).

    As in BEiT (arXiv 2106.08254) and timm's `resize_rel_pos_bias_table`, near offsets keep their spacing, and far
    offsets are spread in a geometric series. The interpolation is linear, and constant beyond the old offsets.
    """
    if old == new:
        return table
    down, across = (offset_weights(*sizes).to(table) for sizes in zip(old, new, strict=True))
    offsets = table.reshape(2 * old[0] - 1, 2 * old[1] - 1, -1)  # (2R-1, 2C-1, H)
    return torch.einsum("ir,jc,rch->ijh", down, across, offsets).flatten(0, 1)


def offset_weights(old: int, new: int) -> Tensor:
    """Return the weights (2 new - 1, 2 old - 1) with which old offsets on an axis contribute to new offsets."""
    if old == 1:
        return torch.ones(2 * new - 1, 1, dtype=torch.float64)  # the one offset that was learned
    ratio = growth(old - 1, new - 1)
    far = torch.tensor([ratio**step for step in range(old - 1)], dtype=torch.float64).cumsum(0)
    knots = torch.cat([-far.flip(0), torch.zeros(1, dtype=torch.float64), far])  # where the old offsets now lie
    places = torch.arange(1 - new, new, dtype=torch.float64)
    right = torch.bucketize(places, knots).clamp(1, len(knots) - 1)
    share = ((places - knots[right - 1]) / (knots[right] - knots[right - 1])).clamp(0, 1)[:, None]
    one_hot = torch.eye(len(knots), dtype=torch.float64)
    return one_hot[right - 1] * (1 - share) + one_hot[right] * share


def growth(terms: int, reach: int) -> float:
    """Return the ratio r for which 1 + r + ... + r**(terms - 1) = reach, or the nearer bound of [1.01, 1.5]."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if (middle**terms - 1) / (middle - 1) > reach else (middle, high)
    return (low + high) / 2
