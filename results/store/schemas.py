"""Schemas of the JSON files of a run directory, checked when a file is read.

A file is broken if a required field is missing, or if a value has another type than its field. The error names the file
and the field. Unknown fields are accepted, because a later version may have written them.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from results.store.files import Broken

DEEPEST = 50  # maximum levels of nesting
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
TrialId = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
Number = Annotated[str, Field(pattern="^[0-9]{4,9}$")]  # name of an attempt's folder
Count = Annotated[int, Field(ge=0, lt=2**63)]
Flops = Annotated[int, Field(ge=0, lt=2**100)]  # of one training, which on ImageNet can exceed a Count
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Seconds = Annotated[FiniteFloat, Field(ge=0)]
Plain = str | bool | int | FiniteFloat | None  # the value of a setting, or an item of a list
Value = Plain | list[Plain | list[Plain]]
# vitcore.config gives each setting its own type. Reading a file only checks that values are plain.
Settings = Annotated[dict[str, Any], GetPydanticSchema(lambda _, of: of(dict[str, Value | dict[str, Value]]))]
Axes = Annotated[dict[str, list[Any]], GetPydanticSchema(lambda _, of: of(dict[str, list[Value]]))]

Fact = str | float | Mapping[str, str | int] | None  # a value in env.json
Facts = Mapping[str, Fact]


def check_accuracies(metrics: dict[str, float | None]) -> dict[str, float | None]:
    for name, value in metrics.items():
        if "accuracy" in name and value is not None and (value < 0 or value > 1):
            raise ValueError(f"{name}={value:g}: from 0 to 1")
    return metrics


Metrics = Annotated[dict[str, FiniteFloat | None], AfterValidator(check_accuracies)]


Kind = TypeVar("Kind", bound="Schema")


class Schema(BaseModel):
    """The content of a file, or a part of it. Types are exact: neither "1" nor true is the number 1."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", defer_build=True)

    def content(self, *without: str) -> dict[str, Any]:
        """Return field -> JSON value for the fields that were given, except those in `without`."""
        return self.model_dump(exclude_unset=True, exclude={*without})


class Result(Schema):
    """The content of trials/<id>/result.json: how a trial ended."""

    id: TrialId  #: Id of the trial.
    attempt: Number  #: Number of the attempt that published this result.
    status: Literal["finished", "diverged"]  #: Whether training ended normally or its loss became infinite or NaN.
    metrics: Metrics  #: Metrics by name.
    checksum: Sha256  #: SHA-256 of the rest of the file.
    weights_sha256: Sha256 | None = None  #: SHA-256 of the final weights, even if they were not kept.
    files: dict[str, Sha256] = {}  #: SHA-256 of config.json and the attempt's files, by name.
    params: Count | None = None  #: Trainable parameters.
    flops: Count | None = None  #: FLOPs of one image through the model.
    steps: Count | None = None  #: Optimizer steps taken.
    images: Count | None = None  #: Training images seen, with repetition.
    train_seconds: Seconds | None = None  #: Seconds of training, over all attempts.
    images_per_second: Seconds | None = None  #: Training images per second.
    diverged_at_step: Count | None = None  #: The step at which the trial diverged.
    #: The step at which the loss was NaN, but finite when recomputed: the device may be faulty.
    suspect_hardware: Count | None = None
    micro_batch: Count = 0  #: Images per backward pass, if memory could not hold the batch. 0: the whole batch.


class TrialConfig(Schema):
    """The content of trials/<id>/config.json: the resolved config."""

    config: Settings  #: Setting -> resolved value.


class ResumedFrom(Schema):
    attempt: Number  #: Number of the attempt that saved the checkpoint.
    step: Count  #: Step of the checkpoint.


class Environment(Schema):
    """The content of attempts/<n>/env.json: where an attempt ran."""

    code: str = ""  #: Digest of the sources and plug-ins.
    revision: str | None = None  #: The git revision.
    plugins: dict[str, str] = {}  #: Plug-in file name -> digest.
    host: str = ""  #: The machine.
    node: str = ""  #: The SLURM node.
    device: str = ""  #: The processor or GPU.
    accelerator: str = ""  #: `cuda` or `cpu`.
    threads: Count | None = None  #: Number of PyTorch's CPU threads.
    ranks: Count = 1  #: Number of processes that train the trial together.
    micro_batch: Count = 0  #: Images per backward pass. 0: the whole batch.
    resumed_from: ResumedFrom | None = None  #: The checkpoint from which the attempt resumed.


class Failure(Schema):
    """The content of attempts/<n>/failure.json: why an attempt failed."""

    cause: str  #: The error in one line.
    traceback: str = ""  #: Traceback of the error.
    code: str = ""  #: Digest of the sources. If they change, the trial is tried again.
    kind: str = ""  #: The kind of fault: `bug`, `input`, `memory` or `machine`.
    where: list[str] = []  #: Frames of the traceback.
    again: bool = False  #: Whether the trial may be tried again with the same code.
    node: str | None = None  #: The SLURM node to blame, if it is not the attempt's.


