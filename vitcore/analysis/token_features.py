"""Evals of frozen features: of the vector that the head reads, or of the last layer's tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from commonfloor.options import ConfigError
from vitcore.analysis.eval import Eval, batch_outputs, check_has_features
from vitcore.data.splits import Data, Images
from vitcore.model.build import Model
from vitcore.model.pooling import POOLING
from vitcore.model.vit import ViT
from vitcore.settings import Settings

CLASS, MEAN, BOTH = "class", "mean", "both"
CONDITIONS = {"": "", CLASS: " of the class token", MEAN: " of mean patches", BOTH: " of class token and mean patches"}


class FeatureEval(Eval):
    """An eval of frozen features: the pre-logits, or with a value the normalized tokens of the last layer."""

    kind: ClassVar[str]  # the eval's name without a value
    values: ClassVar[tuple[str, ...]] = tuple(CONDITIONS)

    @property
    def label_suffix(self) -> str:
        return CONDITIONS[self.value]

    def check(self, config: Settings) -> None:
        name = self.with_value(self.kind)
        if not self.value:
            check_has_features(name, config)
        if self.value and config.model:
            raise ConfigError(f"eval {name}: the tokens of model={config.model} are not known: use {self.kind}")
        if self.value in (CLASS, BOTH) and not POOLING[config.pool].class_token:
            raise ConfigError(f"eval {name}: pool={config.pool} has no class token: use {self.kind}@{MEAN}")

    def features(self, model: Model, data: Data, images: Images) -> Tensor:
        """Return the features (n, D) of n images, or (n, 2D) for both, on the model's device."""
        return batch_outputs(self.extractor(model), model.config, data, images)

    def extractor(self, model: Model) -> Callable[[Tensor], Tensor]:
        """Return the function from images (B, C, H, W) to features."""
        if not self.value:
            return model.features
        assert isinstance(model, ViT), "`check` takes no other"

        def of_tokens(images: Tensor) -> Tensor:
            x = normalized_tokens(model, images)  # (B, T, D)
            parts = {CLASS: x[:, 0], MEAN: x[:, model.prefix :].mean(dim=1)}
            if self.value == BOTH:
                return torch.cat([*parts.values()], dim=1)
            return parts[self.value]

        return of_tokens


def normalized_tokens(model: ViT, images: Tensor) -> Tensor:
    """Return the last layer's tokens (B, T, D) after the encoder's norm, prefix tokens included."""
    last = deque(model.states(images), maxlen=1).pop()
    tokens: Tensor = model.encoder.norm(last)
    return tokens
