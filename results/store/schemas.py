"""Schemas of the JSON files of a run directory, checked when a file is read.

A missing or null field, or one of another type, makes the whole file broken; the error names file and field. Unknown
fields pass: a later version may have written them.
"""

import json
from collections.abc import Mapping
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

DEEPEST = 50  # levels of nesting
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
TrialId = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
Number = Annotated[str, Field(pattern="^[0-9]{4,9}$")]  # an attempt's name
Count = Annotated[int, Field(ge=0, lt=2**63)]
Flops = Annotated[int, Field(ge=0, lt=2**100)]  # of one training: on ImageNet more than a Count
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Seconds = Annotated[FiniteFloat, Field(ge=0)]
Plain = str | bool | int | FiniteFloat | None  # a setting's value, and in lists
Value = Plain | list[Plain | list[Plain]]
# Each setting has a type of its own (vitcore.config): as files are read, any plain value; to the program, Any.
Settings = Annotated[dict[str, Any], GetPydanticSchema(lambda _, of: of(dict[str, Value | dict[str, Value]]))]
Axes = Annotated[dict[str, list[Any]], GetPydanticSchema(lambda _, of: of(dict[str, list[Value]]))]

Fact = str | float | Mapping[str, str | int] | None  # of env.json
Facts = Mapping[str, Fact]


def in_range(metrics: dict[str, float | None]) -> dict[str, float | None]:
    for name, value in metrics.items():
        if "accuracy" in name and value is not None and (value < 0 or value > 1):
            raise ValueError(f"{name}={value:g}: from 0 to 1")
    return metrics


Metrics = Annotated[dict[str, FiniteFloat | None], AfterValidator(in_range)]


Kind = TypeVar("Kind", bound="Schema")


