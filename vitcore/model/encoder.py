"""The Transformer encoder (arXiv 2010.11929, equations 2 to 4). Shapes: B images, T tokens, D width."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from vitcore.model.block import BLOCK
from vitcore.model.norm import norm
from vitcore.model.position import Context
from vitcore.settings import Settings


class Encoder(nn.Module):
    """A sequence of L blocks, with an optional norm before the first block as in CLIP (arXiv 2103.00020).

    The encoder owns the final `norm`, but the ViT applies it, before or after the pooling.
    """

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.embedding_norm = norm(config, config.width) if config.embedding_norm else nn.Identity()
        self.blocks = nn.ModuleList(BLOCK[config.block](config, layer) for layer in range(config.layers))
        self.norm = nn.Identity() if config.final_norm == "none" else norm(config, config.width)

    def forward(self, x: Tensor, context: Context) -> Iterator[Tensor]:
        """Yield the tokens after each block, z_1 to z_L (B, T, D). x: the tokens z_0 that enter the encoder."""
        x = self.embedding_norm(x)
        for layer, block in enumerate(self.blocks):
            if layer > 0:
                x = context.tokens(x, layer)
            x = context.between(block(x, context), layer)
            yield x
