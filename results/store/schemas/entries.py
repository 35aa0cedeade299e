"""The arms and stages of a plan, with their trials and data."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, FiniteFloat

from results.store.schemas.base import Count, Flops, Schema, Seconds, Seed, Settings, TrialId


class PlannedTrial(Schema):
    seed: Seed
    id: TrialId
    train_seconds: Seconds | None = None  # set when results are loaded, for trials of stages only


class LaterDifference(Schema):
    """The difference of an arm from the baseline after twice the steps, as the recipe states it."""

    difference: FiniteFloat
    origin: str
    resolved: bool = False


class Split(Schema):
    """The test images. kind: "official" (the same in all trials) or "folds" (a fold per seed). images: their number."""

    kind: str
    folds: Annotated[int, Field(gt=0)] | None = None
    images: Annotated[int, Field(gt=0)]

    @property
    def images_per_test(self) -> float:
        return self.images / (self.folds or 1)


class PlannedData(Schema):
    """The data set of a study's baseline."""

    name: str
    train: Count
    test: Count
    folds: Count | None
    classes: Count
    image_size: Count
    channels: Count
    of_recipe: bool  #: Whether the recipe describes this data set.


class Entry(Schema):
    """An arm or a stage of a plan: a config and its trials."""

    name: Annotated[str, Field(min_length=1)]  #: The name in tables.
    stage: str = ""  #: Name of the stage in the study file, or "" for an arm.
    baseline: str = ""  #: Name of the arm that this arm is compared with.
    change: str = ""  #: Name without the values of the curves.
    values: Settings = {}  #: Factor or curve -> value.
    declared: Settings | list[str] | None = None  #: Other settings that the study declares as changed.
    model_family: str = ""  #: Family to which a figure over compute assigns the arm.
    parent: str = ""  #: Name of the stage that the trials start or learn from.
    key: str = ""  #: Hash of the config without seeds, which all trials share.
    config: Settings  #: Resolved config without the seed.
    published: FiniteFloat | None = None  #: Published value of the metric.
    at_twice_the_steps: LaterDifference | None = None  #: Difference after twice the steps, as the recipe states it.
    departures: Settings = {}  #: Settings whose values differ from the recipe's.
    evals: list[str] | None = None  #: Evals that the trials need; None for the plan's evals.
    params: Count | None = None  #: Trainable parameters.
    flops: Count | None = None  #: FLOPs of one image through the model.
    tokens: Count | None = None  #: Number of tokens per image.
    class_token: bool | None = None  #: Whether there is a class token.
    attention_bias: bool | None = None  #: Whether a position embedding adds a bias to attention logits.
    train_flops: Flops | None = None  #: FLOPs of one training run.
    chance: Annotated[FiniteFloat, Field(gt=0, lt=1)] | None = None  #: The accuracy of a guess, if that is known.
    notes: list[str] = []  #: Footnotes on further differences from the baseline.
    notes_about: dict[str, str] = {}  #: Footnote -> the measure that it concerns.
    trials: list[PlannedTrial]  #: Seed and id of each trial.
    data: PlannedData | None = None  #: The data set, where arms have different ones.
    split: Split | None = None  #: How its test images are chosen, where arms have different data sets.

    @property
    def ids(self) -> dict[int, str]:
        return {trial.seed: trial.id for trial in self.trials}

    @property
    def steps(self) -> int | None:
        steps = self.config.get("steps")
        return steps if isinstance(steps, int) else None


class Stage(Entry):
    stage: str


class Arm(Entry):
    baseline: str  #: Name of the arm that this arm is compared with.
    values: Settings  #: Factor or curve -> value.

    def assignments(self, names: Iterable[str], without: str = "") -> list[str]:
        """Return "name=value" for those of the named settings that the arm sets, except `without`."""
        return [f"{name}={self.values[name]}" for name in names if name != without and name in self.values]
