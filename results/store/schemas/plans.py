"""The plan of a study: its arms and stages, with their trials and data."""

from collections.abc import Collection, Iterable, Iterator
from typing import Annotated

from pydantic import Field, FiniteFloat, model_validator

from results.store.schemas.base import Axes, Count, Flops, Schema, Seconds, Seed, Settings, Sha256, TrialId
from results.store.schemas.declarations import Declaration, Paired
from results.store.schemas.metrics import BEFORE_0_25, PER_IMAGE, Margin, Metric, metric_by_name
from results.store.schemas.seals import Seal
from results.store.schemas.stated import Expected, StatedCost, StatedSpread


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
        """Return "name=value" for each named setting that the arm sets, except `without`."""
        return [f"{name}={self.values[name]}" for name in names if name != without and name in self.values]


class Tuned(Schema):
    """An arm at its tuned values. points: names of the arms on the grid from which the values are chosen."""

    name: str
    baseline: str
    change: str
    values: Settings
    points: Annotated[list[str], Field(min_length=1)]
    published: FiniteFloat | None = None


class Interaction(Schema):
    name: str
    ab: str
    a: str
    b: str
    baseline: str

    @property
    def arms(self) -> list[str]:
        return [self.ab, self.a, self.b, self.baseline]


class Asked(Schema):
    """The arguments of the command that made a plan, except overrides and seeds, which the plan has."""

    study: str
    recipe: str
    plugins: list[str] = []
    data_dir: str | None = None
    margin: Margin | None = None


