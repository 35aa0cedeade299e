"""Mixup (arXiv 1710.09412) and CutMix (arXiv 1905.04899), as timm.data.Mixup in mode 'batch'.

Image i is mixed with image B - 1 - i, its partner. One weight ~ Beta(alpha, alpha) is drawn for the batch. A batch is
mixed with probability `mix_prob`. If both mixup and CutMix have an alpha above 0, a batch uses CutMix with probability
`mix_switch_prob` and mixup otherwise. All draws are a pure function of (seed, step).
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

NOWHERE = (0, 0, 0, 0)  # the edges of an empty box: top, bottom, left, right


def draw(config: Config, step: int, rows: int, columns: int) -> Tensor:
    """Draw the random choices (6,), float64, for the batch of a step.

    They are the weights of an image in mixup and of its label, then the top, bottom, left and right edge of CutMix's
    box in pixels. Without mixup, the image's weight is 1. Without CutMix, the edges are 0. Without both, both weights
    are 1.
    """
    random = generator("mixing", config.seed, step)
    cut = bool(config.cutmix) and (not config.mixup or random.random_sample() < config.mix_switch_prob)
    alpha = config.cutmix if cut else config.mixup
    share = random.beta(alpha, alpha)
    choices = [share, share, *NOWHERE]
    if cut:
        top, bottom, left, right = edges = box(random, share, rows, columns)
        choices = [1, 1 - (bottom - top) * (right - left) / (rows * columns), *edges]
    if config.mix_prob < 1 and random.random_sample() >= config.mix_prob:  # last, so that it changes no other draw
        choices = [1, 1, *NOWHERE]
    return torch.tensor(choices, dtype=torch.float64)


def mixed(images: Tensor, labels: Tensor, config: Config, choices: Tensor) -> tuple[Tensor, Tensor]:
    """Return images (B, C, H, W) and soft labels (B, K), mixed without a transfer to the host.

    labels: (B,). choices: the result (6,) of `draw`, on the images' device.
    """
    share, target_share, top, bottom, left, right = choices.unbind()
    partly = mixup(images, share) if config.mixup else images
    if config.cutmix:
        y, x = (torch.arange(size, device=images.device) for size in images.shape[-2:])
        inside = ((y >= top) & (y < bottom))[:, None] & (x >= left) & (x < right)  # (H, W)
        partly = images.flip(0).where(inside, partly)
    return partly, mixup(F.one_hot(labels, config.classes).to(images.dtype), target_share)


def mixup(x: Tensor, share: Tensor) -> Tensor:
    """Return `share` times each row of x (B, ...) plus 1 - `share` times the row of its partner."""
    return x.lerp(x.flip(0), (1 - share).to(x.dtype))


def box(random: RandomState, share: float, rows: int, columns: int) -> tuple[int, ...]:
    """Draw a box with 1 - `share` of the image's area around a random center, clipped at the image's border."""
    edges: list[int] = []
    for size in (rows, columns):
        length, center = int(size * math.sqrt(1 - share)), int(random.randint(0, size))
        edges += [max(0, center - length // 2), min(size, center + (length + 1) // 2)]
    return tuple(edges)
