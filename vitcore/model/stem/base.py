"""The base class of stems, and functions that several stems share.

Shapes: B images, C channels, P patch size, N patches in raster order, D width of the stem's tokens.
"""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from vitcore.model.initialization import Part
from vitcore.model.position import stem_width
from vitcore.options import ConfigError
from vitcore.settings import Settings


class Stem(Part):
    """Base class of stems, which map images (B, C, H, W) to tokens (B, H / P * W / P, D).

    D is `width`, which is less than `config.width` with `position.combine=concat`.
    """

    slot = "stem"
    local: ClassVar[bool] = False  # whether a token depends only on the pixels of its patch

    @classmethod
    def patches(cls, config: Settings) -> list[int]:
        """Return the patch sizes in pixels that training steps draw from, by default only `patch`."""
        return [config.patch]

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.width = stem_width(config)


def tokens(features: Tensor) -> Tensor:
    """Return feature maps (B, D, rows, columns) as tokens (B, N, D) in raster order."""
    return features.flatten(2).transpose(1, 2)


def halvings(config: Settings) -> list[tuple[int, int]]:
    """Return (channels, stride) for each stage. Channels double up to `width`. Strides are 2, or 1 if P = 1."""
    stages = max(1, config.patch.bit_length() - 1)
    return [(max(1, config.width >> (stages - 1 - stage)), min(config.patch, 2)) for stage in range(stages)]


def check_halvings(config: Settings) -> None:
    if config.patch & (config.patch - 1):
        raise ConfigError(f"patch={config.patch}: stem={config.stem} halves the image: a power of two")


def group_count(channels: int) -> int:
    """Return the number of equal groups of a group norm, with 16 channels each if possible (arXiv 1803.08494)."""
    return math.gcd(channels, max(1, channels // 16))
