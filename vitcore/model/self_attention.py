"""Multi-head self-attention over the tokens (arXiv 2010.11929, appendix A).

To add a variant, write a class and add it to SELF_ATTENTION. Shapes: B images, T tokens (`prefix` of them before the N
patches), D width, H heads, d_h = D / H.
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from commonfloor.messages import joined_names
from commonfloor.options import ConfigError
from vitcore.model.dropout import dropout
from vitcore.model.initialization import Part, normal, stacked, xavier_uniform
from vitcore.model.norm import norm
from vitcore.model.pooling import POOLING
from vitcore.model.position import POSITION, Context, acts_at, positions_without
from vitcore.settings import Settings


class SelfAttention(Part):
    """Base class of self-attention, which maps tokens (B, T, D) to tokens (B, T, D)."""

    slot = "self_attention"
    draws = {"qkv.weight": stacked(3, xavier_uniform)}
    maps: ClassVar[int] = 1  # number of attention maps of a head

    def __init__(self, config: Settings, layer: int) -> None:
        super().__init__()
        self.heads = config.heads
        self.layer = layer
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.bias == "all")
        head = config.width // config.heads // self.maps
        # qk_norm: arXiv 2302.05442, section 2.1
        self.q_norm = norm(config, head, config.qk_norm)
        self.k_norm = norm(config, head, config.qk_norm)
        self.out = nn.Linear(config.width, config.width, bias=config.bias != "none")
        self.dropout_weights = dropout(config.attention_dropout, f"attention.weights {layer}")
        self.drops_weights = config.attention_dropout > 0
        self.dropout = dropout(config.dropout, f"attention.out {layer}")

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return self.dropout(self.out(self.heads_joined(x, context)), context.rng_keys)  # equation 8

    def heads_joined(self, x: Tensor, context: Context) -> Tensor:
        """Return the outputs of all heads side by side (B, T, D)."""
        q, k, v, bias = self.inputs(x, context)
        return self.attended(q, k, v, bias, context).transpose(1, 2).flatten(2)

    def inputs(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return queries, keys and values (B, H, T, d_h) (equation 5), and the bias of the attention logits or None."""
        B, T, _ = x.shape
        # Unbinding before transposing keeps the gradients in the product's layout, so they are copied only once.
        q, k, v = (part.transpose(1, 2) for part in self.qkv(x).view(B, T, 3, self.heads, -1).unbind(2))
        q = context.rotate(self.q_norm(q), self.layer)
        k = context.rotate(self.k_norm(k), self.layer)
        return q, k, v, context.bias(q, self.layer)

    def attended(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, context: Context) -> Tensor:
        """Return the attention-weighted sums of the values (B, H, T, d_h) (equations 6 and 7)."""
        if self.training and self.drops_weights:
            return self.dropout_weights(softmax_weights(q, k, bias), context.rng_keys) @ v
        return attend(q, k, v, bias)

    def weights(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor | None]:
        """Return the attention weights (B, H, T, T), which `forward` does not store, and the logits' bias or None."""
        q, k, _, bias = self.inputs(x, context)
        return softmax_weights(q, k, bias), bias


class Full(SelfAttention):
    """Full self-attention, in which every token attends to every token (arXiv 2010.11929, appendix A)."""

    numerics = 1

    class Options(SelfAttention.Options):
        norm: bool = False  #: Whether the joined heads are normalized by `norm` (sub-LN, as in EVA-02's CLIP models).

    def __init__(self, config: Settings, layer: int) -> None:
        super().__init__(config, layer)
        self.norm = norm(config, config.width, config.options_of(self.slot, self.Options).norm)

    def heads_joined(self, x: Tensor, context: Context) -> Tensor:
        return self.norm(super().heads_joined(x, context))


class Gated(SelfAttention):
    """Full attention with a sigmoid gate for each output channel (arXiv 2505.06708, variant G1).

    As in timm's `Attention(gated=True)`, the gate is sigmoid(x W + b) of the input x, with b only if `bias=all`.
    """

    numerics = 1

    def __init__(self, config: Settings, layer: int) -> None:
        super().__init__(config, layer)
        self.gate = nn.Linear(config.width, config.width, bias=config.bias == "all")

    def heads_joined(self, x: Tensor, context: Context) -> Tensor:
        return self.gate(x).sigmoid() * super().heads_joined(x, context)


