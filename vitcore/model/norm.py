"""The norm of the encoder's blocks, of its output and of queries and keys. A new one is a class and a line of NORM."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from vitcore.model.part import Part

if TYPE_CHECKING:
    from vitcore.config import Config

EPSILON = 1e-6  # as in flax's and timm's ViT


class Norm(Part):
    """A norm over the last axis, made of (config, width)."""

    slot = "norm"


class LayerNorm(nn.LayerNorm, Norm):
    """Mean and variance of each token are 0 and 1, then scaled and shifted (arXiv 1607.06450)."""

    numerics = 1

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(width, eps=EPSILON)


class RMSNorm(nn.RMSNorm, Norm):
    """The mean square of each token is 1, then scaled; nothing is centered or shifted (arXiv 1910.07467)."""

    numerics = 1

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(width, eps=EPSILON)


NORM: dict[str, Callable[[Config, int], Norm]] = {"layer": LayerNorm, "rms": RMSNorm}


def norm(config: Config, width: int) -> Norm:
    """Make the norm that `config` chooses, over `width` channels."""
    return NORM[config.norm](config, width)