class Lease(Schema):
    """The content of attempts/<n>/lease.json: the process that holds an attempt."""

    host: str  #: The machine.
    boot: str  #: Boot id of the machine.
    pids: str = ""  #: Namespace of the process id.
    pid: Count  #: Process id.
    started: str | None  #: Start time of the process, in clock ticks since boot.
    #: A random text that identifies the holder. It is part of the path of checkpoints in scratch space.
    nonce: Annotated[str, Field(pattern="^([0-9a-f]{32})?$")] = ""


class MetricsLine(Schema):
    """A line of metrics.jsonl: one evaluation during training. A number that was not recorded is None."""

    step: Count  #: Optimizer steps taken.
    epoch: float | None = None  #: Passes over the training images.
    images: Count | None = None  #: Training images seen, with repetition.
    seconds: float | None = None  #: Seconds of training, without evaluation.
    train_loss: float | None = None  #: Mean training loss since the previous line.
    val_loss: float | None = None  #: Mean loss on the validation images.
    val_accuracy: float | None = None  #: Accuracy on the validation images.
    lr: float | None = None  #: The learning rate of the last step.


class Eval(Schema):
    """The content of trials/<id>/evals/<name>.json: numbers computed later from the weights of a trial."""

    id: TrialId  #: Id of the trial.
    name: str  #: Name of the eval: `fewshot`, `inspect`, `test@SIZE`, `test@patchP` or `test@mergeR`.
    weights_sha256: Sha256 | None  #: SHA-256 of the weights from which the eval was computed.
    checksum: Sha256  #: SHA-256 of the rest of the file.
    metrics: Metrics = {}  #: Metrics by name.
    notes: list[str] = []  #: Caveats for the reader.
    arrays_sha256: Sha256 | None = None  #: SHA-256 of the .npz file beside this one.


class PlannedTrial(Schema):
    seed: Seed
    id: TrialId
    train_seconds: Seconds | None = None


class LaterDifference(Schema):
    """The difference of an arm from the baseline after twice the steps, as the recipe states it."""

    difference: FiniteFloat
    origin: str
    resolved: bool = False


class Entry(Schema):
    """An arm or a stage of a plan: a config and its trials."""

    name: Annotated[str, Field(min_length=1)]  #: The name in tables.
    stage: str = ""  #: Name of the stage in the study file, or "" for an arm.
    baseline: str = ""  #: Name of the arm that this arm is compared with.
    change: str = ""  #: Name without the values of the curves.
    values: Settings = {}  #: Factor or curve -> value.
    declared: Settings | list[str] | None = None  #: Other settings that the study declares to change too.
    model_family: str = ""  #: Family to which a figure over compute assigns the arm.
    parent: str = ""  #: Name of the stage that the trials start or learn from.
    key: str = ""  #: Hash of the config without seeds, which all trials share.
    config: Settings  #: Resolved config without the seed.
    published: FiniteFloat | None = None  #: Published value of the metric.
    at_twice_the_steps: LaterDifference | None = None  #: Difference after twice the steps, as the recipe states it.
    departures: Settings = {}  #: Settings whose values differ from the recipe's.
    evals: list[str] | None = None  #: Evals that the trials need, if not those of the plan.
    params: Count | None = None  #: Trainable parameters.
    flops: Count | None = None  #: FLOPs of one image through the model.
    tokens: Count | None = None  #: Number of tokens per image.
    class_token: bool | None = None  #: Whether there is a class token.
    attention_bias: bool | None = None  #: Whether attention logits have a bias.
    train_flops: Flops | None = None  #: FLOPs of one training.
    notes: list[str] = []  #: Footnotes on further differences from the baseline.
    notes_about: dict[str, str] = {}  #: Footnote -> the measure that it concerns.
    trials: list[PlannedTrial]  #: Seed and id of each trial.

    @property
    def ids(self) -> dict[int, str]:
        """The trial ids by seed."""
        return {trial.seed: trial.id for trial in self.trials}

    @property
    def ranks(self) -> int:
        """The number of processes that train a trial together."""
        return int(self.config.get("gpus", 1))  # configs before 0.5 have none


class Stage(Entry):
    stage: str


class Arm(Entry):
    baseline: str  #: Name of the arm that this arm is compared with.
    values: Settings  #: Factor or curve -> value.


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
        """The names of four arms: with both changes, with each alone, and with neither."""
        return [self.ab, self.a, self.b, self.baseline]


class Split(Schema):
    kind: str
    folds: Annotated[int, Field(gt=0)] | None = None
    images: Annotated[int, Field(gt=0)]


