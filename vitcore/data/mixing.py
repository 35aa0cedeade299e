"""Two images in one, and their labels in the same shares: mixup (arXiv 1710.09412) and cutmix (arXiv 1905.04899).

As timm.data.Mixup in its mode 'batch': image i meets image B - 1 - i, one share ~ Beta(alpha, alpha) holds for all.
A batch is mixed with probability `mix_prob`. Where both have an alpha, it is mixed by one of them, by CutMix with
probability `mix_switch_prob`. All choices are a pure function of (seed, step).
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
    """Images (B, C, H, W) and labels (B,) of the batch of `step`, mixed; targets (B, classes), each a distribution."""
    return mixed(images, labels, config, draw(config, step, *images.shape[-2:]))


def draw(config: Config, step: int, rows: int, columns: int) -> Tensor:
    """The choices of a batch (6,), float64: each image's share of itself, its targets' share, a rectangle's edges."""
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
    """Images and targets by the choices, which may be on any device: the host reads none of them."""
    share, target_share = choices[:2].unbind()
    partly = mixup(images, share) if config.mixup else images
    if config.cutmix:
        partly = cutmix(partly, images, choices[2:])
    return partly, mixup(F.one_hot(labels, config.classes).to(images.dtype), target_share)


def mixup(x: Tensor, share: Tensor) -> Tensor:
    """`share` of each and 1 - `share` of its partner."""
    return x.lerp(x.flip(0), (1 - share).to(x.dtype))


def cutmix(images: Tensor, originals: Tensor, edges: Tensor) -> Tensor:
    """Images in which a rectangle of each is its partner's original."""
    top, bottom, left, right = edges.unbind()
    y, x = (torch.arange(size, device=images.device) for size in images.shape[-2:])
    inside = ((y >= top) & (y < bottom))[:, None] & (x >= left) & (x < right)  # (H, W)
    return originals.flip(0).where(inside, images)


def kept(edges: Edges, rows: int, columns: int) -> float:
    """The share of an image outside of the rectangle."""
    top, bottom, left, right = edges
    return 1 - (bottom - top) * (right - left) / (rows * columns)


def box(random: RandomState, share: float, rows: int, columns: int) -> Edges:
    """Of area 1 - `share`, its centre anywhere, cut off at the image's border."""
    return *side(random, share, rows), *side(random, share, columns)


def side(random: RandomState, share: float, size: int) -> tuple[int, int]:
    length = int(size * math.sqrt(1 - share))
    centre = int(random.randint(0, size))
    return max(0, centre - length // 2), min(size, centre + (length + 1) // 2)