class ValueResidual(SelfAttention):
    """Full attention that averages a layer's values with the first layer's (Identity-ResFormer: arXiv 2410.17897)."""

    numerics = 1

    def inputs(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q, k, v, bias = super().inputs(x, context)
        if self.layer == 0:
            context.shared.setdefault("values", v)
            return q, k, v, bias
        return q, k, (v + context.shared["values"]) / 2, bias


class Axial(SelfAttention):
    """Attention within rows in even layers and columns in odd layers, counted from 0 (arXiv 2010.11929, D.6).

    An axial block of arXiv 2010.11929 is two blocks of this model, so `depth` is twice the number of axial blocks.
    Class tokens and registers are not allowed, because they are outside the grid.
    """

    numerics = 1

    @classmethod
    def check(cls, config: Settings) -> None:
        check_sites_free(config, "bias")
        if POOLING[config.pool].class_token:
            raise ConfigError(f"pool={config.pool}: self_attention=axial has no class token: gap, gem or map")
        if config.registers:
            raise ConfigError(f"registers={config.registers}: self_attention=axial has tokens on the grid alone: 0")
        if config.options.get("objective.token"):
            raise ConfigError("objective.token=True: self_attention=axial has tokens on the grid alone: False")

    def attended(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, context: Context) -> Tensor:
        q, k, v = (self.lines(x, context) for x in (q, k, v))
        x = super().attended(q, k, v, None, context)  # (B, H lines, length, d_h)
        x = x.view(len(x), self.heads, -1, *x.shape[2:])  # (B, H, lines, length, d_h)
        return self.oriented(x).flatten(2, 3)

    def lines(self, x: Tensor, context: Context) -> Tensor:
        """Return x (B, H, N, d_h) split into rows or columns (lines): (B, H * lines, length, d_h)."""
        B, H, _, d = x.shape
        return self.oriented(x.reshape(B, H, *context.grid, d)).flatten(1, 2)

    def oriented(self, x: Tensor) -> Tensor:
        """Return x (B, H, rows, columns, d_h), with rows and columns swapped in layers that attend along columns."""
        return x.transpose(2, 3) if self.layer % 2 else x

    def weights(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor | None]:
        q, k, _, _ = self.inputs(x, context)
        one_hot = torch.eye(q.shape[2], dtype=q.dtype, device=q.device).expand(*q.shape[:2], -1, -1)  # (B, H, N, N)
        return self.attended(q, k, one_hot, None, context), None


class Differential(SelfAttention):
    """The difference of two attention maps in each head, applied to the head's values (arXiv 2410.05258, section 2.1).

    A head applies an RMS norm to (softmax(q1 k1^T) - lambda softmax(q2 k2^T)) v and multiplies it by 1 - lambda_init.
    Each q or k has half of the head's channels. `heads` counts pairs of maps. Results match timm's `DiffAttention`.
    """

    numerics = 1
    draws = {**SelfAttention.draws, **{f"lambda_{one}": normal(0.1) for one in ("q1", "k1", "q2", "k2")}}
    maps = 2

    def __init__(self, config: Settings, layer: int) -> None:
        super().__init__(config, layer)
        half = config.width // config.heads // 2
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(torch.empty(half)) for _ in range(4)
        )
        self.sub_norm = nn.RMSNorm(2 * half, eps=1e-5)  # as in arXiv 2410.05258

    @classmethod
    def check(cls, config: Settings) -> None:
        check_sites_free(config, "bias", "rotate")
        if config.width // config.heads % 2:
            width = f"width={config.width} over heads={config.heads}"
            raise ConfigError(f"{width}: self_attention=differential halves each head: an even number of channels")

    def inputs(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return queries and keys (B, 2 H, T, d_h / 2), values (B, H, T, d_h), and no bias."""
        B, T, _ = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, -1).unbind(2)
        q, k = (part.view(B, T, 2 * self.heads, -1).transpose(1, 2) for part in (q, k))
        return self.q_norm(q), self.k_norm(k), v.view(B, T, self.heads, -1).transpose(1, 2), None

    def attended(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, context: Context) -> Tensor:
        both = super().attended(q, k, v.repeat_interleave(2, dim=1), bias, context)  # (B, 2 H, T, d_h)
        return self.sub_norm(self.difference(both)) * (1 - self.lambda_init)

    def difference(self, both: Tensor) -> Tensor:
        """Return each head's first map or output minus lambda times its second: (B, H, T, d) from (B, 2 H, T, d)."""
        first, second = both.view(len(both), self.heads, 2, *both.shape[2:]).unbind(2)
        plus = torch.dot(self.lambda_q1, self.lambda_k1)
        minus = torch.dot(self.lambda_q2, self.lambda_k2)
        return first - (plus.exp() - minus.exp() + self.lambda_init) * second

    def weights(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor | None]:
        q, k, _, bias = self.inputs(x, context)
        return self.difference(softmax_weights(q, k, bias)), bias


def softmax_weights(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """Return the attention weights (..., T, T) for queries and keys (..., T, d_h), with `bias` added to the logits."""
    logits: Tensor = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if bias is not None:
        logits = logits + bias
    return logits.softmax(dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Return softmax(q k^T / sqrt(d_h) + bias) v (B, H, T, d_h) for queries, keys and values (B, H, T, d_h).

    bias: in a shape that expands to (B, H, T, T), or None. On a CPU, the result for bf16 tensors is in float32, because
    the kernel's gradient is many times slower in bf16.
    """
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        with torch.autocast("cpu", enabled=False):
            q, k, v = (part.float() for part in (q, k, v))
            return attend(q, k, v, bias if bias is None else bias.float())
    if bias is not None and bias.ndim == 1:
        bias = bias[None]  # kernels need two dimensions
    if bias is None or not bias.requires_grad or bias.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    # No fused kernel on a CPU has the gradient of a learned bias, and PyTorch's fallback copies q and k once more.
    B, H, T, d = q.shape
    q, k, v = (part.flatten(0, 1) for part in (q, k, v))  # (B H, T, d_h)
    logits = torch.baddbmm(bias.expand(B, H, T, T).flatten(0, 1), q, k.transpose(1, 2), alpha=d**-0.5)
    return torch.bmm(logits.softmax(dim=-1), v).view(B, H, T, d)


def check_sites_free(config: Settings, *sites: str) -> None:
    """Raise ConfigError if the position embedding acts at one of `sites`, which the attention does not support."""
    if acts_at(POSITION[config.position], *sites):
        free = joined_names(positions_without(*sites))
        raise ConfigError(f"position={config.position}: self_attention={config.self_attention} takes {free}")


SELF_ATTENTION: dict[str, type[SelfAttention]] = {
    "full": Full,
    "axial": Axial,
    "gated": Gated,
    "value-residual": ValueResidual,
    "differential": Differential,
}
