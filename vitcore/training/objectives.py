"""What is learned from the images: their labels, or what they look like. One class and one line of OBJECTIVE each.

Shapes: B images, C channels, N patches, M = N // 2 of them corrupted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.data.lookup import describe
from vitcore.keyed_random import Keys, image_keys
from vitcore.model.vit import ViT
from vitcore.options import ConfigError
from vitcore.training.masked_patches import SHADES, MaskedViT, corrupted, mean_colours
from vitcore.variant import Variant

if TYPE_CHECKING:
    from vitcore.config import Config

Indices = np.ndarray[Any, np.dtype[np.int64]]
NO_EPOCH = 2**32 - 1  # under which evaluations draw: no training comes so far


class Objective(Variant):
    """Which model is trained, against which targets, and what is counted as right."""

    slot = "objective"
    keyed: ClassVar[bool] = False  # whether model and targets are made of the images' keys, in evaluations too
    labels: ClassVar[bool] = True  # whether an image is right or wrong, so that arms can be compared image by image

    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def model(cls, config: Config) -> ViT:
        """What is trained: images (B, C, H, W) and their keys (B,) to logits (B, *shape)."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the logits of one image; the classes last."""
        raise NotImplementedError

    def keys(self, index: Indices) -> Keys:
        """What an evaluation makes its random choices of: the same at every evaluation. None where it makes none."""
        return image_keys(self.config.seed, np.full(len(index), NO_EPOCH), index) if self.keyed else None

    def targets(self, pixels: Tensor, labels: Tensor, keys: Keys) -> Tensor:
        """What the logits are compared with, of bytes (B, C, H, W) as the model sees them."""
        raise NotImplementedError

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean over the images."""
        return F.cross_entropy(logits, targets, label_smoothing=self.config.label_smoothing)

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        """What an evaluation keeps of the logits (B, ...) of some images."""
        return logits

    def verdict(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        """The mean cross-entropy, and how right each image is (n,), of the answers and targets of all images."""
        raise NotImplementedError


class Classification(Objective):
    """The class of the image, by cross-entropy (arXiv 2010.11929, section 3.1)."""

    numerics = 1

    class Options(Objective.Options):
        """The loss. Metrics stay those of cross-entropy."""

        #: Binary cross-entropy is the mean over the classes, each alone, where every class of a mixed image is right
        #: (DeiT III: arXiv 2204.07118, section 3; `targets.gt(0)` in facebookresearch/deit).
        loss: Literal["cross-entropy", "binary-cross-entropy"] = "cross-entropy"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.binary = config.options_of(self.slot, self.Options).loss == "binary-cross-entropy"

    @classmethod
    def model(cls, config: Config) -> ViT:
        return ViT(config)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.config.classes,)

    def targets(self, pixels: Tensor, labels: Tensor, keys: Keys) -> Tensor:
        return labels

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        if not self.binary:
            return super().loss(logits, targets)
        present = F.one_hot(targets, self.config.classes) if targets.ndim == 1 else targets > 0
        smoothing = self.config.label_smoothing
        wanted = present.to(logits.dtype) * (1 - smoothing) + smoothing / self.config.classes
        return F.binary_cross_entropy_with_logits(logits, wanted)

    def verdict(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        return F.cross_entropy(answers, targets).item(), answers.argmax(dim=1) == targets


class MaskedPatch(Objective):
    """The 3-bit mean colour of each patch of a corrupted half (arXiv 2010.11929, section B.1.2).

    512 classes of RGB, 8 of grey: the range of the data's bytes is cut into 8 shades a channel. Accuracies and losses
    of such a trial are those of the colours of corrupted patches; which ones, and how, is a function of (seed, epoch,
    image), and at evaluations of (seed, image).
    """

    numerics = 1
    keyed = True
    labels = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.levels = describe(config.data).levels

    @classmethod
    def check(cls, config: Config) -> None:
        """Mixed images have no colours of their own."""
        impossible = {
            f"model={config.model}: objective=masked-patch is of this package's ViT": bool(config.model),
            f"head={config.head}: objective=masked-patch predicts by one layer: linear": config.head != "linear",
            f"mixup={config.mixup}: with objective=masked-patch 0": config.mixup,
            f"cutmix={config.cutmix}: with objective=masked-patch 0": config.cutmix,
            f"patch={config.patch}: objective=masked-patch needs at least two patches": math.prod(config.grid) < 2,
        }
        for why in (why for why, true in impossible.items() if true):
            raise ConfigError(why)

    @classmethod
    def model(cls, config: Config) -> ViT:
        return MaskedViT(config)

    @property
    def shape(self) -> tuple[int, ...]:
        return math.prod(self.config.grid) // 2, SHADES**self.config.channels

    def targets(self, pixels: Tensor, labels: Tensor, keys: Keys) -> Tensor:
        """(B, M)"""
        assert keys is not None
        colours = mean_colours(pixels, self.config.patch, self.levels)  # (B, N)
        return colours.gather(1, corrupted(keys, colours.shape[1]))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return super().loss(logits.flatten(0, 1), targets.flatten())

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Of each patch its cross-entropy and whether it is right (B, M, 2): the logits of all images are too many."""
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        return torch.stack([losses, (logits.argmax(dim=2) == targets).to(losses.dtype)], dim=2)

    def verdict(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        losses, right = answers.unbind(dim=2)
        return losses.mean().item(), right.mean(dim=1)


OBJECTIVE: dict[str, type[Objective]] = {"classification": Classification, "masked-patch": MaskedPatch}