class PlannedData(Schema):
    """The data set of a study's baseline."""

    name: str
    train: Count
    test: Count
    folds: Count | None
    classes: Count
    image_size: Count
    channels: Count
    of_recipe: bool  #: Whether the recipe describes these data.


class Stated(Schema):
    """A number stated by a recipe. how: measured, derived or cited. source: the command or publication behind it."""

    how: str
    source: str


class Took(Stated):
    """The training time of a trial on a device."""

    device: str
    seconds: Seconds


class StatedCost(Schema):
    """The training time of a trial on a CPU and a GPU. work: training FLOPs of the trial per process."""

    work: FiniteFloat
    cpu: Took | None = None
    gpu: Took | None = None

    def time_on(self, gpu: bool) -> Took | None:
        """Return the time on a GPU or on a CPU, or None if the recipe does not state it."""
        return self.gpu if gpu else self.cpu


class Expected(Stated):
    """The mean of a metric over n trials of the recipe with `settings`."""

    settings: Settings = {}
    metric: str
    mean: FiniteFloat
    n: Count | None = None


class StatedSpread(Stated):
    """The standard deviation of paired differences over seeds, with its degrees of freedom."""

    metric: str
    sd: FiniteFloat
    freedom: Count


class Asked(Schema):
    """The arguments of the command that made a plan."""

    study: str
    recipe: str
    plugins: list[str] = []
    data_dir: str | None = None
    margin: FiniteFloat | None = None


