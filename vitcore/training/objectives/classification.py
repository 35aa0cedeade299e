"""The interface of an objective, and the prediction of the class, with or without a teacher or a distillation token."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from commonfloor.options import ConfigError
from vitcore.keyed_random import Indices, RngKeys, image_keys
from vitcore.model.head import HEAD
from vitcore.model.initialization import Initial, initialize, normal
from vitcore.model.pooling import POOLING, Pooling
from vitcore.model.vit import ViT
from vitcore.settings import Settings
from vitcore.training.algorithms import Average
from vitcore.variant import Variant

NO_EPOCH = 2**32 - 1  # the epoch of an evaluation's random keys, which no training run reaches


class Objective(Variant):
    """Base class of objectives, which choose the model to train, its targets, the loss and the accuracy."""

    slot = "objective"
    keyed: ClassVar[bool] = False  # whether model and targets need the images' random keys, even in evaluations
    labels: ClassVar[bool] = True  # whether each image is simply right or wrong, so that arms can be paired by image
    compares: ClassVar[bool] = False  # whether the loss compares the images of a batch, which then stays undivided
    predicted: ClassVar[str] = ""  # what its metrics are of, such as "masked pixels"; "" for the images' classes

    def __init__(self, config: Settings) -> None:
        self.config = config
        self.options = config.options_of(self.slot, self.Options)
        self.views = 1  # copies of an image, each augmented anew; from 2, images are (B, views, C, H, W) in training

    @classmethod
    def model(cls, config: Settings) -> ViT:
        """Return the model to train. It maps images (B, C, H, W) and their random keys (B,) to outputs.

        Outputs are logits (B, ...), or a tuple of tensors (B, ...) of all that the loss needs. In evaluation, the
        outputs of a model that predicts classes are logits (B, classes).
        """
        raise NotImplementedError

    @classmethod
    def has_own_model(cls) -> bool:
        """Return whether the objective chooses another model than classification does."""
        return next(base for base in cls.__mro__ if "model" in vars(base)) is not Classification

    def average(self, model: nn.Module) -> Average | None:
        """Return the averaged weights to evaluate and save, or None for the weights of the model or the optimizer."""
        return Average(model, self.config.ema) if self.config.ema else None

    def start_step(self, model: nn.Module, step: int) -> None:
        """Set the model's buffers that follow a schedule, in place, before step `step`, counted from 0."""

    def start_batch(self, model: nn.Module) -> None:
        """Prepare the model's buffers for the micro-batches of a step, which may be tried again in smaller ones."""

    def finish_step(self, model: nn.Module, mean: Callable[[Tensor], Tensor]) -> None:
        """Update the model's buffers in place after a step. mean: returns the mean of a tensor over the ranks."""

    def keys(self, index: Indices) -> RngKeys:
        """Return the random keys (n,) of images in evaluations, on the CPU, or None. index (n,): in the dataset."""
        if not self.keyed:
            return None
        return image_keys(self.config.seed, np.full(len(index), NO_EPOCH), index)

    def targets(self, pixels: Tensor, labels: Tensor, rng_keys: RngKeys) -> Tensor:
        """Return the targets of a batch.

        pixels (B, C, H, W): uint8 images before standardization. labels: (B,). rng_keys: random keys (B,), or None.
        """
        raise NotImplementedError

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch, by default cross-entropy. outputs: the model's, in training mode."""
        return F.cross_entropy(outputs, targets, label_smoothing=self.config.label_smoothing)

    def answers(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return what `scores` needs of the model's outputs in evaluation mode, with one row for each image."""
        assert isinstance(outputs, Tensor)
        return outputs

    def remembered(self, targets: Tensor) -> Tensor:
        """Return what `scores` needs of a batch's targets (B, ...), with one row for each image."""
        return targets

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        """Return (mean loss, correctness (n,) of each image) from the results of `answers` and `remembered`."""
        raise NotImplementedError


class Classification(Objective):
    """Classification of images, by default with cross-entropy (arXiv 2010.11929, section 3.1)."""

    numerics = 1

    class Options(Objective.Options):
        """The losses of training and distillation. `val_loss` and `test_loss` are always cross-entropy."""

        #: Binary cross-entropy treats each class separately. All classes in a mixed image are positive
        #: (DeiT III: arXiv 2204.07118, section 3; `targets.gt(0)` in facebookresearch/deit).
        loss: Literal["cross-entropy", "binary-cross-entropy"] = "cross-entropy"
        #: Target from the `teacher`: its most probable class or its probabilities (arXiv 2012.12877, section 4).
        distillation: Literal["hard", "soft"] = "hard"
        alpha: Annotated[float, Field(ge=0, le=1)] = 0.5  #: Weight of the teacher in the loss.
        #: Temperature of soft distillation. arXiv 2012.12877 uses 3, with alpha 0.1.
        tau: Annotated[float, Field(gt=0)] = 1.0
        #: Whether a distillation token with a separate head learns from the teacher. Evaluations average both heads.
        #: Without a teacher, the token learns the labels, like the second class token in arXiv 2012.12877.
        token: bool = False

    options: Options

    @classmethod
    def check(cls, config: Settings) -> None:
        if not config.options_of(cls.slot, cls.Options).token:
            return
        if cls.has_own_model():
            raise ConfigError(f"objective.token=True: objective={config.objective} has its own model: must be False")
        if config.model:
            raise ConfigError(f"objective.token=True: model={config.model} has no such token: must be False")
        if POOLING[config.pool].gather is not Pooling.gather:
            raise ConfigError(
                f"objective.token=True: pool={config.pool} reads only every layer's class token: must be False"
            )

    @classmethod
    def model(cls, config: Settings) -> ViT:
        return DistilledViT(config) if config.options_of(cls.slot, cls.Options).token else ViT(config)

    def targets(self, pixels: Tensor, labels: Tensor, rng_keys: RngKeys) -> Tensor:
        return labels

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of logits (B, classes), or (B, 2, classes) for two heads. alpha weights the second head."""
        if logits.ndim == 2:
            return self.label_loss(logits, targets)
        first, second = logits.unbind(1)
        alpha = self.options.alpha
        return self.label_loss(first, targets) * (1 - alpha) + self.label_loss(second, targets) * alpha

    def distilled_loss(self, logits: Tensor, targets: Tensor, teacher: Tensor) -> Tensor:
        """Return the weighted sum of the label loss and the distillation loss.

        logits: as for `loss`. teacher: the teacher's logits (B, classes), from which the second of two heads learns.
        Hard distillation is cross-entropy with the teacher's most probable class (arXiv 2012.12877, equation 3). Soft
        distillation is tau^2 KL(teacher | student) at temperature tau (equation 2). The direction of KL follows arXiv
        1503.02531 and facebookresearch/deit, which also divides by the number of classes.
        """
        label_logits = student_logits = logits
        if logits.ndim == 3:
            label_logits, student_logits = logits.unbind(1)
        if self.options.distillation == "hard":
            distillation = F.cross_entropy(student_logits, teacher.argmax(dim=1))
        else:
            tau = self.options.tau
            student = F.log_softmax(student_logits / tau, dim=1)
            wanted = F.log_softmax(teacher / tau, dim=1)
            distillation = F.kl_div(student, wanted, reduction="batchmean", log_target=True) * tau**2
        alpha = self.options.alpha
        return self.label_loss(label_logits, targets) * (1 - alpha) + distillation * alpha

    def label_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.options.loss == "cross-entropy":
            return super().loss(logits, targets)
        present = F.one_hot(targets, self.config.classes) if targets.ndim == 1 else targets > 0
        smoothing = self.config.label_smoothing
        wanted = present.to(logits.dtype) * (1 - smoothing) + smoothing / self.config.classes
        return F.binary_cross_entropy_with_logits(logits, wanted)

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        return F.cross_entropy(answers, targets).item(), answers.argmax(dim=1) == targets


class DistilledViT(ViT):
    """A ViT with a distillation token, which precedes the patches and has a head of its own.

    As in DeiT, it returns the logits (B, 2, classes) of both heads in training, and their mean (B, classes) in
    evaluation. The token has no position embedding, because only its sum with the embedding matters in DeiT.
    """

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.prefix += 1
        self.objective = DistillationToken(config)
        self.head.add_module("distillation", HEAD[config.head](config))  # so that its names begin with `head.`
        initialize(self, config.seed, config.init, config.width)

    def prefix_tokens(self) -> list[Tensor]:
        return [*super().prefix_tokens(), self.objective.token]

    def forward(self, images: Tensor, rng_keys: RngKeys = None) -> Tensor:
        pooled, distilled = self.vectors(images, rng_keys)
        second_head = self.head.get_submodule("distillation")
        logits = torch.stack([self.head(pooled), second_head(distilled)], dim=1)  # (B, 2, classes)
        return logits if self.training else logits.mean(dim=1)

    def pooled(self, images: Tensor, rng_keys: RngKeys = None) -> Tensor:
        return self.vectors(images, rng_keys)[0]

    def vectors(self, images: Tensor, rng_keys: RngKeys = None) -> tuple[Tensor, Tensor]:
        """Return (pooled vector, state of the distillation token), each (B, D): the inputs of the two heads."""
        *_, x = self.states(images, rng_keys)  # (B, T, D)
        return self.pool_states([x]), self.encoder.norm(x[:, self.prefix - 1])


class DistillationToken(Initial):
    """The learned distillation token, drawn from N(0, 0.02^2) as in DeiT, whereas the class token starts at zero."""

    draws = {"token": normal(0.02)}

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.empty(1, 1, config.width))
