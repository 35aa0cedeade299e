"""ViT: stem -> tokens -> encoder -> pool -> head (arXiv 2010.11929)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn

from vitcore.encoder import Encoder
from vitcore.initial import Initial, initialise, zeros
from vitcore.pooling import POOLING
from vitcore.position import POSITION
from vitcore.stem import STEM

if TYPE_CHECKING:
    from vitcore.config import Config


class ViT(Initial):
    """A Vision Transformer with its initial values, drawn on the CPU from `config.seed`.

    `ViT(config)(images)`: images (B, C, H, W), float, standardised; gives logits (B, classes).
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.patch = config.patch
        self.stem = STEM[config.stem](config)
        self.position = POSITION[config.position](config)
        self.pool = POOLING[config.pool](config)
        self.prefix = int(self.pool.class_token)
        self.class_token = nn.Parameter(torch.empty(1, 1, config.width)) if self.pool.class_token else None
        self.encoder = Encoder(config, self.prefix)
        self.head = nn.Linear(config.width, config.classes)
        initialise(self, config.seed)

    def initial(self, name: str, values: Tensor, generator: Generator) -> None:
        """What the model owns itself, the class token and the head, starts at zero, as in the reference."""
        zeros(values, generator)

    def forward(self, images: Tensor) -> Tensor:
        grid = images.shape[-2] // self.patch, images.shape[-1] // self.patch
        x = self.position.tokens(self.stem(images), 0, grid)  # (B, N, D)
        if self.class_token is not None:
            token = self.position.class_token(self.class_token)
            x = torch.cat([token.expand(len(x), -1, -1), x], dim=1)  # (B, 1 + N, D)
        x = self.encoder(x, self.position, grid)
        return self.head(self.pool(x, self.prefix))  # type: ignore[no-any-return]
