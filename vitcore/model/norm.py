"""The norms of blocks, encoder, queries and keys. To add a norm, write a class and add it to NORM."""

from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from vitcore.model.initialization import Part, constant, ones, zeros
from vitcore.settings import Settings

EPSILON = 1e-6  # as in flax's and timm's ViT, and the neutral value of norm.eps


class Norm(Part):
    """Base class of norms over the last axis. A norm is constructed from a config and the number of channels."""

    slot = "norm"


class ScalingNorm(Norm):
    """Base class of norms that divide by the root of a mean square."""

    class Options(Norm.Options):
        #: Added to the mean square. CLIP and DINOv3 have 1e-5. It also holds for the norm of `pool=map`.
        eps: Annotated[float, Field(gt=0)] = EPSILON


class LayerNorm(nn.LayerNorm, ScalingNorm):
    """Layer norm: each token is normalized to mean 0 and variance 1, then scaled and shifted (arXiv 1607.06450)."""

    numerics = 1

    def __init__(self, config: Settings, width: int) -> None:
        super().__init__(width, eps=epsilon(config))


class RMSNorm(nn.RMSNorm, ScalingNorm):
    """RMS norm: each token is normalized to mean square 1 and scaled, without centering or shift (arXiv 1910.07467)."""

    numerics = 1

    def __init__(self, config: Settings, width: int) -> None:
        super().__init__(width, eps=epsilon(config))


class DynamicTanh(Norm):
    """DyT, tanh(alpha x) with one learned alpha, then scaled and shifted (arXiv 2503.10622, equation 1).

    It takes the place of a norm and computes no statistics.
    """

    numerics = 1

    class Options(Norm.Options):
        alpha: Annotated[float, Field(gt=0)] = 0.5  #: Initial value of alpha (arXiv 2503.10622, section 4).

    def __init__(self, config: Settings, width: int) -> None:
        super().__init__()
        self.draws = {
            "alpha": constant(config.options_of(self.slot, self.Options).alpha),
            "weight": ones,
            "bias": zeros,
        }
        self.alpha = nn.Parameter(torch.empty(1))
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (self.alpha * x).tanh() + self.bias


def epsilon(config: Settings) -> float:
    """Return the option `norm.eps`, or its default for a norm without the option."""
    eps: float = config.options.get("norm.eps", EPSILON)
    return eps


NORM: dict[str, Callable[[Settings, int], Norm]] = {"layer": LayerNorm, "rms": RMSNorm, "dyt": DynamicTanh}


def norm(config: Settings, width: int, exists: bool = True) -> nn.Module:
    """Return the norm of `config` over `width` channels, or a module that does nothing unless it `exists`."""
    if not exists:
        return nn.Identity()
    return NORM[config.norm](config, width)
