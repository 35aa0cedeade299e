"""The interface of a training objective."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from vitcore.keyed_random import Indices, RngKeys, image_keys
from vitcore.model.vit import ViT
from vitcore.settings import Settings
from vitcore.variant import Variant

NO_EPOCH = 2**32 - 1  # the epoch of an evaluation's random keys, which no training run reaches


class Objective(Variant):
    """Base class of objectives, which choose the model to train, its targets, the loss and the accuracy."""

    slot = "objective"
    keyed: ClassVar[bool] = False  # whether model and targets need the images' random keys, even in evaluations
    labels: ClassVar[bool] = True  # whether each image is simply right or wrong, so that arms can be paired by image

    def __init__(self, config: Settings) -> None:
        self.config = config

    @classmethod
    def model(cls, config: Settings) -> ViT:
        """Return the model to train. It maps images (B, C, H, W) and their random keys (B,) to logits (B, ...)."""
        raise NotImplementedError

    def keys(self, index: Indices) -> RngKeys:
        """Return the random keys (n,) of images for every evaluation, on the CPU, or None if none are needed.

        index (n,): the images' indices in the whole dataset.
        """
        if not self.keyed:
            return None
        return image_keys(self.config.seed, np.full(len(index), NO_EPOCH), index)

    def targets(self, pixels: Tensor, labels: Tensor, rng_keys: RngKeys) -> Tensor:
        """Return the targets of a batch.

        pixels (B, C, H, W): uint8 images before standardization. labels: (B,). rng_keys: random keys (B,), or None.
        """
        raise NotImplementedError

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch, by default cross-entropy. logits: the model's output in training mode."""
        return F.cross_entropy(logits, targets, label_smoothing=self.config.label_smoothing)

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return what `scores` needs of a batch's logits (B, ...), with one row for each image."""
        return logits

    def remembered(self, targets: Tensor) -> Tensor:
        """Return what `scores` needs of a batch's targets (B, ...), with one row for each image."""
        return targets

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        """Return (mean loss, correctness (n,) of each image) from the results of `answers` and `remembered`."""
        raise NotImplementedError
