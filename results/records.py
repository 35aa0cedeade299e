"""Dataclasses that hold the contents of tables, and the conversion of tables and comparisons to JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from results.store.schemas.base import Schema
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import Plan

Interval = tuple[float, float]
NO_VERDICT = "no verdict"


class Rejudged:
    """What may have had another verdict under what was declared first."""

    verdict: str | None
    first_declared: str | None

    @property
    def is_judged_anew(self) -> bool:
        return self.first_declared not in (None, self.verdict or NO_VERDICT)


@dataclass(frozen=True, kw_only=True)
class SecondaryResult(Rejudged):
    """An arm's result in a secondary metric, and its difference from the baseline. Unknown values are None.

    n: the number of values. p_adjusted: p, adjusted together with all tests of the table's arms. untested: why there is
    no verdict, or "". first_declared: as in `Row`.
    """

    n: int
    mean: float | None
    ci95: Interval | None = None
    delta: float | None = None
    delta_ci95: Interval | None = None
    n_pairs: int | None = None
    p: float | None = None
    p_adjusted: float | None = None
    verdict: str | None = None
    untested: str = ""
    first_declared: str | None = None


@dataclass(frozen=True, kw_only=True)
class Row(Rejudged):
    """A row of a study's table: the results of one arm. Accuracies are fractions and unknown values are None.

    n: finished trials with the metric. collapsed: how many of them collapsed. missing: trials without it that neither
    diverged nor failed. stopped: those that a race left out. delta, p, verdict: comparison with the arm `baseline`
    over n_pairs seeds. delta_ci95_images: interval over seeds and test images, which the verdict uses where it is
    known. delta_ci95_simultaneous: interval that holds for all differences of a family at once. margin_met: the
    smallest margin that the arm meets after Holm's correction, a number or a share like the plan's. error_ratio: the
    arm's error / the baseline's, of an accuracy. images_share: share of the difference's variance that comes from the
    choice of test images. measured: further metric -> mean, and metric + INTERVAL -> interval. first_declared: the
    verdict under what was declared before there were results, if that was something else. dominated_by: the arms that
    are better in one metric and worse in none, None if unknown.
    """

    arm: str
    n: int
    planned: int
    mean: float | None
    sd: float | None
    ci95: Interval | None
    delta: float | None = None
    delta_ci95: Interval | None = None
    p: float | None = None
    p_holm: float | None = None
    verdict: str | None = None
    margin_met: float | str | None = None
    published: float | None
    params: int | None
    flops: int | None
    baseline: str
    n_pairs: int | None = None
    delta_ci95_images: Interval | None = None
    delta_ci95_simultaneous: Interval | None = None
    error_ratio: float | None = None
    error_ratio_ci95: Interval | None = None
    images_share: float | None = None
    diverged: int
    collapsed: int = 0
    failed: int
    missing: int
    stopped: int = 0
    notes: Sequence[str]
    first_declared: str | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)
    secondary: Mapping[str, SecondaryResult] = field(default_factory=dict)
    dominated_by: Sequence[str] | None = None

    @property
    def ended_trials(self) -> int:
        return self.n + self.diverged

    @property
    def unstable(self) -> int:
        return self.diverged + self.collapsed

    def value(self, column: str) -> Any:
        """Return the value of a column: a field, a further metric, or the interval of a further metric."""
        return self.measured[column] if column in self.measured else getattr(self, column)

    def with_notes(self, notes: Sequence[str]) -> "Row":
        return replace(self, notes=[*self.notes, *notes]) if notes else self


INTERVAL = "_ci95"  # suffix of a metric's confidence interval


@dataclass(frozen=True)
class Claim:
    """A published claim about two arms, and the study's verdict on it.

    verdict: agree, disagree, not-resolved, or None if untested. delta: the difference that `of` names, as in the
    table's row if there is one, else the first arm minus the second.
    """

    claim: str
    verdict: str | None = None
    delta: float | None = None
    delta_ci95: Interval | None = None
    p_holm: float | None = None
    n_pairs: int | None = None
    note: str = ""
    of: str = ""

    def without_verdict(self, note: str) -> "Claim":
        """Return the claim with `note` in place of its p value and verdict, or unchanged if it has no verdict."""
        return self if self.verdict is None else replace(self, p_holm=None, verdict=None, note=note)


@dataclass(frozen=True)
class InteractionRow:
    """The interaction effect of two changes, on the scale of the metric and, for an accuracy, on the logit scale.

    arms: with both changes, with each alone, and with neither. verdict: positive, negative, not-resolved, or None.
    """

    name: str
    arms: Sequence[str]
    n: int
    interaction: float | None
    ci95: Interval | None
    logit: float | None
    logit_ci95: Interval | None
    p: float | None
    p_holm: float | None
    verdict: str | None
    notes: Sequence[str]

    def without_verdict(self, note: str) -> "InteractionRow":
        return self if self.verdict is None else replace(self, p=None, p_holm=None, verdict=None, notes=[note])


@dataclass(frozen=True, kw_only=True)
class AverageRow:
    """An arm averaged over data sets, which count alike, and its average difference from the baseline.

    arm: its name without the data. arms: its names on each data set. n: how many seeds or pairs all data sets have.
    """

    arm: str
    arms: Sequence[str]
    n: int
    mean: float | None
    ci95: Interval | None
    delta: float | None = None
    delta_ci95: Interval | None = None
    delta_ci95_images: Interval | None = None
    p: float | None = None
    p_holm: float | None = None
    verdict: str | None = None
    notes: Sequence[str] = ()

    def without_verdict(self, note: str) -> "AverageRow":
        return self if self.verdict is None else replace(self, p=None, p_holm=None, verdict=None, notes=[note])


@dataclass(frozen=True)
class Pairing:
    """What pairing by seed brought, as medians over a table's differences.

    correlation: between arm and baseline, over seeds. narrower: the share by which paired intervals are narrower than
    unpaired ones, below 0 if they are wider. differences: how many there are.
    """

    correlation: float
    narrower: float
    differences: int


@dataclass(frozen=True, kw_only=True)
class ScalingLaw:
    """The law error = a C^-b + c of a group of arms, where C is training FLOPs, as `scaling.Law`, or why there is none.

    n, sizes: the number of seeds that finished at all sizes, and of sizes. compute: the least and the most FLOPs.
    b_without_c: b of error = a C^-b. misses: the largest distance of a mean error from the law, as a share of it.
    failed_draws: the number of `draws` through which no falling law goes.
    """

    group: str
    n: int = 0
    sizes: int = 0
    compute: Interval | None = None
    a: float | None = None
    b: float | None = None
    b_ci95: Interval | None = None
    c: float | None = None
    c_ci95: Interval | None = None
    b_without_c: float | None = None
    b_without_c_ci95: Interval | None = None
    misses: float | None = None
    draws: int = 0
    failed_draws: int = 0
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class BestSize:
    """The size with the lowest error at a training budget. size: a setting, or "params of <family>".

    compute: training FLOPs. sizes: those trained. best: None if it is not among them, for the reason in `why`.
    """

    size: str
    compute: float
    n: int
    sizes: Sequence[float]
    best: float | None
    ci95: Interval | None
    why: str


@dataclass(frozen=True, kw_only=True)
class SizeGrowth:
    """The power law of a best size over compute, and its exponent. Without one, `why` says why there is none."""

    size: str
    budgets: int = 0
    exponent: float | None = None
    ci95: Interval | None = None
    draws: int = 0
    failed_draws: int = 0
    why: str = ""


@dataclass(frozen=True)
class Scaling:
    """Fits over training compute. laws: of each group of arms. best: of each size and budget. growth: of each size."""

    laws: Sequence[ScalingLaw] = ()
    best: Sequence[BestSize] = ()
    growth: Sequence[SizeGrowth] = ()


@dataclass(frozen=True)
class NoteSubjects:
    """A table's footnotes about arms and about differences from baselines. columns: footnote -> its column."""

    arms: Sequence[str]
    differences: Sequence[str]
    columns: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A study's table: its rows, and the facts from which its caption and closing lines are written.

    plan: the study's plan, with the arms at tuned values. besides: further metrics. looks: the most looks that a
    contrast had. interim: whether a trial has neither finished with the metric nor diverged. judged: whether verdicts
    are given. warnings: notes that are always shown. abridged: whether notes are left out. pairing: None unless
    training code of the user's is paired by seed. scaling: None unless the study's figure shows fits over compute.
    """

    plan: Plan
    rows: Sequence[Row]
    besides: Sequence[str]
    looks: int = 1
    interim: bool
    judged: bool
    interactions: Sequence[InteractionRow]
    averages: Sequence[AverageRow] = ()
    claims: Sequence[Claim]
    notes: Sequence[str]
    warnings: Sequence[str] = ()
    notes_of: NoteSubjects
    abridged: bool = False
    pairing: Pairing | None = None
    scaling: Scaling | None = None

    @property
    def rows_by_arm(self) -> dict[str, Row]:
        return {row.arm: row for row in self.rows}

    @property
    def tuned(self) -> list[str]:
        """The names of the tuned settings."""
        return list(self.plan.tune)

    @property
    def varied(self) -> list[str]:
        """The names of the settings that differ among the arms."""
        declared = [key for arm in self.plan.arms for key in arm.declared or ()]
        return list(dict.fromkeys([*self.plan.factors, *self.plan.curves, *declared]))

    @property
    def departures(self) -> dict[str, Mapping[str, Any]]:
        """Name -> settings that differ from the recipe's. A name is "the baseline" or "the stage <name>"."""
        settings = {"the baseline": self.plan.departures}
        settings |= {f"the stage {stage.name}": stage.departures for stage in self.plan.stages}
        return {name: changed for name, changed in settings.items() if changed}

    @property
    def published_of(self) -> str:
        """The publication of the published numbers, or "" if it is unknown."""
        return self.plan.published_of or self.plan.source


