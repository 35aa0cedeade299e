"""Records of tables and comparisons, and their conversion to JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from results.store.schemas import PlannedData, Schema, Split

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One arm of a study's table. Accuracies are fractions; None stands for what is unknown.

    n: finished trials. delta, p and verdict compare the arm with `baseline` over n_pairs seeds. measured: the mean of
    each further metric by its name, and its interval by the name with INTERVAL.
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
    margin_met: float | None = None
    published: float | None
    params: int | None
    flops: int | None
    baseline: str
    n_pairs: int | None = None
    delta_ci95_images: Interval | None = None
    delta_ci95_simultaneous: Interval | None = None
    diverged: int
    failed: int
    missing: int
    notes: Sequence[str]
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> int:
        """The number of trials that finished or diverged."""
        return self.n + self.diverged

    def value(self, column: str) -> Any:
        """Return the value of a column by its name."""
        return self.measured[column] if column in self.measured else getattr(self, column)

    def with_notes(self, notes: Sequence[str]) -> "Row":
        """Return the row with further notes."""
        return replace(self, notes=[*self.notes, *notes]) if notes else self


INTERVAL = "_ci95"  # suffix of a metric's interval


@dataclass(frozen=True)
class Claim:
    """A source's claim about two arms, and our verdict on it."""

    claim: str
    verdict: str | None = None
    delta: float | None = None
    delta_ci95: Interval | None = None
    p_holm: float | None = None
    n_pairs: int | None = None
    note: str = ""

    def without_verdict(self, note: str) -> "Claim":
        """Withhold p and the verdict, if there is one, for the reason in `note`."""
        return self if self.verdict is None else replace(self, p_holm=None, verdict=None, note=note)


@dataclass(frozen=True)
class Interaction:
    """The interaction of two changes, on the metric's scale and on the logit scale of an accuracy."""

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

    def without_verdict(self, note: str) -> "Interaction":
        """Withhold p and the verdict, if there is one, for the reason in `note`."""
        return self if self.verdict is None else replace(self, p=None, p_holm=None, verdict=None, notes=[note])


@dataclass(frozen=True)
class NoteSubjects:
    """The subjects of a table's footnotes: arms, differences, or (by note) a single column."""

    arms: Sequence[str]
    differences: Sequence[str]
    columns: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A study's table: its rows, and all that captions and footnotes say.

    interim: some planned trials are not over. judged: verdicts are given. besides: further metrics in the rows.
    abridged: some notes were dropped.
    """

    study: str
    recipe: str
    metric: str
    baseline: str
    rows: Sequence[Row]
    name: str
    besides: Sequence[str]
    objective: str
    overrides: Mapping[str, Any]
    data: PlannedData | None
    question: str
    source: str
    published_of: str
    seeds: Sequence[int]
    split: Split
    family: int
    points_family: int
    margin: float | None
    interim: bool
    judged: bool
    budget: str
    varied: Sequence[str]
    departures: Mapping[str, Mapping[str, Any]]
    tuned: Sequence[str]
    interactions: Sequence[Interaction]
    claims: Sequence[Claim]
    notes: Sequence[str]
    caveats: Sequence[str]
    notes_of: NoteSubjects
    abridged: bool = False


@dataclass(frozen=True)
class Reached:
    """The results of an arm on one side of a comparison."""

    mean: float | None
    n: int
    ci95: Interval | None
    planned: int
    diverged: int
    failed: int
    missing: int

    @property
    def ended(self) -> int:
        """The number of trials that finished or diverged."""
        return self.n + self.diverged


@dataclass(frozen=True)
class ChangedContrast:
    """An arm's verdicts against its baseline on both sides, and the test of how far that contrast moved."""

    a: str | None
    b: str | None
    delta: float | None
    delta_ci95: Interval | None
    p_holm: float | None


@dataclass(frozen=True)
class ComparedRow:
    """One arm of a comparison: B against A. A side without the arm is None."""

    study: str
    recipe: str
    name: str
    metric: str
    objective: str
    arm: str
    a: Reached | None
    b: Reached | None
    delta: float | None
    delta_ci95: Interval | None
    p: float | None
    p_holm: float | None
    verdict: str | None
    worse_by_at_most: float | None
    untested: str | None
    resolvable_difference: float | None
    method: str | None
    n_pairs: int | None
    identical: Sequence[int]
    contrast: ChangedContrast | None
    notes: Sequence[str]


@dataclass(frozen=True)
class Contents:
    """The contents of one side of a comparison: its studies, and its trials planned and done."""

    studies: Sequence[str]
    planned: int
    over: int


@dataclass(frozen=True)
class Comparison:
    """Two sets of results, arm by arm. provenance: by field, the values of A and B where they differ."""

    a: Contents
    b: Contents
    rows: Sequence[ComparedRow]
    provenance: Mapping[str, Mapping[str, Sequence[str]]]
    family: int
    verdicts: Mapping[str, int]


@dataclass(frozen=True)
class PublishedNumber:
    """A published mean, which has no n and no interval."""

    mean: float | None
    n: None = None
    ci95: None = None


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """An arm beside its published number: another setting, so there is no difference and no verdict."""

    study: str
    recipe: str
    name: str
    metric: str
    arm: str
    a: Reached
    b: PublishedNumber
    delta: None = None
    delta_ci95: None = None
    p_holm: None = None
    verdict: None = None
    untested: str = "other setting"
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class PublishedClaim:
    """A judged claim beside the difference of the published numbers."""

    study: str
    recipe: str
    name: str
    metric: str
    claim: str
    verdict: str | None
    delta: float | None
    delta_ci95: Interval | None
    p_holm: float | None
    n_pairs: int | None
    note: str
    published_delta: float | None
    notes: Sequence[str]


@dataclass(frozen=True)
class Sources:
    """The source of each study's claims, and where the published numbers come from."""

    studies: Sequence[str]
    published_of: Sequence[str]


@dataclass(frozen=True)
class PublishedComparison:
    """The judged claims of papers, and our results beside their numbers."""

    a: Contents
    b: Sources
    rows: Sequence[PublishedRow]
    claims: Sequence[PublishedClaim]
    provenance: Mapping[str, Any]
    verdicts: Mapping[str, int]


def json_object(record: Any) -> dict[str, Any]:
    """Return a record's fields by name; `json.dumps` calls this as its `default`."""
    if isinstance(record, Schema):
        return record.content()
    content = {one.name: getattr(record, one.name) for one in fields(record)}
    if isinstance(record, Row):
        content |= content.pop("measured")
    if isinstance(record, Table) and not record.abridged:
        del content["abridged"]
    return content


def as_json(record: Any) -> str:
    """Write a record, or a mapping or list of records, as indented JSON."""
    return json.dumps(record, default=json_object, indent=1, allow_nan=False)
