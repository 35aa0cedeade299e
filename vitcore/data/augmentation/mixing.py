"""Mixup (arXiv 1710.09412) and CutMix (arXiv 1905.04899).

As timm.data.Mixup in mode 'batch': image i is mixed with image B - 1 - i, and one share ~ Beta(alpha, alpha) is drawn
for the batch. A batch is mixed with probability `mix_prob`. If both have an alpha, each batch uses one of them: CutMix
with probability `mix_switch_prob`. All draws are a pure function of (seed, step).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.data.shuffle import generator

if TYPE_CHECKING:
    from numpy.random import RandomState

    from vitcore.config import Config

Edges = tuple[int, int, int, int]  # top, bottom, left, right
NOWHERE = (0, 0, 0, 0)


def mix(images: Tensor, labels: Tensor, config: Config, step: int) -> tuple[Tensor, Tensor]:
    """Mix images (B, C, H, W) and labels (B,) of the batch of `step`; return images and class probabilities (B, K)."""
    return mixed(images, labels, config, draw(config, step, *images.shape[-2:]))


def draw(config: Config, step: int, rows: int, columns: int) -> Tensor:
    """Draw a batch's choices (6,), float64: the share of the image, that of its target, and the box's four edges."""
    random = generator("mixing", config.seed, step)
    cut = bool(config.cutmix) and (not config.mixup or random.random_sample() < config.mix_switch_prob)
    alpha = config.cutmix if cut else config.mixup
    share = random.beta(alpha, alpha)
    choices = [share, share, *NOWHERE]
    if cut:
        edges = box(random, share, rows, columns)
        choices = [1, kept(edges, rows, columns), *edges]
    if config.mix_prob < 1 and random.random_sample() >= config.mix_prob:  # last: what is mixed is mixed as with 1
        choices = [1, 1, *NOWHERE]
    return torch.tensor(choices, dtype=torch.float64)


def mixed(images: Tensor, labels: Tensor, config: Config, choices: Tensor) -> tuple[Tensor, Tensor]:
    """Mix images and labels by choices on any device, without a transfer to the host."""
    share, target_share = choices[:2].unbind()
    partly = mixup(images, share) if config.mixup else images
    if config.cutmix:
        partly = cutmix(partly, images, choices[2:])
    return partly, mixup(F.one_hot(labels, config.classes).to(images.dtype), target_share)


def mixup(x: Tensor, share: Tensor) -> Tensor:
    """Return `share` times each element plus 1 - `share` times its partner's."""
    return x.lerp(x.flip(0), (1 - share).to(x.dtype))


def cutmix(images: Tensor, originals: Tensor, edges: Tensor) -> Tensor:
    """Replace a box in each image by that of its partner's original image."""
    top, bottom, left, right = edges.unbind()
    y, x = (torch.arange(size, device=images.device) for size in images.shape[-2:])
    inside = ((y >= top) & (y < bottom))[:, None] & (x >= left) & (x < right)  # (H, W)
    return originals.flip(0).where(inside, images)


def kept(edges: Edges, rows: int, columns: int) -> float:
    """Return the share of an image outside the box."""
    top, bottom, left, right = edges
    return 1 - (bottom - top) * (right - left) / (rows * columns)


def box(random: RandomState, share: float, rows: int, columns: int) -> Edges:
    """Draw a box of area 1 - `share` with its centre anywhere, clipped at the image's border."""
    return *side(random, share, rows), *side(random, share, columns)


def side(random: RandomState, share: float, size: int) -> tuple[int, int]:
    length = int(size * math.sqrt(1 - share))
    centre = int(random.randint(0, size))
    return max(0, centre - length // 2), min(size, centre + (length + 1) // 2)