TABLE_KEYS = (  # of a table in JSON; what the table lacks is its plan's
    *("study", "recipe", "metric", "baseline", "rows", "name", "besides", "objective", "overrides", "data", "question"),
    *("source", "published_of", "seeds", "split", "family", "points_family", "margin", "looks", "interim", "judged"),
    *("budget", "varied", "departures", "tuned", "interactions", "claims", "notes", "caveats", "warnings", "notes_of"),
)
KEYS_IF_PRESENT = ("abridged", "paired", "pairing", "averages", "scaling", "secondary_metrics")


@dataclass(frozen=True, kw_only=True)
class OfStudy:
    """The study and metric that a row of a comparison is about. name: the full name of the study, with its recipe."""

    study: str
    recipe: str
    name: str
    metric: Metric


@dataclass(frozen=True)
class Reached:
    """The results of an arm in one set of results, such as A or B of a comparison. Counts are as in `Row`."""

    mean: float | None
    n: int
    ci95: Interval | None
    planned: int
    diverged: int
    failed: int
    missing: int
    collapsed: int = 0

    @property
    def ended_trials(self) -> int:
        return self.n + self.diverged


def study_fields(plan: Plan) -> dict[str, Any]:
    return {"study": plan.study, "recipe": plan.recipe, "name": plan.name, "metric": plan.primary_metric}


def json_object(record: Any) -> dict[str, Any]:
    """Return field -> value for a record. `json.dumps` takes this function as the argument `default`.

    Further metrics of a Row become fields, and the metric of a row becomes its name.
    """
    if isinstance(record, Schema):
        return record.content()
    if isinstance(record, Table):
        content = {name: getattr(record, name, getattr(record.plan, name, None)) for name in TABLE_KEYS}
        for name in KEYS_IF_PRESENT:
            value = getattr(record, name, getattr(record.plan, name, None))
            if value:
                content[name] = value
        return content
    content = dict(vars(record))
    if isinstance(record, Row):
        content |= content.pop("measured")
        if not record.secondary:
            del content["secondary"], content["dominated_by"]
        if not record.stopped:
            del content["stopped"]
    if isinstance(record, OfStudy):
        content["metric"] = record.metric.name
    return content


def as_json(record: Any) -> str:
    """Return a record, mapping or list as indented JSON text. Raises ValueError if a number is infinite or NaN."""
    return json.dumps(record, default=json_object, indent=1, allow_nan=False)
