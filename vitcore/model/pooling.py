"""The poolings of the model, which map the tokens of each image to one vector (arXiv 2010.11929, D.3).

To add a pooling, write a class and add it to POOLING. Shapes: B images, T tokens (`prefix` of them before the N
patches), D width, L layers, H heads, d_h = D / H.
"""

import math
from collections.abc import Iterable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from commonfloor.options import ConfigError
from vitcore.model.initialization import Part, constant, normal, stacked, xavier_uniform, zeros
from vitcore.model.mlp import GELUS, GELUName
from vitcore.model.norm import epsilon
from vitcore.settings import Settings


class Pooling(Part):
    """Base class of poolings, which map tokens (B, T, D) to vectors (B, D).

    A pooling that reads a class token sets `class_token = True`. Otherwise, the model has no class token.
    """

    slot = "pool"
    class_token: ClassVar[bool] = False
    plain: ClassVar[bool] = False  # whether the result is the last layer's class token or its mean over patches

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        removed = {"every_layer", "keep"} & cls.__dict__.keys()
        if removed:  # in versions before 0.23
            raise ConfigError(f"{cls.__name__}.{max(removed)}: gone; override `gather` instead")

    def __init__(self, config: Settings) -> None:
        super().__init__()

    def gather(self, states: Iterable[Tensor]) -> Tensor:
        """Return what `forward` reads of `states`, the tokens after each layer: by default only the last (B, T, D)."""
        *_, x = states
        return x

    def forward(self, x: Tensor, prefix: int) -> Tensor:
        """Return the pooled vectors (B, D).

        x: the result of `gather`, after the final norm if `final_norm=before`. A class token comes first. prefix: the
        number of tokens before the patches.
        """
        raise NotImplementedError


class ClassToken(Pooling):
    """The class token at the output of the encoder (arXiv 2010.11929, equation 4)."""

    numerics = 1
    class_token = True
    plain = True

    def forward(self, x: Tensor, prefix: int) -> Tensor:
        return x[:, 0]


class GlobalAverage(Pooling):
    """Global average pooling: the mean of the patch tokens (arXiv 2010.11929, D.3).

    According to D.3, the average needs a different learning rate from the class token.
    """

    numerics = 1
    plain = True

    def forward(self, x: Tensor, prefix: int) -> Tensor:
        return x[:, prefix:].mean(dim=1)


class AttentionPooling(Pooling):
    """Attention of a learned query to the patches, then a residual MLP (MAP: arXiv 2106.04560).

    As in big_vision's MAPHead, `heads` and `mlp_ratio` apply as in the encoder. With `weight_decay_on=matrices`, the
    query has no weight decay.
    """

    numerics = 1
    draws = {
        "probe": lambda values, generator: xavier_uniform(values.view(1, -1), generator),  # a matrix of one row
        "kv.weight": stacked(2, xavier_uniform),
        "up.bias": normal(1e-6),
        "down.bias": normal(1e-6),
    }

    class Options(Pooling.Options):
        activation: GELUName = "gelu"  #: Activation of the MLP. SigLIP has `gelu-tanh`.

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.gelu = GELUS[config.options_of(self.slot, self.Options).activation]
        width = config.width
        hidden = round(config.width * config.mlp_ratio)
        self.heads = config.heads
        self.probe = nn.Parameter(torch.empty(width))
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=epsilon(config))
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor, prefix: int) -> Tensor:
        patches = x[:, prefix:]
        B, N, D = patches.shape
        q = self.q(self.probe).view(1, self.heads, 1, -1).expand(B, -1, -1, -1)  # (B, H, 1, d_h)
        k, v = (part.transpose(1, 2) for part in self.kv(patches).view(B, N, 2, self.heads, -1).unbind(2))
        pooled = self.out(F.scaled_dot_product_attention(q, k, v).reshape(B, D))
        return pooled + self.down(self.gelu(self.up(self.norm(pooled))))


class GeneralizedMean(Pooling):
    """The generalized mean (mean x^p)^(1/p) over the patches, with a single learned p (arXiv 1711.02512).

    p = 1 is the mean, and p = infinity is the maximum. Values below 1e-6 are replaced by 1e-6, as in the authors' code
    (https://github.com/filipradenovic/cnnimageretrieval-pytorch). Logarithms prevent the underflow of powers.
    """

    numerics = 1
    draws = {"p": constant(3.0)}  # as in arXiv 1711.02512

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.p = nn.Parameter(torch.empty(1))

    def forward(self, x: Tensor, prefix: int) -> Tensor:
        logs = x[:, prefix:].clamp(min=1e-6).log()  # (B, N, D)
        return ((torch.logsumexp(self.p * logs, dim=1) - math.log(logs.shape[1])) / self.p).exp()


class EveryLayer(Pooling):
    """A learned weighted mean of the class token over the outputs of all layers (ELMo: arXiv 1802.05365, equation 1).

    The weights are a softmax over the layers, and are equal at the start. ELMo's overall scale is left to the head.
    """

    numerics = 1
    class_token = True
    draws = {"logits": zeros}

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.logits = nn.Parameter(torch.empty(config.layers))

    def gather(self, states: Iterable[Tensor]) -> Tensor:
        """Return the class tokens after each layer (L, B, D)."""
        return torch.stack([x[:, 0] for x in states])

    def forward(self, x: Tensor, prefix: int) -> Tensor:
        return torch.einsum("l,lbd->bd", self.logits.softmax(dim=0), x)


POOLING: dict[str, type[Pooling]] = {
    "cls": ClassToken,
    "gap": GlobalAverage,
    "map": AttentionPooling,
    "gem": GeneralizedMean,
    "layers": EveryLayer,
}