class Plan(Schema):
    """The content of studies/<name>/plan.json: the arms and trials of a study."""

    name: Annotated[str, Field(min_length=1)]  #: Study, recipe and, with overrides, their hash: `study@recipe+hash`.
    study: Annotated[str, Field(min_length=1)]  #: Name of the study.
    recipe: str  #: Name of the recipe.
    trainable: str = ""  #: What its trials train, as module:attribute. Empty: Vision Transformers.
    #: How seeds of arms belong together, as a recipe of training code declares it. Without, by seed.
    paired: Paired = None
    overrides: Settings  #: Settings given on the last command line.
    probe: Settings = {}  #: Settings that make a trial of the user's code short, by which arms are tried first.
    inert: list[str] = []  #: Settings without effect in such a short trial.
    question: str  #: The question that the study answers.
    source: str  #: Publication from which the question comes.
    published_of: str = ""  #: Publication of the published numbers.
    found: str = ""  #: The source's answer to the question.
    description: str  #: Description of the data, the baseline's model and its training.
    data: PlannedData | None = None  #: The data set when the plan was made.
    departures: Settings = {}  #: Settings whose values differ from the recipe's in the baseline.
    metric: str  #: Name of the metric that is compared.
    secondary_metrics: list[str] = []  #: Metrics that are tested where the difference in the first is resolved.
    metrics: list[Metric] = []  #: Metrics that trials and their evals measure. Plans before 0.25 have none.
    selection_metric: str = "val_accuracy"  #: Name of the metric of validation, by which tuned values are chosen.
    evals: list[str] = []  #: Evals that trials need unless their entry lists its own.
    #: Largest difference that counts as equivalent: in the metric's unit, or a share of the baseline's error ("25%").
    margin: Margin | None
    claims: list[str]  #: Claims in the publication that compare two arms.
    caveats: list[str]  #: Caveats for the reader.
    notes: list[str] = []  #: Footnotes on the whole study.
    cost: StatedCost | None = None  #: Training time of a trial, as the recipe states it.
    expected: list[Expected] = []  #: Expected metrics, as the recipe states them.
    spread: StatedSpread | None = None  #: Standard deviation of differences over seeds, as the recipe states it.
    figure: str  #: The kind of figure.
    factors: Axes  #: Factor -> values.
    crosses: list[Axes] = []  #: Groups of factors that are combined in all ways.
    curves: Axes  #: Setting -> values at which every arm is trained.
    tune: Axes = {}  #: Setting -> values among which each arm is tuned.
    budget: str = "steps"  #: Training budget that all arms share: `steps`, `epochs` or `flops`.
    baseline: str  #: The arm that the others are compared with.
    split: Split | None = None  #: How the test images are chosen, if there are test images.
    seeds: list[Seed]  #: Seeds with which every arm is trained.
    grows: bool = False  #: Whether the study declares that seeds may be added after a table.
    race: bool = False  #: Whether arms stop taking seeds once they can hardly become better.
    looks: list[Count] = []  #: Numbers of seeds that the plan has had, in plans of 0.23.
    stages: list[Stage] = []  #: Stages that arms start or learn from, parents first.
    arms: Annotated[list[Arm], Field(min_length=1)]  #: Arms in the order of the table.
    family: Count  #: Number of contrasts that Holm's method corrects together.
    tuned: list[Tuned] = []  #: Arms at their tuned values.
    points_family: Count = 0  #: Number of contrasts between arms at equal values on the tuning grid.
    interactions: list[Interaction] = []  #: Interactions between crossed factors.
    pruned: str | None = None  #: Time at which arms or seeds were last pruned.
    made_from: str = ""  #: Digest of all inputs from which the plan was made.
    asked: Asked | None = None  #: Command-line arguments with which the plan can be made again.
    checksum: Sha256 | None = None  #: SHA-256 of the rest of the file.
    extends: str = Field(default="", exclude=True)  # digest of the plan that this plan replaces
    declarations: list[Declaration] = Field(default=[], exclude=True)  # of these trials, by time, set at loading
    seals: list[Seal] = Field(default=[], exclude=True)  # that share trials with it, by time, set at loading

    @property
    def arm_trials(self) -> frozenset[str]:
        return frozenset(trial.id for arm in self.arms for trial in arm.trials)

    @property
    def arms_by_name(self) -> dict[str, Arm]:
        return {arm.name: arm for arm in self.arms}

    @property
    def baseline_arm(self) -> Arm:
        return self.arms_by_name[self.baseline]

    def change_of(self, arm: Arm) -> str:
        """Return an arm's name without the values of swept settings: "patch=8" for "patch=8,lr=0.001"."""
        point = ",".join(["", *arm.assignments(self.curves)])
        return arm.change or arm.name.removesuffix(point)

    def given_name_of(self, arm: Arm) -> str:
        """Return the name that the study gives an arm with several changes, or "" for an arm named by its factors."""
        change = self.change_of(arm)
        settings = {part.partition("=")[0] for part in change.split(",")}
        return change if settings - self.factors.keys() else ""

    @property
    def entries(self) -> list[Entry]:
        """The stages, parents first, and then the arms."""
        return [*self.stages, *self.arms]

    @property
    def objective(self) -> str:
        """The training objective that all arms share, or "" if the arms differ."""
        objectives = {arm.config.get("objective", "classification") for arm in self.arms}
        return str(objectives.pop()) if len(objectives) == 1 else ""

    @property
    def is_paired(self) -> bool:
        return self.paired != "no"

    @property
    def data_sets(self) -> list[str]:
        return [str(value) for value in self.curves.get("data", [])]

    @property
    def averages_family(self) -> int:
        """The planned number of average differences over data sets."""
        return self.family // max(1, len(self.data_sets))

    def split_of(self, arm: Entry) -> Split | None:
        return arm.split or self.split

    @property
    def primary_metric(self) -> Metric:
        return self.metric_named(self.metric)

    @property
    def compared_metrics(self) -> list[str]:
        return [self.metric, *self.secondary_metrics]

    @property
    def per_image_metric(self) -> str:
        """The name of the metric that is the mean of the answers per test image."""
        return next((metric.name for metric in self.metrics if metric.per_image), PER_IMAGE)

    @property
    def declared_metrics(self) -> list[Metric]:
        """The declared metrics. A plan before 0.25 declares none and has the metrics of its time."""
        return self.metrics or [metric_by_name(name, self.objective) for name in BEFORE_0_25]

    @property
    def trial_metrics(self) -> list[str]:
        return [metric.name for metric in self.declared_metrics if not metric.eval]

    def metric_named(self, name: str) -> Metric:
        """Return the metric of this name. An undeclared NAME@CONDITION is measured like NAME."""
        declared = {metric.name: metric for metric in self.metrics}
        base = name.partition("@")[0]
        if name in declared:
            return declared[name]
        if base in declared:
            return declared[base].model_copy(update={"name": name, "label": ""})
        return metric_by_name(name, self.objective)

    def chance_of(self, arm: Entry) -> float:
        """Return the accuracy of a guess in an arm, or 0 if it is unknown. Plans before 0.26 have only classes."""
        if arm.chance is not None:
            return arm.chance
        classes = arm.config.get("classes", self.data and self.data.classes)
        return 1 / classes if classes and self.objective == "classification" else 0.0

    def evals_of(self, entry: Entry) -> list[str]:
        return list(self.evals if entry.evals is None else entry.evals)

    def lineage(self, entry: Entry) -> Iterator[Stage]:
        """Yield the stages that an entry starts or learns from, nearest first."""
        stages = {stage.name: stage for stage in self.stages}
        while entry.parent in stages:
            entry = stages[entry.parent]
            yield entry

    def parents(self, entry: Entry, seed: int) -> dict[str, str]:
        """Return trial id -> stage name for the trials that this seed's trial starts or learns from, nearest first."""
        return {stage.ids[seed]: stage.name for stage in self.lineage(entry)}

    @property
    def trials_with_parents(self) -> dict[str, dict[str, str]]:
        """The parents of each trial that has any: trial id -> (parent's trial id -> stage name, nearest first)."""
        parents: dict[str, dict[str, str]] = {}
        for entry in self.entries:
            if entry.parent:
                parents |= {trial.id: self.parents(entry, trial.seed) for trial in entry.trials}
        return parents

    @model_validator(mode="before")
    @classmethod
    def drop_schema(cls, content: object) -> object:
        if isinstance(content, dict):
            return {key: content[key] for key in content if key != "schema"}
        return content

    @model_validator(mode="after")
    def check_names(self) -> "Plan":
        """Raise ValueError if a named entry is missing, or two share a name. A stage comes after its parent."""
        arms = self.arms_by_name
        earlier: set[str] = set()
        for entry in self.entries:
            if entry.parent and entry.parent not in earlier:
                raise ValueError(f"parent={entry.parent}: no such entry")
            if isinstance(entry, Stage):
                earlier.add(entry.name)
        for arm in self.arms:
            check_known("baseline", arm.baseline, arms)
        check_known("baseline", self.baseline, arms)
        for tuned in self.tuned:
            for point in tuned.points:
                check_known("tuned.points", point, arms)
        if len(arms) < len(self.arms) or len({stage.name for stage in self.stages}) < len(self.stages):
            raise ValueError("two entries of one name")
        return self


def check_known(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"{what}={name}: no such entry")
