"""Training objectives: predict the label, or masked patches. One class and one line of OBJECTIVE each.

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
        """Return random keys (n,) for an evaluation, the same each time; None if the objective draws nothing."""
        return image_keys(self.config.seed, np.full(len(index), NO_EPOCH), index) if self.keyed else None

    def targets(self, pixels: Tensor, labels: Tensor, keys: Keys) -> Tensor:
        """Return the targets of images, given as the bytes (B, C, H, W) that the model sees, and labels (B,)."""
        raise NotImplementedError

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over the images."""
        return F.cross_entropy(logits, targets, label_smoothing=self.config.label_smoothing)

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Reduce a batch's logits (B, ...) to what `verdict` needs of them."""
        return logits

    def verdict(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        """Return the mean cross-entropy and each image's correctness (n,), from all answers and targets."""
        raise NotImplementedError


class Classification(Objective):
    """Predicts the class of the image by cross-entropy (arXiv 2010.11929, section 3.1)."""

    numerics = 1

    class Options(Objective.Options):
        """The training loss. Metrics always use cross-entropy."""

        #: Binary cross-entropy treats each class separately; all classes in a mixed image are positive
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
    """Predicts the 3-bit mean colour of corrupted patches, half of all (arXiv 2010.11929, section B.1.2).

    Each channel has 8 shades, so RGB has 512 classes and grayscale 8. Accuracy and loss are those of the corrupted
    patches. Which patches are corrupted, and how, is a function of (seed, epoch, image); in evaluations of (seed,
    image).
    """

    numerics = 1
    keyed = True
    labels = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.levels = describe(config.data).levels

    @classmethod
    def check(cls, config: Config) -> None:
        """Raise ConfigError for settings that this objective does not support, such as mixup."""
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
        """Return the colour classes of the corrupted patches (B, M)."""
        assert keys is not None
        colours = mean_colours(pixels, self.config.patch, self.levels)  # (B, N)
        return colours.gather(1, corrupted(keys, colours.shape[1]))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return super().loss(logits.flatten(0, 1), targets.flatten())

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return cross-entropy and correctness of each patch (B, M, 2), which take less memory than the logits."""
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        return torch.stack([losses, (logits.argmax(dim=2) == targets).to(losses.dtype)], dim=2)

    def verdict(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        losses, right = answers.unbind(dim=2)
        return losses.mean().item(), right.mean(dim=1)


OBJECTIVE: dict[str, type[Objective]] = {"classification": Classification, "masked-patch": MaskedPatch}
