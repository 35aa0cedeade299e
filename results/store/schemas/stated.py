"""What a recipe states: the time of a trial, expected results, and the spread of differences."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, FiniteFloat, model_validator

from results.store.schemas.base import Schema, Settings

Positive = Annotated[int, Field(ge=1)]


class Stated(Schema):
    """Base class of the numbers that a recipe states, with their origin. A recipe may have no other keys in them."""

    model_config = ConfigDict(extra="forbid")

    how: Literal["measured", "derived", "cited"]  #: Measured with this recipe, derived from another number, or cited.
    source: str  #: The command, the other number, or the cited publication.

    @property
    def origin(self) -> str:
        return f"{self.how}: {self.source}"

    @model_validator(mode="after")
    def write_defaults(self) -> "Stated":
        self.__pydantic_fields_set__.update(type(self).model_fields)  # so that plans have all fields
        return self


class Took(Stated):
    """The training seconds of one trial of the recipe's config on a named device."""

    device: str  #: The processor or GPU.
    seconds: Annotated[FiniteFloat, Field(gt=0)]  #: Training seconds of a trial.


class StatedCost(Schema):
    """The training time of a trial on a CPU and a GPU. work: training FLOPs of the trial per process."""

    work: FiniteFloat
    cpu: Took | None = None
    gpu: Took | None = None

    def time_on(self, gpu: bool) -> Took | None:
        return self.gpu if gpu else self.cpu


class Expected(Stated):
    """An expected result: the mean of a metric, measured with the recipe, derived or cited."""

    settings: Settings = {}  #: The command-line settings for which the result holds, such as `epochs: 300`.
    metric: str = "test_accuracy"  #: The metric's name.
    mean: FiniteFloat  #: The metric's mean over seeds.
    n: Positive | None = None  #: Number of seeds.


class StatedSpread(Stated):
    """The standard deviation of per-seed differences between arms, with its degrees of freedom."""

    metric: str = "test_accuracy"  #: The metric's name.
    sd: Annotated[FiniteFloat, Field(gt=0)]  #: The standard deviation.
    freedom: Positive  #: Degrees of freedom of the estimate.
