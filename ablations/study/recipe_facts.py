"""Facts that a recipe states, each with its source: expected results, training times, standard deviations."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from results.store.schemas import LaterDifference
from vitcore.options import Options

if TYPE_CHECKING:
    from vitcore.data.datasets import About

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Difference = Annotated[float, Field(gt=-1, lt=1)]


class Figure(Options):
    """A number that a recipe states, with its origin."""

    how: Literal["measured", "derived", "cited"]  #: Measured with this recipe, derived from another number, or cited.
    source: str  #: The command, the other number, or the cited publication.

    @property
    def origin(self) -> str:
        return f"{self.how}: {self.source}"


class Expected(Figure):
    """An expected result: the mean of a metric, measured with the recipe, derived or cited."""

    settings: dict[str, Any] = {}  #: The settings of the command line that it holds for, such as `epochs: 300`.
    metric: str = "test_accuracy"  #: The metric's name.
    mean: float  #: The metric's mean over seeds.
    n: Count | None = None  #: Number of seeds.


class Took(Figure):
    """The training seconds of one trial of the recipe's config on a named device."""

    device: str  #: The processor or GPU.
    seconds: Positive  #: Training seconds of a trial.


class Packed(Options):
    """The facts about the recipe's packed data that a plan needs before the pack is made."""

    train: Count  #: Number of training images.
    test: Count  #: Number of test images.
    classes: Count  #: Number of classes.
    image_size: Count = 224  #: Pixels per side of the square images in training and evaluation.
    channels: Literal[1, 3] = 3  #: 1 for gray images, 3 for RGB.

    def about(self, name: str) -> "About":
        from vitcore.data.datasets import About  # late: numpy

        return About(self.image_size, self.channels, self.classes, self.train, self.test, {"pack": name, "sha256": ""})


class Spread(Figure):
    """The standard deviation of per-seed differences between arms, with its degrees of freedom."""

    metric: str = "test_accuracy"  #: The metric's name.
    sd: Positive  #: The standard deviation.
    freedom: Count  #: Degrees of freedom of the estimate.


class AtTwiceTheSteps(Figure):
    """Differences of test accuracy from the recipe's config after twice its steps, as fractions.

    An arm whose difference changes sign after twice the steps learns faster, not better.
    """

    n: Count | None = None  #: Number of seeds per arm.
    differences: dict[str, Difference]  #: Arm name in tables -> difference from the recipe's config.
    resolved: list[str] = []  #: The arms whose difference is resolved after twice the steps.

    def of(self, arm: str) -> LaterDifference | None:
        if arm not in self.differences:
            return None
        origin = self.origin + (f", n = {self.n}" if self.n else "")
        return LaterDifference(difference=self.differences[arm], origin=origin, resolved=arm in self.resolved)


Costs = dict[Literal["cpu", "gpu"], Took]
