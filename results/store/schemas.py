"""What the JSON files of a run directory hold, checked once where they are read.

A field that is missing, null or of another type makes the whole file broken; the error names the file and the field.
Fields that a schema does not name are let through: a later version may have written them.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    TypeAdapter,
    ValidationError,
    model_validator,
)

DEEPEST = 50  # levels of nesting
Json = dict[str, Any]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
TrialId = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
Number = Annotated[str, Field(pattern="^[0-9]{4,9}$")]  # an attempt's name
Count = Annotated[int, Field(ge=0, lt=2**63)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Seconds = Annotated[FiniteFloat, Field(ge=0)]
Plain = str | bool | int | FiniteFloat | None  # a setting's value, and in lists
Value = Plain | list[Plain | list[Plain]]
Settings = dict[str, Value | dict[str, Value]]


def in_range(metrics: dict[str, float | None]) -> dict[str, float | None]:
    for name, value in metrics.items():
        if "accuracy" in name and value is not None and (value < 0 or value > 1):
            raise ValueError(f"{name}={value:g}: from 0 to 1")
    return metrics


Metrics = Annotated[dict[str, FiniteFloat | None], AfterValidator(in_range)]


class Schema(BaseModel):
    """A file's content. Types are exact: neither "1" nor true is the number 1."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", defer_build=True)
    file: ClassVar[str]  # what the file is called in messages


class Result(Schema):
    """trials/<id>/result.json: how a trial ended."""

    file = "result.json"
    id: TrialId
    attempt: Number
    status: Literal["finished", "diverged"]
    metrics: Metrics
    checksum: Sha256
    weights_sha256: Sha256 | None = None
    files: dict[str, Sha256] = {}  # of the attempt, by name, as they were when the result was published
    params: Count | None = None
    flops: Count | None = None
    steps: Count | None = None
    images: Count | None = None
    train_seconds: Seconds | None = None
    images_per_second: Seconds | None = None
    diverged_at_step: Count | None = None
    suspect_hardware: Count | None = None
    micro_batch: Count = 0


class TrialConfig(Schema):
    """trials/<id>/config.json: the resolved config."""

    file = "config.json"
    config: Settings


class ResumedFrom(Schema):
    attempt: Number
    step: Count


class Environment(Schema):
    """attempts/<n>/env.json: where an attempt ran."""

    file = "env.json"
    code: str = ""
    revision: str | None = None
    plugins: dict[str, str] = {}
    host: str = ""
    node: str = ""
    device: str = ""
    accelerator: str = ""
    threads: Count = 1
    ranks: Count = 1
    micro_batch: Count = 0
    resumed_from: ResumedFrom | None = None


class Failure(Schema):
    """attempts/<n>/failure.json: why an attempt failed."""

    file = "failure.json"
    cause: str
    traceback: str = ""
    code: str = ""
    kind: str = ""
    where: list[str] = []
    again: bool = False
    node: str = ""


class Lease(Schema):
    """attempts/<n>/lease.json: the process that holds an attempt."""

    file = "lease.json"
    host: str
    boot: str
    pids: str = ""
    pid: Count
    started: str | None
    nonce: Annotated[str, Field(pattern="^([0-9a-f]{32})?$")] = ""  # becomes part of a path


class MetricsLine(Schema):
    """A line of metrics.jsonl: one evaluation. What is not a number is NaN there."""

    file = "metrics.jsonl"
    step: Count
    epoch: float | None = None
    images: Count | None = None
    seconds: float | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None
    lr: float | None = None


class Eval(Schema):
    """trials/<id>/evals/<name>.json: what was computed later from a trial's weights."""

    file = "an eval"
    id: TrialId
    name: str
    weights_sha256: Sha256 | None
    checksum: Sha256
    metrics: Metrics = {}
    notes: list[str] = []
    arrays_sha256: Sha256 | None = None


class PlannedTrial(Schema):
    seed: Seed
    id: TrialId
    train_seconds: Seconds | None = None


class Entry(Schema):
    """An arm or a stage: a config, and the trials that train it."""

    name: Annotated[str, Field(min_length=1)]
    parent: str = ""
    key: str = ""
    config: Settings
    params: Count | None = None
    flops: Count | None = None
    tokens: Count | None = None
    class_token: bool | None = None
    attention_bias: bool | None = None
    evals: list[str] = []
    departures: Settings = {}
    trials: list[PlannedTrial]


