"""The Transformer encoder of arXiv 2010.11929, equations 2 to 4: attention, MLP, block.

Shapes: B images, T tokens (`prefix` of them before the N patches), D width, H heads, d_h = D / H.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from vitcore.initial import Initial, normal, xavier_uniform

if TYPE_CHECKING:
    from vitcore.config import Config
    from vitcore.position import Grid, Position

EPSILON = 1e-6  # of every layer norm, as flax's and timm's ViT


class Attention(Initial):
    """Multi-head self-attention (appendix A): q, k and v in one product, the fused kernel of PyTorch."""

    def __init__(self, config: Config, prefix: int) -> None:
        super().__init__()
        self.heads, self.prefix = config.heads, prefix
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def initial(self, name: str, values: Tensor, generator: Generator) -> None:
        """Xavier uniform over each projection, not over the stack of three, which would shrink them."""
        if name == "qkv.weight":
            for projection in values.chunk(3):
                xavier_uniform(projection, generator)
        else:
            super().initial(name, values, generator)

    def forward(self, x: Tensor, position: Position, layer: int, grid: Grid) -> Tensor:
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # each (B, H, T, d_h)
        q = on_patches(position.rotate, q, self.prefix, layer, grid)
        k = on_patches(position.rotate, k, self.prefix, layer, grid)
        bias = position.bias(q[:, :, self.prefix :], layer, grid)
        if bias is not None and self.prefix:
            bias = F.pad(bias, (self.prefix, 0, self.prefix, 0))  # 0 for pairs with a prefix token
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(x.transpose(1, 2).reshape(B, T, D))  # type: ignore[no-any-return]


class MLP(Initial):
    """Two layers with a GELU between them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden = round(config.width * config.mlp_ratio)
        self.up = nn.Linear(config.width, hidden)
        self.down = nn.Linear(hidden, config.width)

    def initial(self, name: str, values: Tensor, generator: Generator) -> None:
        """Biases normal(1e-6), as the reference's MlpBlock."""
        if name.endswith("bias"):
            normal(1e-6)(values, generator)
        else:
            super().initial(name, values, generator)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """z' = MSA(LN(z)) + z;  z = MLP(LN(z')) + z'  (equations 2 and 3)."""

    def __init__(self, config: Config, prefix: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=EPSILON)
        self.attention = Attention(config, prefix)
        self.norm2 = nn.LayerNorm(config.width, eps=EPSILON)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, position: Position, layer: int, grid: Grid) -> Tensor:
        x = x + self.attention(self.norm1(x), position, layer, grid)
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class Encoder(Initial):
    """L blocks and a final norm. Asks the position at the same sites whatever its kind."""

    def __init__(self, config: Config, prefix: int) -> None:
        super().__init__()
        self.prefix = prefix
        self.blocks = nn.ModuleList(Block(config, prefix) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, eps=EPSILON)

    def forward(self, x: Tensor, position: Position, grid: Grid) -> Tensor:
        """Tokens (B, T, D) to tokens. Layer 0's `tokens` site was asked before the prefix was put on."""
        for layer, block in enumerate(self.blocks):
            if layer > 0:
                x = on_patches(position.tokens, x, self.prefix, layer, grid)
            x = block(x, position, layer, grid)
            x = on_patches(position.between, x, self.prefix, layer, grid)
        return self.norm(x)  # type: ignore[no-any-return]


def on_patches(site: Callable[[Tensor, int, Grid], Tensor], x: Tensor, prefix: int, layer: int, grid: Grid) -> Tensor:
    """`site` on the patches of x (..., T, D) alone. A site that does nothing costs nothing."""
    patches = x[..., prefix:, :] if prefix else x
    placed = site(patches, layer, grid)
    if placed is patches:
        return x
    return torch.cat([x[..., :prefix, :], placed], dim=-2) if prefix else placed
