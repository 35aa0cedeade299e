"""Two images in one, and their labels in the same shares: mixup (arXiv 1710.09412) and cutmix (arXiv 1905.04899).

As timm.data.Mixup in its mode 'batch': image i meets image B - 1 - i, one share ~ Beta(alpha, alpha) holds for all.
Where both have an alpha, each batch is mixed by one of them, with equal probability. All choices are a pure function of
(seed, step).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from vitcore.data.shuffle import generator

if TYPE_CHECKING:
    from numpy.random import RandomState

    from vitcore.config import Config

Box = tuple[slice, slice]  # rows, columns


def mix(images: Tensor, labels: Tensor, config: Config, step: int) -> tuple[Tensor, Tensor]:
    """Images (B, C, H, W) and labels (B,) of the batch of `step`, mixed; targets (B, classes), each a distribution."""
    random = generator("mixing", config.seed, step)
    cut = bool(config.cutmix) and (not config.mixup or random.random_sample() < 0.5)
    alpha = config.cutmix if cut else config.mixup
    share = random.beta(alpha, alpha)
    if cut:
        images, share = cutmix(images, box(random, share, images.shape[-2], images.shape[-1]))
    else:
        images = mixup(images, share)
    return images, mixup(F.one_hot(labels, config.classes).to(images.dtype), share)


def mixup(x: Tensor, share: float) -> Tensor:
    """`share` of each and 1 - `share` of its partner."""
    return x.lerp(x.flip(0), 1 - share)


def cutmix(images: Tensor, where: Box) -> tuple[Tensor, float]:
    """A rectangle of each is its partner's; and what share of each is left."""
    mixed = images.clone()
    mixed[:, :, *where] = images.flip(0)[:, :, *where]
    return mixed, 1 - mixed[0, 0][where].numel() / mixed[0, 0].numel()


def box(random: RandomState, share: float, rows: int, columns: int) -> Box:
    """Of area 1 - `share`, its centre anywhere, cut off at the image's border."""
    return side(random, share, rows), side(random, share, columns)


def side(random: RandomState, share: float, size: int) -> slice:
    length = int(size * math.sqrt(1 - share))
    centre = int(random.randint(0, size))
    return slice(max(0, centre - length // 2), min(size, centre + (length + 1) // 2))
