"""The interface of a training objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from vitcore.keyed_random import Indices, Keys, image_keys
from vitcore.model.vit import ViT
from vitcore.variant import Variant

if TYPE_CHECKING:
    from vitcore.config import Config

NO_EPOCH = 2**32 - 1  # the epoch of an evaluation's random keys, which no training reaches


class Objective(Variant):
    """Chooses the model to train, its targets, the loss, and what counts as correct."""

    slot = "objective"
    keyed: ClassVar[bool] = False  # whether model and targets need the images' random keys, in evaluations too
    labels: ClassVar[bool] = True  # whether each image is simply right or wrong, so that arms can be paired by image

    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def model(cls, config: Config) -> ViT:
        """Return the model to train: images (B, C, H, W) and their keys (B,) to logits (B, *shape)."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image's logits, classes last."""
        raise NotImplementedError

    def keys(self, index: Indices) -> Keys:
        """Return random keys (n,) that are equal in all evaluations; None if the objective draws nothing."""
        return image_keys(self.config.seed, np.full(len(index), NO_EPOCH), index) if self.keyed else None

    def targets(self, pixels: Tensor, labels: Tensor, keys: Keys) -> Tensor:
        """Return the targets of images, given as the bytes (B, C, H, W) that the model sees, and labels (B,)."""
        raise NotImplementedError

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over the images."""
        return F.cross_entropy(logits, targets, label_smoothing=self.config.label_smoothing)

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Reduce a batch's logits (B, ...) to the numbers that `scores` needs."""
        return logits

    def remembered(self, targets: Tensor) -> Tensor:
        """Reduce a batch's targets (B, ...) to the numbers that `scores` needs."""
        return targets

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        """Return the mean cross-entropy and each image's correctness (n,), from all answers and targets."""
        raise NotImplementedError