class Stage(Entry):
    stage: str


class Arm(Entry):
    baseline: str
    change: str = ""
    values: Settings
    declared: Settings | list[str] = {}
    model_family: str = ""
    published: FiniteFloat | None = None
    train_flops: Count | None = None
    notes: list[str] = []


class Tuned(Schema):
    """An arm at its own value of a tuned grid."""

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


class Split(Schema):
    kind: str
    images: Annotated[int, Field(gt=0)]
    folds: Annotated[int, Field(gt=0)] | None = None


class Plan(Schema):
    """studies/<name>/plan.json: the arms and trials of a study."""

    file = "plan.json"
    name: Annotated[str, Field(min_length=1)]
    study: Annotated[str, Field(min_length=1)]
    recipe: str
    overrides: Settings
    question: str
    source: str
    published_of: str = ""
    found: str = ""
    description: str
    metric: str
    margin: Annotated[FiniteFloat, Field(gt=0)] | None
    claims: list[str]
    caveats: list[str]
    notes: list[str] = []
    evals: list[str] = []
    figure: str
    factors: dict[str, list[Value]]
    crosses: list[dict[str, list[Value]]] = []
    curves: dict[str, list[Value]]
    tune: dict[str, list[Value]] = {}
    budget: str = "steps"
    baseline: str
    split: Split
    seeds: list[Seed]
    looks: list[Count] = []
    stages: list[Stage] = []
    arms: Annotated[list[Arm], Field(min_length=1)]
    family: Count
    points_family: Count = 0
    tuned: list[Tuned] = []
    interactions: list[Interaction] = []
    pruned: str = ""
    checksum: Sha256 | None = None

    @model_validator(mode="after")
    def names_meet(self) -> "Plan":
        """Every name that one entry has for another is that of an entry."""
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

    file = "the header"
    plans: list[Plan]
    trials: Sha256
    checksum: Sha256


class Submission(Schema):
    """submissions/<campaign>/campaign.json: what one `submit` asked for. The profile has rules of its own."""

    file = "campaign.json"
    plans: list[str]
    profile: dict[str, Any]
    plugins: list[str]
    data_dir: str | None
    checkpoints: str | None = None
    keep_weights: Literal["all", "baseline", "none"] = "all"


class Private(Schema):
    """submissions/<campaign>/private.json: what of a profile may hold tokens."""

    file = "private.json"
    environment: dict[str, str] = {}
    setup: list[str] = []


class EvalSummary(Schema):
    """What a table needs of an eval."""

    metrics: Metrics
    notes: list[str] = []


def encoded(schema: Any) -> AfterValidator:
    """A text that is JSON of this type, or empty."""
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
    """A row of an exported Parquet file, whose columns Arrow has typed; NaN where there is no number."""

    file = "a row"
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
    schema.file: schema
    for schema in (
        *(Result, TrialConfig, Environment, Failure, Lease, MetricsLine, Eval, Plan, ExportHeader, TrialRow),
        *(Submission, Private),
    )
}


def stray(content: object, at: str = "") -> str:
    """The first field, in a file's validated content, that its schema does not name; "" where there is none."""
    if isinstance(content, list):
        return next(filter(None, (stray(one, f"{at}{place}.") for place, one in enumerate(content))), "")
    if not isinstance(content, Schema):
        return ""
    own = (f"{at}{name}" for name in content.model_extra or () if name != "schema")
    inside = (stray(getattr(content, name), f"{at}{name}.") for name in type(content).model_fields)
    return next(filter(None, (*own, *inside)), "")


def problem(schema: type[Schema], content: object) -> str:
    """What is wrong with a file's content, as one line that names the field; "" where nothing is."""
    try:
        if depth_exceeds(content, DEEPEST):
            return f"nested more than {DEEPEST} levels deep"
        schema.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        return f"{field}: {message[:1].lower()}{message[1:]}" if field else message
    return ""


def depth_exceeds(content: object, levels: int) -> bool:
    """Whether containers are nested deeper than so many levels; an iteration, as such content has no end."""
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
