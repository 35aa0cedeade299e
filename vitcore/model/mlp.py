"""The MLPs of the blocks. To add an MLP, write a class and add it to MLP.

Shapes: B images, T tokens, D width, F hidden width.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from commonfloor.options import JsonSettings
from vitcore.keyed_random import RngKeys
from vitcore.model.dropout import dropout
from vitcore.model.initialization import Part, normal, stacked, xavier_uniform
from vitcore.model.norm import norm
from vitcore.settings import Settings


def quick_gelu(x: Tensor) -> Tensor:
    """Return x sigmoid(1.702 x), the approximation of GELU in arXiv 1606.08415, section 2."""
    return x * (1.702 * x).sigmoid()


GELUName = Literal["gelu", "gelu-tanh", "quick-gelu"]
GELUS: dict[GELUName, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "quick-gelu": quick_gelu,
}


class FeedForward(Part):
    """Base class of MLPs, which apply a layer `up`, an activation and a layer `down` to each token of (B, T, D)."""

    slot = "mlp"
    draws = {"up.bias": normal(1e-6), "down.bias": normal(1e-6)}
    ups = 1  # number of hidden vectors that `up` computes for each token

    class Options(Part.Options):
        hidden: Annotated[int, Field(ge=1, le=2**20)] | None = None  #: The exact hidden width, in place of `mlp_ratio`.
        norm: bool = False  #: Whether hidden vectors are normalized by `norm` (sub-LN, as in EVA-02: arXiv 2303.11331).

    def __init__(self, config: Settings, layer: int) -> None:
        super().__init__()
        hidden = self.hidden(config)
        bias = config.bias != "none"
        self.up = nn.Linear(config.width, self.ups * hidden, bias=bias)
        self.norm = norm(config, hidden, config.options_of(self.slot, self.Options).norm)
        self.down = nn.Linear(hidden, config.width, bias=bias)
        self.dropout_up = dropout(config.dropout, f"mlp.up {layer}")
        self.dropout_down = dropout(config.dropout, f"mlp.down {layer}")

    @classmethod
    def hidden(cls, config: Settings) -> int:
        return config.options_of(cls.slot, cls.Options).hidden or cls.hidden_by_ratio(config)

    @classmethod
    def hidden_by_ratio(cls, config: Settings) -> int:
        return round(config.width * config.mlp_ratio)

    @classmethod
    def canonical(cls, config: Settings) -> JsonSettings:
        return {"hidden": None} if cls.hidden(config) == cls.hidden_by_ratio(config) else {}

    def activation(self, x: Tensor) -> Tensor:
        """Return the hidden vectors (B, T, F) after the activation. x: the output of `up` (B, T, ups * F)."""
        raise NotImplementedError

    def forward(self, x: Tensor, rng_keys: RngKeys = None) -> Tensor:
        hidden = self.dropout_up(self.activation(self.up(x)), rng_keys)  # (B, T, F)
        return self.dropout_down(self.down(self.norm(hidden)), rng_keys)


class GELU(FeedForward):
    """An MLP with a GELU between two layers (arXiv 2010.11929, section 3.1 and the caption of Table 3)."""

    numerics = 1

    class Options(FeedForward.Options):
        #: The GELU, or an approximation of it by tanh (SigLIP) or by a sigmoid (OpenAI's CLIP), from arXiv 1606.08415.
        activation: GELUName = "gelu"

    def __init__(self, config: Settings, layer: int) -> None:
        super().__init__(config, layer)
        self.gelu = GELUS[config.options_of(self.slot, self.Options).activation]

    def activation(self, x: Tensor) -> Tensor:
        return self.gelu(x)


class SquaredReLU(FeedForward):
    """An MLP with a squared ReLU between two layers (Primer: arXiv 2109.08668, section 3)."""

    numerics = 1

    def activation(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


class GatedLinearUnit(FeedForward):
    """Base class of gated MLPs, which apply `down` to gate(x W) * (x V) (arXiv 2002.05202).

    A single linear layer computes x W and x V, in this order. The hidden width is 2/3 of the width that `mlp_ratio`
    gives, rounded to a multiple of 8. The number of parameters is then about that of an MLP without a gate.
    """

    draws = {**FeedForward.draws, "up.weight": stacked(2, xavier_uniform)}
    ups = 2
    gate: Callable[[Tensor], Tensor]

    def activation(self, x: Tensor) -> Tensor:
        gate, x = x.chunk(2, dim=-1)
        return self.gate(gate) * x

    @classmethod
    def hidden_by_ratio(cls, config: Settings) -> int:
        return max(8, 8 * round(config.width * config.mlp_ratio / 12))


class SwiGLU(GatedLinearUnit):
    """A gated MLP with hidden vectors SiLU(x W) * (x V) (arXiv 2002.05202, equation 6)."""

    numerics = 1
    gate = staticmethod(F.silu)


class GEGLU(GatedLinearUnit):
    """A gated MLP with hidden vectors GELU(x W) * (x V) (arXiv 2002.05202, equation 6)."""

    numerics = 1
    gate = staticmethod(F.gelu)


MLP: dict[str, type[FeedForward]] = {"gelu": GELU, "swiglu": SwiGLU, "geglu": GEGLU, "relu2": SquaredReLU}