class Plan(Schema):
    """The content of studies/<name>/plan.json: the arms and trials of a study."""

    name: Annotated[str, Field(min_length=1)]  #: Study, recipe and, with overrides, their hash: `study@recipe+hash`.
    study: Annotated[str, Field(min_length=1)]  #: Name of the study.
    recipe: str  #: Name of the recipe.
    overrides: Settings  #: Settings given on the command line.
    question: str  #: The question that the study answers.
    source: str  #: Publication from which the question comes.
    published_of: str = ""  #: Publication of the published numbers, if it is another one.
    found: str = ""  #: Answer in that publication.
    description: str  #: Description of the data, the baseline's model and its training.
    data: PlannedData | None = None  #: The data set when the plan was made.
    departures: Settings = {}  #: Settings whose values differ from the recipe's in the baseline.
    metric: str  #: The metric that is compared.
    evals: list[str] = []  #: Evals that every trial needs.
    margin: Annotated[FiniteFloat, Field(gt=0)] | None  #: Largest difference that counts as equivalent.
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
    split: Split  #: How the test images are chosen.
    seeds: list[Seed]  #: Seeds with which every arm is trained.
    looks: list[Count] = []  #: Numbers of seeds of the plan and its extensions, ascending.
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
    extends: str = Field(default="", exclude=True)  # digest of the plan that it replaces, before it is written

    @property
    def baseline_arm(self) -> Arm:
        return next(arm for arm in self.arms if arm.name == self.baseline)

    @property
    def entries(self) -> list[Entry]:
        """The stages, parents first, and then the arms."""
        return [*self.stages, *self.arms]

    @property
    def objective(self) -> str:
        """The training objective that all arms share, or "" if the arms differ."""
        found = {arm.config.get("objective", "classification") for arm in self.arms}
        return str(found.pop()) if len(found) == 1 else ""

    def evals_of(self, entry: Entry) -> list[str]:
        """Return the names of the evals that the trials of an entry need: its own list, or else the plan's."""
        return list(self.evals if entry.evals is None else entry.evals)

    def lineage(self, entry: Entry) -> Iterator[Stage]:
        """Yield the stages that an entry starts or learns from, nearest first."""
        stages = {stage.name: stage for stage in self.stages}
        while parent := stages.get(entry.parent):
            yield parent
            entry = parent

    def parents(self, entry: Entry, seed: int) -> dict[str, str]:
        """Return the trials that an entry's trial with a seed starts or learns from: id -> name, nearest first."""
        return {stage.ids[seed]: stage.name for stage in self.lineage(entry)}

    @property
    def trials_with_parents(self) -> dict[str, dict[str, str]]:
        """The parents of each trial that has some, by trial id."""
        return {one.id: self.parents(entry, one.seed) for entry in self.entries if entry.parent for one in entry.trials}

    @model_validator(mode="before")
    @classmethod
    def drop_schema(cls, content: object) -> object:
        return {key: content[key] for key in content if key != "schema"} if isinstance(content, dict) else content

    @model_validator(mode="after")
    def check_names(self) -> "Plan":
        """Raise ValueError if a baseline, parent or tuned point names no entry, or if two entries have one name."""
        arms, stages = {arm.name for arm in self.arms}, {stage.name for stage in self.stages}
        for what, names, known in (
            ("baseline", [self.baseline, *(arm.baseline for arm in self.arms)], arms),
            ("parent", [entry.parent for entry in (*self.arms, *self.stages) if entry.parent], stages),
            ("tuned.points", [point for one in self.tuned for point in one.points], arms),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(f"{what}={name}: no such entry")
        if len(arms) < len(self.arms) or len(stages) < len(self.stages):
            raise ValueError("two entries of one name")
        return self


class ExportHeader(Schema):
    """The metadata of an exported Parquet file."""

    plans: list[Plan]
    trials: Sha256
    checksum: Sha256


class Submission(Schema):
    """The content of submissions/<campaign>/campaign.json: one `ablate submit`. Its profile is validated elsewhere."""

    plans: list[str]
    profile: dict[str, Any]
    plugins: list[str]
    data_dir: str | None
    checkpoints: str | None = None
    keep_weights: Literal["all", "baseline", "none"] = "all"
    arms: str | list[str] = ["*"]


class Private(Schema):
    """The content of submissions/<campaign>/private.json: the parts of a profile that may hold tokens."""

    environment: dict[str, str] = {}
    setup: list[str] = []


class Round(Schema):
    """A line of submissions/<campaign>/looks.jsonl: the progress when the last job of a round ended."""

    arrays: Count  #: Number of job arrays with trials so far.
    progress: list[Count]  #: Numbers of finished trials, of their evals, and of steps of the other trials.


class GaveUp(Schema):
    """The content of submissions/<campaign>/gave-up.json: why a submission ended before its trials did."""

    said: str


class NodeChecks(Schema):
    """The content of submissions/<campaign>/probe.json: the checks that `profile check` made on a node."""

    found: dict[str, str]  #: Check -> why it failed, or "".


class StepTime(Schema):
    """Seconds of a training step, and how they were measured."""

    seconds: Seconds
    steps: Count | None = None
    arm: str = ""
    when: str = ""
    code: str = ""


class StepTimes(Schema):
    """The content of probes/<device>.json: measured step times. Earlier versions also wrote other measurements."""

    device: str
    gpu: bool
    paces: dict[str, StepTime] = {}


class EvalSummary(Schema):
    """The part of an eval that tables show."""

    metrics: Metrics
    notes: list[str] = []


def json_text(schema: Any) -> AfterValidator:
    """Return a validator for text that is empty or JSON of the type `schema`."""
    content = TypeAdapter(schema, config=ConfigDict(strict=True, defer_build=True))

    def check(text: str) -> str:
        if text:
            try:
                content.validate_python(json.loads(text))
            except RecursionError:
                raise ValueError("nested without end") from None
        return text

    return AfterValidator(check)


class TrialRow(Schema):
    """A row of an exported Parquet file. Arrow has checked the types of its columns. Missing numbers are NaN."""

    id: TrialId
    status: Literal["finished", "diverged", "failed", "running", "interrupted", "missing", "broken"]
    config: Annotated[str, json_text(Settings)]
    evals: Annotated[str, json_text(dict[str, EvalSummary])] = ""
    plugins: Annotated[str, json_text(dict[str, str])]
    history: list[dict[str, float | None]]
    __pydantic_extra__: dict[str, str | float]

    @model_validator(mode="after")
    def check_metrics(self) -> "TrialRow":
        check_accuracies({name: value for name, value in (self.model_extra or {}).items() if isinstance(value, float)})
        return self


def unknown_field(content: object, at: str = "") -> str:
    """Return the path of the first field that no schema names, or "". at: path of `content` in the file."""
    if isinstance(content, list):
        return next(filter(None, (unknown_field(one, f"{at}{place}.") for place, one in enumerate(content))), "")
    if not isinstance(content, Schema):
        return ""
    own = (f"{at}{name}" for name in content.model_extra or () if name != "schema")
    inside = (unknown_field(getattr(content, name), f"{at}{name}.") for name in type(content).model_fields)
    return next(filter(None, (*own, *inside)), "")


def validated(schema: type[Kind], content: object, path: Path | str = "") -> Kind:
    """Return the content of a file as an instance of its schema.

    Raises Broken with one line that names the file `path`, if given, and the first wrong field.
    """
    name = f"{os.path.basename(path)}: " if path else ""
    if depth_exceeds(content, DEEPEST):
        raise Broken(f"{name}nested more than {DEEPEST} levels deep")
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    raise Broken(f"{name}{field}: {message[:1].lower()}{message[1:]}" if field else f"{name}{message}")


def depth_exceeds(content: object, levels: int) -> bool:
    """Return whether lists and objects are nested more than `levels` deep, found without recursion."""
    inside: list[object] = [content]
    for _ in range(levels + 2):
        nested = [one for one in inside if isinstance(one, dict | list)]
        if not nested:
            return False
        inside = [child for one in nested for child in (one.values() if isinstance(one, dict) else one)]
    return True
