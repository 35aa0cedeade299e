"""The norms of blocks, encoder, queries and keys. To add a norm, write a class and add it to NORM."""

from collections.abc import Callable

from torch import nn

from vitcore.model.initialization import Part
from vitcore.settings import Settings

EPSILON = 1e-6  # as in flax's and timm's ViT


class Norm(Part):
    """Base class of norms over the last axis. A norm is constructed from a config and the number of channels."""

    slot = "norm"


class LayerNorm(nn.LayerNorm, Norm):
    """Layer norm: each token is normalized to mean 0 and variance 1, then scaled and shifted (arXiv 1607.06450)."""

    numerics = 1

    def __init__(self, config: Settings, width: int) -> None:
        super().__init__(width, eps=EPSILON)


class RMSNorm(nn.RMSNorm, Norm):
    """RMS norm: each token is normalized to mean square 1 and scaled, without centering or shift (arXiv 1910.07467)."""

    numerics = 1

    def __init__(self, config: Settings, width: int) -> None:
        super().__init__(width, eps=EPSILON)


NORM: dict[str, Callable[[Settings, int], Norm]] = {"layer": LayerNorm, "rms": RMSNorm}


def norm(config: Settings, width: int, exists: bool = True) -> nn.Module:
    """Return the norm of `config` over `width` channels, or a module that does nothing unless it `exists`."""
    if not exists:
        return nn.Identity()
    return NORM[config.norm](config, width)
