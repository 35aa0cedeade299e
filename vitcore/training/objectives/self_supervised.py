"""What objectives without labels share: their checks, and a teacher that is the moving average of the student."""

from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from commonfloor.options import ConfigError
from vitcore.model.vit import ViT
from vitcore.settings import Settings
from vitcore.training.algorithms import AveragedTeacher
from vitcore.training.objectives.classification import Objective
from vitcore.training.optimizers import OPTIMIZER, Optimizer


class SelfSupervised(Objective):
    """Base class of objectives without labels, whose model replaces the head. Random choices depend on images' keys.

    In training, a choice is a function of (seed, epoch, image). In evaluations, it is a function of (seed, image).
    """

    keyed = True
    labels = False
    without: ClassVar[tuple[str, ...]] = ("mixup", "cutmix")  # settings that must be 0

    @classmethod
    def check(cls, config: Settings) -> None:
        objective = f"objective={config.objective}"
        if config.model:
            raise ConfigError(f"model={config.model}: {objective} works only with this package's ViT")
        if config.head != "linear":
            raise ConfigError(f"head={config.head}: {objective} needs head=linear")
        for name in cls.without:
            value = getattr(config, name)
            if value:
                raise ConfigError(f"{name}={value}: must be 0 with {objective}")

    def remembered(self, targets: Tensor) -> Tensor:
        """Return nothing of use, because `answers` holds all that `scores` reads."""
        return targets.new_empty(len(targets))


class SelfTaught(SelfSupervised):
    """Base class of objectives with a teacher, the moving average of the student, which is evaluated and saved.

    Gradients reach only the student. After a step, the average becomes m times itself plus 1 - m times the student. m
    rises from `momentum` at the first step toward 1.
    """

    without = (*SelfSupervised.without, "label_smoothing", "ema")

    class Options(SelfSupervised.Options):
        """The options of the teacher."""

        momentum: Annotated[float, Field(ge=0, le=1)] = 0.996  #: Share of itself that the teacher keeps, at first.

    options: Options

    @classmethod
    def check(cls, config: Settings) -> None:
        super().check(config)
        if OPTIMIZER[config.optimizer].average.__func__ is not Optimizer.average.__func__:  # type: ignore[attr-defined]
            raise ConfigError(
                f"optimizer={config.optimizer}: averages the weights, as objective={config.objective} does"
            )

    def average(self, model: nn.Module) -> AveragedTeacher:
        assert isinstance(model, Student)
        model.teach = None  # the teacher needs none
        average = AveragedTeacher(model, self.rate)
        assert isinstance(average.teacher, Student)
        model.teach = average.teacher.lesson
        return average

    def rate(self, steps: int) -> float:
        """Return 1 - m after `steps` steps."""
        return (1 - self.options.momentum) * self.share((steps - 1) / self.config.steps)

    def share(self, done: float) -> float:
        """Return 1 - m as a fraction of its first value. done: elapsed fraction of the training, in [0, 1)."""
        raise NotImplementedError


class Student(ViT):
    """A ViT with a teacher of the same architecture. Without a teacher, it teaches itself, as in evaluations.

    teach: the teacher's `lesson`, or None. It is a function, because the student's parameters leave out the teacher's.
    """

    teach: Callable[[Tensor], Tensor] | None = None

    def lesson(self, images: Tensor) -> Tensor:
        """Return what a student learns from this model's view of images (B, C, H, W)."""
        raise NotImplementedError

    @torch.no_grad()
    def taught(self, images: Tensor) -> Tensor:
        return (self.teach or self.lesson)(images)
