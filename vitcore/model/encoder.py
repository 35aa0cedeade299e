"""The Transformer encoder of arXiv 2010.11929, equations 2 to 4: attention, MLP, block.

Shapes: B images, T tokens (`prefix` of them before the N patches), D width, H heads, d_h = D / H.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitcore.keyed_random import Keys
from vitcore.model.attention import attend
from vitcore.model.dropout import drop_path, dropout
from vitcore.model.initialization import Initial, constant, normal, stacked, xavier_uniform

if TYPE_CHECKING:
    from vitcore.config import Config
    from vitcore.model.position import Context

EPSILON = 1e-6  # of every layer norm, as in flax's and timm's ViT


class Attention(Initial):
    """Multi-head self-attention (appendix A), with q, k and v from one product."""

    draws = {"qkv.weight": stacked(3, xavier_uniform)}

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.heads, self.layer = config.heads, layer
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.q_norm, self.k_norm = head_norm(config), head_norm(config)
        self.out = nn.Linear(config.width, config.width)
        self.dropout = dropout(config.dropout, f"attention.out {layer}")

    def forward(self, x: Tensor, context: Context) -> Tensor:
        q, k, v, bias = self.inputs(x, context)
        x = attend(q, k, v, bias).transpose(1, 2).flatten(2)  # (B, T, D)
        return self.dropout(self.out(x), context.keys)

    def inputs(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys and values (B, H, T, d_h), and what is added to the logits, expandable to (B, H, T, T)."""
        B, T, _ = x.shape
        # Unbound before they are transposed, the three gradients keep the product's layout and are copied once.
        q, k, v = (part.transpose(1, 2) for part in self.qkv(x).view(B, T, 3, self.heads, -1).unbind(2))
        q, k = context.rotate(self.q_norm(q), self.layer), context.rotate(self.k_norm(k), self.layer)
        return q, k, v, context.bias(q, self.layer)


class MLP(Initial):
    """Two layers with a GELU between them, dropout after each (Table 3's caption of arXiv 2010.11929)."""

    draws = {"up.bias": normal(1e-6), "down.bias": normal(1e-6)}

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        hidden = round(config.width * config.mlp_ratio)
        self.up = nn.Linear(config.width, hidden)
        self.down = nn.Linear(hidden, config.width)
        self.dropout_up = dropout(config.dropout, f"mlp.up {layer}")
        self.dropout_down = dropout(config.dropout, f"mlp.down {layer}")

    def forward(self, x: Tensor, keys: Keys = None) -> Tensor:
        x = self.dropout_up(F.gelu(self.up(x)), keys)  # (B, T, mlp_ratio D)
        return self.dropout_down(self.down(x), keys)


class LayerScale(Initial):
    """A learned factor for each channel of a branch (arXiv 2103.17239, equation 4)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(config.width))
        self.draws = {"gamma": constant(config.layer_scale)}

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class Block(nn.Module):
    """z' = MSA(LN(z)) + z;  z'' = MLP(LN(z')) + z'  (equations 2 and 3)."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        rate = config.drop_path * layer / max(1, config.layers - 1)
        self.norm1 = nn.LayerNorm(config.width, eps=EPSILON)
        self.attention = Attention(config, layer)
        self.scale1 = layer_scale(config)
        self.drop_path1 = drop_path(rate, f"attention {layer}")
        self.norm2 = nn.LayerNorm(config.width, eps=EPSILON)
        self.mlp = MLP(config, layer)
        self.scale2 = layer_scale(config)
        self.drop_path2 = drop_path(rate, f"mlp {layer}")

    def forward(self, x: Tensor, context: Context) -> Tensor:
        x = x + self.drop_path1(self.scale1(self.attention(self.norm1(x), context)), context.keys)
        return x + self.drop_path2(self.scale2(self.mlp(self.norm2(x), context.keys)), context.keys)


class Encoder(nn.Module):
    """L blocks, and the final norm, which the model applies before or after pooling."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = nn.Identity() if config.final_norm == "none" else nn.LayerNorm(config.width, eps=EPSILON)

    def forward(self, x: Tensor, context: Context) -> Iterator[Tensor]:
        """Yield the tokens (B, T, D) after each block. Positions at the input are in x already."""
        for layer, block in enumerate(self.blocks):
            if layer > 0:
                x = context.tokens(x, layer)
            x = context.between(block(x, context), layer)
            yield x


def head_norm(config: Config) -> nn.Module:
    """A layer norm of queries or keys over d_h, with qk_norm (arXiv 2302.05442, section 2.1)."""
    return nn.LayerNorm(config.width // config.heads, eps=EPSILON) if config.qk_norm else nn.Identity()


def layer_scale(config: Config) -> nn.Module:
    return LayerScale(config) if config.layer_scale else nn.Identity()
