"""The Transformer encoder of arXiv 2010.11929, equations 2 to 4: attention, MLP, block.

Shapes: B images, T tokens (`prefix` of them before the N patches), D width, H heads, d_h = D / H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from vitcore.initial import Initial, normal, xavier_uniform
from vitcore.noise import Keys, drop_path, dropout, unchanged

if TYPE_CHECKING:
    from vitcore.config import Config
    from vitcore.position import Grid, Position

EPSILON = 1e-6  # of every layer norm, as flax's and timm's ViT


class Attention(Initial):
    """Multi-head self-attention (appendix A): q, k and v in one product, the fused kernel of PyTorch."""

    def __init__(self, config: Config, prefix: int, layer: int) -> None:
        super().__init__()
        self.heads, self.prefix = config.heads, prefix
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.q_norm, self.k_norm = (head_norm(config) if config.qk_norm else unchanged for _ in range(2))
        self.out = nn.Linear(config.width, config.width)
        self.dropout = dropout(config.dropout, f"attention.out {layer}")

    def initial(self, name: str, values: Tensor, generator: Generator) -> None:
        """Xavier uniform over each projection, not over the stack of three, which would shrink them."""
        if name == "qkv.weight":
            for projection in values.chunk(3):
                xavier_uniform(projection, generator)
        else:
            super().initial(name, values, generator)

    def forward(self, x: Tensor, position: Position, layer: int, grid: Grid, keys: Keys = None) -> Tensor:
        q, k, v, bias = self.inputs(x, position, layer, grid)
        x = attend(q, k, v, bias)
        return self.dropout(self.out(x.transpose(1, 2).flatten(2)), keys)

    def inputs(
        self, x: Tensor, position: Position, layer: int, grid: Grid
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys and values (B, H, T, d_h), and what is added to the logits, expandable to (B, H, T, T)."""
        B, T, _ = x.shape
        # Taken apart before they are transposed: their gradients then lie as the product's do, and are copied once.
        q, k, v = (part.transpose(1, 2) for part in self.qkv(x).view(B, T, 3, self.heads, -1).unbind(2))
        q, k = self.q_norm(q), self.k_norm(k)
        q = on_patches(position.rotate, q, self.prefix, layer, grid)
        k = on_patches(position.rotate, k, self.prefix, layer, grid)
        bias = position.bias(q[:, :, self.prefix :] if self.prefix else q, layer, grid)
        if bias is not None and self.prefix:
            N = T - self.prefix
            bias = bias.expand(*bias.shape[:-2], N, N)
            bias = F.pad(bias, (self.prefix, 0, self.prefix, 0))  # 0 for pairs with a prefix token
        return q, k, v, bias


class MLP(Initial):
    """Two layers with a GELU between them, dropout after each (Table 3's caption of arXiv 2010.11929)."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        hidden = round(config.width * config.mlp_ratio)
        self.up = nn.Linear(config.width, hidden)
        self.down = nn.Linear(hidden, config.width)
        self.dropout_up = dropout(config.dropout, f"mlp.up {layer}")
        self.dropout_down = dropout(config.dropout, f"mlp.down {layer}")

    def initial(self, name: str, values: Tensor, generator: Generator) -> None:
        """Biases normal(1e-6), as the reference's MlpBlock."""
        if name.endswith("bias"):
            normal(1e-6)(values, generator)
        else:
            super().initial(name, values, generator)

    def forward(self, x: Tensor, keys: Keys = None) -> Tensor:
        x = self.dropout_up(F.gelu(self.up(x)), keys)
        return self.dropout_down(self.down(x), keys)


class Branch(Initial):
    """x + drop_path(scale * f(norm(x))): what a block does twice. Layer scale: arXiv 2103.17239, equation 4."""

    def __init__(self, config: Config, layer: int, name: str) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(config.width)) if config.layer_scale else None
        self.start = config.layer_scale
        rate = config.drop_path * layer / max(1, config.layers - 1)
        self.drop_path = drop_path(rate, f"{name} {layer}")

    def initial(self, name: str, values: Tensor, generator: Generator) -> None:
        values.fill_(self.start)

    def forward(self, x: Tensor, change: Tensor, keys: Keys) -> Tensor:
        return x + self.drop_path(change if self.scale is None else change * self.scale, keys)


class Block(nn.Module):
    """z' = MSA(LN(z)) + z;  z = MLP(LN(z')) + z'  (equations 2 and 3)."""

    def __init__(self, config: Config, prefix: int, layer: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=EPSILON)
        self.attention = Attention(config, prefix, layer)
        self.add1 = Branch(config, layer, "attention")
        self.norm2 = nn.LayerNorm(config.width, eps=EPSILON)
        self.mlp = MLP(config, layer)
        self.add2 = Branch(config, layer, "mlp")

    def forward(self, x: Tensor, position: Position, layer: int, grid: Grid, keys: Keys = None) -> Tensor:
        x = self.add1(x, self.attention(self.norm1(x), position, layer, grid, keys), keys)
        return self.add2(x, self.mlp(self.norm2(x), keys), keys)  # type: ignore[no-any-return]


class Encoder(Initial):
    """L blocks and a final norm, which the model applies. Asks the position at the same sites whatever its kind."""

    def __init__(self, config: Config, prefix: int) -> None:
        super().__init__()
        self.prefix = prefix
        self.blocks = nn.ModuleList(Block(config, prefix, layer) for layer in range(config.layers))
        self.norm = nn.Identity() if config.final_norm == "none" else nn.LayerNorm(config.width, eps=EPSILON)

    def forward(self, x: Tensor, position: Position, grid: Grid, keys: Keys = None) -> Iterator[Tensor]:
        """Tokens (B, T, D) as they leave each block. Layer 0's `tokens` site was asked before the prefix was put on."""
        for layer, block in enumerate(self.blocks):
            if layer > 0:
                x = on_patches(position.tokens, x, self.prefix, layer, grid)
            x = block(x, position, layer, grid, keys)
            x = on_patches(position.between, x, self.prefix, layer, grid)
            yield x


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q.k / sqrt(d_h) + bias) v, each (B, H, T, d_h), the bias of a shape that expands to (B, H, T, T).

    No fused kernel of the CPU has the gradient of a bias; what PyTorch does instead copies q and k once more than this.
    In bf16 the gradient of its fused one takes many times as long as in float32, with few tokens: float32 it is.
    """
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        with torch.autocast("cpu", enabled=False):
            return attend(q.float(), k.float(), v.float(), None if bias is None else bias.float())
    if bias is None or not bias.requires_grad or bias.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    B, H, T, d = q.shape
    q, k, v = (part.flatten(0, 1) for part in (q, k, v))
    logits = torch.baddbmm(bias.expand(B, H, T, T).flatten(0, 1), q, k.transpose(1, 2), alpha=d**-0.5)
    return torch.bmm(logits.softmax(dim=-1), v).view(B, H, T, d)


def head_norm(config: Config) -> nn.LayerNorm:
    """Of queries and keys, over d_h (arXiv 2302.05442, section 2.1)."""
    return nn.LayerNorm(config.width // config.heads, eps=EPSILON)


def on_patches(site: Callable[[Tensor, int, Grid], Tensor], x: Tensor, prefix: int, layer: int, grid: Grid) -> Tensor:
    """`site` on the patches of x (..., T, D) alone. A site that does nothing costs nothing."""
    patches = x[..., prefix:, :] if prefix else x
    placed = site(patches, layer, grid)
    if placed is patches:
        return x
    return torch.cat([x[..., :prefix, :], placed], dim=-2) if prefix else placed
