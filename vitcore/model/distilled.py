"""A ViT with DeiT's distillation token (arXiv 2012.12877, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vitcore.keyed_random import Keys
from vitcore.model.head import HEAD
from vitcore.model.initialization import Initial, initialise, normal
from vitcore.model.vit import ViT

if TYPE_CHECKING:
    from vitcore.config import Config


class DistilledViT(ViT):
    """A ViT with one token more, before the patches, which a head of its own reads.

    In training, logits (B, 2, classes) of both heads; else their mean (B, classes), as DeiT's inference. The token has
    no separate position: in DeiT the two are only ever summed.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.prefix += 1
        self.objective = DistillationToken(config)
        self.head.add_module("distillation", HEAD[config.head](config))  # a head too, by its name
        initialise(self, config.seed, config.init, config.width)

    def prefix_tokens(self) -> list[Tensor]:
        return [*super().prefix_tokens(), self.objective.token]

    def forward(self, images: Tensor, keys: Keys = None) -> Tensor:
        own, distilled = self.vectors(images, keys)
        second = self.head.get_submodule("distillation")
        logits = torch.stack([self.head(own), second(distilled)], dim=1)  # (B, 2, classes)
        return logits if self.training else logits.mean(dim=1)

    def pooled(self, images: Tensor, keys: Keys = None) -> Tensor:
        return self.vectors(images, keys)[0]

    def vectors(self, images: Tensor, keys: Keys = None) -> tuple[Tensor, Tensor]:
        """Return the inputs of the two heads, each (B, D)."""
        *_, x = self.states(images, keys)  # (B, T, D)
        before = self.config.final_norm == "before"
        x = self.encoder.norm(x) if before else x
        own, distilled = self.pool(x, self.prefix), x[:, self.prefix - 1]
        return (own, distilled) if before else (self.encoder.norm(own), self.encoder.norm(distilled))


class DistillationToken(Initial):
    """The learned token, drawn at 0.02 as in DeiT, unlike the class token, which starts at zero."""

    draws = {"token": normal(0.02)}

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.empty(1, 1, config.width))