class Schema(BaseModel):
    """The content of a file. Types are exact: neither "1" nor true is the number 1."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", defer_build=True)

    def content(self, *without: str) -> dict[str, Any]:
        """Return the fields that were given, as JSON."""
        return self.model_dump(exclude_unset=True, exclude={*without})


class Result(Schema):
    """trials/<id>/result.json: how a trial ended."""

    id: TrialId  #: The trial.
    attempt: Number  #: The attempt that ended it.
    status: Literal["finished", "diverged"]  #: Trained to the end, or with a loss that became infinite or NaN.
    metrics: Metrics  #: Numbers by name.
    checksum: Sha256  #: SHA-256 of the rest of the file.
    weights_sha256: Sha256 | None = None  #: SHA-256 of the final weights, even if they were not kept.
    files: dict[str, Sha256] = {}  #: SHA-256 of the attempt's files, by name, at publication.
    params: Count | None = None  #: Trainable parameters.
    flops: Count | None = None  #: FLOPs of one image through the model.
    steps: Count | None = None  #: Optimizer steps taken.
    images: Count | None = None  #: Training images seen, with repetition.
    train_seconds: Seconds | None = None  #: Seconds of training, over all attempts.
    images_per_second: Seconds | None = None  #: Training images a second.
    diverged_at_step: Count | None = None  #: The step at which the trial diverged.
    #: A step whose loss was NaN but finite when recomputed: the device may be faulty.
    suspect_hardware: Count | None = None
    micro_batch: Count = 0  #: Images of one backward pass, where memory did not hold the batch. 0: the whole batch.


class TrialConfig(Schema):
    """trials/<id>/config.json: the resolved config."""

    config: Settings  #: Every setting, resolved.


class ResumedFrom(Schema):
    attempt: Number  #: The attempt.
    step: Count  #: Its step.


class Environment(Schema):
    """attempts/<n>/env.json: where an attempt ran."""

    code: str = ""  #: A digest of the sources, and of plugins.
    revision: str | None = None  #: The git revision.
    plugins: dict[str, str] = {}  #: Digests of plugin files.
    host: str = ""  #: The machine.
    node: str = ""  #: The SLURM node.
    device: str = ""  #: The processor or GPU.
    accelerator: str = ""  #: `cuda` or `cpu`.
    threads: Count | None = None  #: PyTorch's threads.
    ranks: Count = 1  #: Processes of the trial.
    micro_batch: Count = 0  #: Images of one backward pass. 0: the whole batch.
    resumed_from: ResumedFrom | None = None  #: The attempt and step whose checkpoint it continued.


class Failure(Schema):
    """attempts/<n>/failure.json: why an attempt failed."""

    cause: str  #: The error in one line.
    traceback: str = ""  #: Its traceback.
    code: str = ""  #: Digest of the sources; under other code the trial is tried again.
    kind: str = ""  #: `machine` where a node, not the code, is to blame.
    where: list[str] = []  #: Frames of the traceback.
    again: bool = False  #: Whether the same code may try again.
    node: str | None = None  #: The SLURM node, if another than the attempt's.


class Lease(Schema):
    """attempts/<n>/lease.json: the process that holds an attempt."""

    host: str  #: The machine.
    boot: str  #: The id of its boot.
    pids: str = ""  #: The namespace of process ids.
    pid: Count  #: The process.
    started: str | None  #: When the process started.
    #: A random text that differs between two holders, and is part of a path.
    nonce: Annotated[str, Field(pattern="^([0-9a-f]{32})?$")] = ""


class MetricsLine(Schema):
    """A line of metrics.jsonl: one evaluation. Missing numbers are NaN."""

    step: Count  #: Optimizer steps taken.
    epoch: float | None = None  #: Passes over the training images.
    images: Count | None = None  #: Training images seen, with repetition.
    seconds: float | None = None  #: Seconds of training, without evaluation.
    train_loss: float | None = None  #: Mean training loss since the line before.
    val_loss: float | None = None  #: Mean loss on the validation images.
    val_accuracy: float | None = None  #: Accuracy on the validation images.
    lr: float | None = None  #: The learning rate of the last step.


class Eval(Schema):
    """trials/<id>/evals/<name>.json: numbers computed later from the weights of a trial."""

    id: TrialId  #: The trial.
    name: str  #: The eval: `fewshot`, `inspect`, `test@SIZE`, `test@patchP` or `test@mergeR`.
    weights_sha256: Sha256 | None  #: SHA-256 of the weights.
    checksum: Sha256  #: SHA-256 of the rest of the file.
    metrics: Metrics = {}  #: Numbers by name.
    notes: list[str] = []  #: Limits that a reader has to know.
    arrays_sha256: Sha256 | None = None  #: SHA-256 of the .npz file beside this one.


class PlannedTrial(Schema):
    seed: Seed
    id: TrialId
    train_seconds: Seconds | None = None


class LaterDifference(Schema):
    """The recipe's statement of an arm's difference after twice the steps."""

    difference: FiniteFloat
    origin: str
    resolved: bool = False


class Entry(Schema):
    """An arm or a stage: a config, and the trials that train it."""

    name: Annotated[str, Field(min_length=1)]  #: The name in tables.
    stage: str = ""  #: The name of a stage in the study.
    baseline: str = ""  #: The arm that an arm is compared with.
    change: str = ""  #: The change, without the point on the curves.
    values: Settings = {}  #: The value of every factor and curve.
    declared: Settings | list[str] | None = None  #: Changes of other settings that the study declares.
    model_family: str = ""  #: The family in a figure over compute.
    parent: str = ""  #: The stage that the trials start from.
    key: str = ""  #: The part of the identity that the trials share.
    config: Settings  #: Every setting but the seed.
    published: FiniteFloat | None = None  #: The published number.
    at_twice_the_steps: LaterDifference | None = None  #: The difference after twice the steps, as the recipe states it.
    departures: Settings = {}  #: Settings in which the entry departs from the recipe.
    evals: list[str] | None = None  #: Evals that the trials owe, if others than the plan's.
    params: Count | None = None  #: Trainable parameters.
    flops: Count | None = None  #: FLOPs of one image through the model.
    tokens: Count | None = None  #: Tokens of an image.
    class_token: bool | None = None  #: Whether there is a class token.
    attention_bias: bool | None = None  #: Whether attention logits have a bias.
    train_flops: Flops | None = None  #: FLOPs of one training.
    notes: list[str] = []  #: Footnotes on other differences from the baseline.
    notes_about: dict[str, str] = {}  #: Footnote -> the measure that it is about.
    trials: list[PlannedTrial]  #: Seed and id of each trial.

    @property
    def ids(self) -> dict[int, str]:
        """The trial ids by seed."""
        return {trial.seed: trial.id for trial in self.trials}

    @property
    def ranks(self) -> int:
        """The number of processes that train a trial together."""
        return int(self.config.get("gpus", 1))  # configs before 0.5 have none

    @property
    def is_baseline(self) -> bool:
        return self.name == self.baseline


class Stage(Entry):
    stage: str


class Arm(Entry):
    baseline: str  #: The arm it is compared with.
    values: Settings  #: The value of every factor and curve.


class Tuned(Schema):
    """An arm at the values that are tuned for it."""

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
        """Both changes together, each alone, and neither."""
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
    of_recipe: bool  #: Whether the recipe describes them.


class Stated(Schema):
    """A statement of a recipe. how: measured, derived or cited. source: where the statement comes from."""

    how: str
    source: str


class Took(Stated):
    """The seconds of a trial on a device."""

    device: str
    seconds: Seconds


class StatedCost(Schema):
    """The time of a trial. work: the training FLOPs of the trial."""

    work: FiniteFloat
    cpu: Took | None = None
    gpu: Took | None = None

    def of(self, gpu: bool) -> Took | None:
        """Return the time of a trial on a GPU, or on a CPU."""
        return self.gpu if gpu else self.cpu


class Expected(Stated):
    """The value of a metric that trials with these settings reach."""

    settings: Settings = {}
    metric: str
    mean: FiniteFloat
    n: Count | None = None


class StatedSpread(Stated):
    """The standard deviation of paired differences over seeds."""

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
    """studies/<name>/plan.json: the arms and trials of a study."""

    name: Annotated[str, Field(min_length=1)]  #: The study, the recipe, and a hash of the overrides.
    study: Annotated[str, Field(min_length=1)]  #: The study.
    recipe: str  #: The recipe.
    overrides: Settings  #: Settings given on the command line.
    question: str  #: The question that the study answers.
    source: str  #: The source of the question.
    published_of: str = ""  #: The source of the published numbers, if another.
    found: str = ""  #: The answer of the source.
    description: str  #: Of the recipe, or of other data.
    data: PlannedData | None = None  #: The data set, as the plan was made.
    departures: Settings = {}  #: Settings in which the baseline departs from the recipe.
    metric: str  #: The metric that is compared.
    evals: list[str] = []  #: Evals that every trial owes.
    margin: Annotated[FiniteFloat, Field(gt=0)] | None  #: The difference within which arms tie.
    claims: list[str]  #: Claims of the source about two arms.
    caveats: list[str]  #: Limits that a reader has to know.
    notes: list[str] = []  #: Footnotes of the whole study.
    cost: StatedCost | None = None  #: The time of a trial, as the recipe states it.
    expected: list[Expected] = []  #: Metrics that trials reach, as the recipe states them.
    spread: StatedSpread | None = None  #: The spread between seeds, as the recipe states it.
    figure: str  #: The kind of figure.
    factors: Axes  #: Values of each factor.
    crosses: list[Axes] = []  #: Full products of factors.
    curves: Axes  #: Values that every arm takes.
    tune: Axes = {}  #: Values that every arm is tuned over.
    budget: str = "steps"  #: The quantity of training that is equal for all arms.
    baseline: str  #: The arm that the others are compared with.
    split: Split  #: The split of the images.
    seeds: list[Seed]  #: Seeds of every arm.
    looks: list[Count] = []  #: Number of seeds at each extension of the plan.
    stages: list[Stage] = []  #: Trials that arms start from.
    arms: Annotated[list[Arm], Field(min_length=1)]  #: The arms, in the table's order.
    family: Count  #: Contrasts that Holm's correction counts.
    tuned: list[Tuned] = []  #: Arms at the values that are tuned for them.
    points_family: Count = 0  #: Contrasts at the points of a tuned grid.
    interactions: list[Interaction] = []  #: Interactions of crossed factors.
    pruned: str | None = None  #: Time at which arms or seeds were last pruned.
    made_from: str = ""  #: Digest of everything that the plan follows from.
    asked: Asked | None = None  #: Arguments that make the plan again.
    checksum: Sha256 | None = None  #: SHA-256 of the rest of the file.
    extends: str = Field(default="", exclude=True)  # of a plan to be written, the digest of the one it extends

    @property
    def baseline_arm(self) -> Arm:
        return next(arm for arm in self.arms if arm.name == self.baseline)

    @model_validator(mode="before")
    @classmethod
    def without_schema(cls, content: object) -> object:
        return {key: content[key] for key in content if key != "schema"} if isinstance(content, dict) else content

    @model_validator(mode="after")
    def names_meet(self) -> "Plan":
        """Raise ValueError for a reference to an entry that does not exist, and for two entries of one name."""
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
    """submissions/<campaign>/campaign.json: one `ablate submit`. The profile is checked by its own rules."""

    plans: list[str]
    profile: dict[str, Any]
    plugins: list[str]
    data_dir: str | None
    checkpoints: str | None = None
    keep_weights: Literal["all", "baseline", "none"] = "all"
    arms: str | list[str] = ["*"]


class Private(Schema):
    """submissions/<campaign>/private.json: the parts of a profile that may hold tokens."""

    environment: dict[str, str] = {}
    setup: list[str] = []


class Round(Schema):
    """A line of submissions/<campaign>/looks.jsonl: the progress when the last job of a round ended."""

    arrays: Count  #: Arrays of trials so far.
    progress: list[Count]  #: Finished trials, their evals, and the steps of the others.


class GaveUp(Schema):
    """submissions/<campaign>/gave-up.json: why a submission ended before its trials did."""

    said: str


class NodeChecks(Schema):
    """submissions/<campaign>/probe.json: the checks that `profile check` made on a node."""

    found: dict[str, str]  #: Check -> why it failed, or "".


class StepTime(Schema):
    """Seconds of a training step, and how they were measured."""

    seconds: Seconds
    steps: Count | None = None
    arm: str = ""
    when: str = ""
    code: str = ""


class StepTimes(Schema):
    """probes/<device>.json: measured step times. Files of earlier versions hold other measurements beside them."""

    device: str
    gpu: bool
    paces: dict[str, StepTime] = {}


class EvalSummary(Schema):
    """The part of an eval that tables show."""

    metrics: Metrics
    notes: list[str] = []


def encoded(schema: Any) -> AfterValidator:
    """Return a check that a text is empty or JSON of this type."""
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
    """A row of an exported Parquet file, whose columns Arrow has typed; NaN stands for a missing number."""

    id: TrialId
    status: Literal["finished", "diverged", "failed", "running", "interrupted", "missing", "broken"]
    config: Annotated[str, encoded(Settings)]
    evals: Annotated[str, encoded(dict[str, EvalSummary])] = ""
    plugins: Annotated[str, encoded(dict[str, str])]
    history: list[dict[str, float | None]]
    __pydantic_extra__: dict[str, str | float]

    @model_validator(mode="after")
    def accuracies(self) -> "TrialRow":
        in_range({name: value for name, value in (self.model_extra or {}).items() if isinstance(value, float)})
        return self


FILES: Mapping[str, type[Schema]] = {
    "result.json": Result,
    "config.json": TrialConfig,
    "env.json": Environment,
    "failure.json": Failure,
    "lease.json": Lease,
    "metrics.jsonl": MetricsLine,
    "an eval": Eval,
    "plan.json": Plan,
    "the header": ExportHeader,
    "a row": TrialRow,
    "campaign.json": Submission,
    "private.json": Private,
    "looks.jsonl": Round,
    "gave-up.json": GaveUp,
    "probe.json": NodeChecks,
    "probes/<device>.json": StepTimes,
}


def stray(content: object, at: str = "") -> str:
    """Return the first field of a file that its schema does not name; "" if there is none."""
    if isinstance(content, list):
        return next(filter(None, (stray(one, f"{at}{place}.") for place, one in enumerate(content))), "")
    if not isinstance(content, Schema):
        return ""
    own = (f"{at}{name}" for name in content.model_extra or () if name != "schema")
    inside = (stray(getattr(content, name), f"{at}{name}.") for name in type(content).model_fields)
    return next(filter(None, (*own, *inside)), "")


def validated(schema: type[Kind], content: object) -> Kind:
    """Check a file's content against its schema. Raises Broken with one line that names the field."""
    if depth_exceeds(content, DEEPEST):
        raise Broken(f"nested more than {DEEPEST} levels deep")
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    raise Broken(f"{field}: {message[:1].lower()}{message[1:]}" if field else message)


def problem(schema: type[Schema], content: object) -> str:
    """Return the error in a file's content, in one line that names the field; "" if there is none."""
    try:
        validated(schema, content)
    except Broken as error:
        return str(error)
    return ""


def depth_exceeds(content: object, levels: int) -> bool:
    """Return whether lists and objects are nested in more levels, found without recursion."""
    inside: list[object] = [content]
    for _ in range(levels + 1):
        inside = [
            child
            for one in inside
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, dict | list)
        ]
        if not inside:
            return False
    return True
