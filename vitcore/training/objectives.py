"""Training objectives: predict the label, or masked patches. A new one is a class and a line of OBJECTIVE.

Shapes: B images, C channels, P patch, N patches, M of them corrupted or masked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from vitcore.data.lookup import describe
from vitcore.keyed_random import Keys, image_keys
from vitcore.model.distilled import DistilledViT
from vitcore.model.dropout import check_patches_may_leave
from vitcore.model.stem import STEM
from vitcore.model.vit import ViT
from vitcore.options import ConfigError, Settings, listed
from vitcore.training.masked_autoencoder import (
    MaskedAutoencoder,
    MaskingOptions,
    check_decoder,
    normalized_patches,
    split,
)
from vitcore.training.masked_patches import SHADES, MaskedViT, corrupted, mean_colours, of_places
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
        """Reduce a batch's logits (B, ...) to what `scores` needs of them."""
        return logits

    def remembered(self, targets: Tensor) -> Tensor:
        """Return what an evaluation keeps of the targets (B, ...) of some images."""
        return targets

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
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
        #: Of a `teacher`: the class that it gives, or its probabilities (arXiv 2012.12877, section 4).
        distillation: Literal["hard", "soft"] = "hard"
        alpha: Annotated[float, Field(ge=0, le=1)] = 0.5  #: Share of the teacher in the loss.
        tau: Annotated[float, Field(gt=0)] = 1.0  #: Temperature of soft distillation. The paper's is 3, with alpha 0.1.
        #: Whether a token of its own, with a head of its own, learns from the teacher. Evaluations average both heads.
        #: Without a teacher it learns the labels: the paper's two class tokens.
        token: bool = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.options = config.options_of(self.slot, self.Options)

    @classmethod
    def model(cls, config: Config) -> ViT:
        return DistilledViT(config) if config.options_of(cls.slot, cls.Options).token else ViT(config)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.config.classes,)

    def targets(self, pixels: Tensor, labels: Tensor, keys: Keys) -> Tensor:
        return labels

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of logits (B, classes), or the weighted loss of two heads (B, 2, classes)."""
        if logits.ndim == 2:
            return self.label_loss(logits, targets)
        own, other = (self.label_loss(some, targets) for some in logits.unbind(1))
        return own * (1 - self.options.alpha) + other * self.options.alpha

    def distilled_loss(self, logits: Tensor, targets: Tensor, teacher: Tensor) -> Tensor:
        """Return the weighted sum of the loss on the labels and that on the teacher's logits (B, classes).

        With two heads, the second learns from the teacher.
        """
        own, other = (logits, logits) if logits.ndim == 2 else logits.unbind(1)
        options = self.options
        taught = distillation_loss(other, teacher, options.distillation == "soft", options.tau)
        return self.label_loss(own, targets) * (1 - options.alpha) + taught * options.alpha

    def label_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss on the labels (B,), or on their shares (B, classes) in mixed images."""
        if self.options.loss == "cross-entropy":
            return super().loss(logits, targets)
        present = F.one_hot(targets, self.config.classes) if targets.ndim == 1 else targets > 0
        smoothing = self.config.label_smoothing
        wanted = present.to(logits.dtype) * (1 - smoothing) + smoothing / self.config.classes
        return F.binary_cross_entropy_with_logits(logits, wanted)

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        return F.cross_entropy(answers, targets).item(), answers.argmax(dim=1) == targets


def distillation_loss(logits: Tensor, teacher: Tensor, soft: bool, tau: float) -> Tensor:
    """Return the mean loss of a student's logits (B, classes) against its teacher's.

    Hard: cross-entropy with the class that the teacher gives (arXiv 2012.12877, equation 3). Soft: tau^2 KL(teacher |
    student) at temperature tau (equation 2, in the direction of arXiv 1503.02531 and facebookresearch/deit, which also
    divides by the classes).
    """
    if not soft:
        return F.cross_entropy(logits, teacher.argmax(dim=1))
    student, wanted = (F.log_softmax(some / tau, dim=1) for some in (logits, teacher))
    return F.kl_div(student, wanted, reduction="batchmean", log_target=True) * tau**2


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

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        losses, right = answers.unbind(dim=2)
        return losses.mean().item(), right.mean(dim=1)


class MAE(Objective):
    """Predicts the pixels of masked patches from a quarter of the image (arXiv 2111.06377, section 3).

    The loss is the mean squared error of pixels that are normalized within their patch. Which patches are masked is a
    function of (seed, epoch, image), and in evaluations of (seed, image). Accuracies of such a trial are the share of
    an image's masked variance that is explained, at least 0.
    """

    numerics = 1
    keyed = True
    labels = False
    Options = MaskingOptions

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.levels = describe(config.data).levels
        self.options = config.options_of(self.slot, self.Options)

    @classmethod
    def canonical(cls, config: Config) -> Settings:
        """Return as 0 the sizes of the decoder that are the default ones."""
        usual, own = cls.Options().decoder(config), config.options_of(cls.slot, cls.Options).decoder(config)
        return {f"decoder_{name}": 0 for name, size in own.items() if size == usual[name]}

    @classmethod
    def check(cls, config: Config) -> None:
        """Raise ConfigError for settings that show masked patches, or under which a patch has no variance."""
        local = [name for name, stem in STEM.items() if stem.local]
        alone, single = config.stem in local, config.channels * config.patch**2 == 1
        impossible = {
            f"model={config.model}: objective=mae is of this package's ViT": bool(config.model),
            f"stem={config.stem}: objective=mae needs patches that see no other: {listed(local)}": not alone,
            f"head={config.head}: objective=mae predicts by one layer: linear": config.head != "linear",
            f"mixup={config.mixup}: with objective=mae 0": config.mixup,
            f"cutmix={config.cutmix}: with objective=mae 0": config.cutmix,
            f"label_smoothing={config.label_smoothing}: objective=mae has no classes: 0": config.label_smoothing,
            f"patch_dropout={config.patch_dropout}: objective=mae leaves patches out itself: 0": config.patch_dropout,
            f"patch={config.patch}: objective=mae needs at least two patches": math.prod(config.grid) < 2,
            f"patch={config.patch}: objective=mae needs at least two values a patch": single,
        }
        for why in (why for why, true in impossible.items() if true):
            raise ConfigError(why)
        check_patches_may_leave(config, "objective=mae")
        check_decoder(config)

    @classmethod
    def model(cls, config: Config) -> ViT:
        return MaskedAutoencoder(config)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.options.hidden(math.prod(self.config.grid)), self.config.channels * self.config.patch**2

    def targets(self, pixels: Tensor, labels: Tensor, keys: Keys) -> Tensor:
        """Return the normalized pixels of the masked patches (B, M, C P P)."""
        assert keys is not None
        values = normalized_patches(pixels, self.config.patch, self.levels)
        return of_places(values, split(keys, values.shape[1], self.options)[1])

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(logits, targets)

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return each image's squared error and that of predicting nothing (B, 2): all its pixels are too many."""
        return torch.stack([(logits - targets).square().mean(dim=(1, 2)), targets.square().mean(dim=(1, 2))], dim=1)

    def remembered(self, targets: Tensor) -> Tensor:
        return targets.new_empty(len(targets))

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        errors, variances = answers.unbind(dim=1)
        return errors.mean().item(), (1 - errors / variances.clamp(min=1e-12)).clamp(min=0)


OBJECTIVE: dict[str, type[Objective]] = {"classification": Classification, "masked-patch": MaskedPatch, "mae": MAE}
