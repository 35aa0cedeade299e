"""Dataclasses that hold the contents of comparisons: of two sets of results, and of results with a publication."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.records import Claim, Interval, OfStudy, Reached, Rejudged


@dataclass(frozen=True)
class ChangedContrast:
    """The change from A to B in an arm's contrast with its baseline. a, b: the arm's verdicts in A and B."""

    a: str | None
    b: str | None
    delta: float | None
    delta_ci95: Interval | None
    p_holm: float | None


@dataclass(frozen=True, kw_only=True)
class ComparedRow(OfStudy, Rejudged):
    """A row of a comparison: one arm in results A and in results B. One of the two may lack the arm.

    delta: B - A. delta_ci95_images: as in `Row`. worse_by_at_most: the one-sided 95% bound on how much worse B is.
    worse_share_at_most: the same as a share of A's error. untested: why there is no verdict. resolvable_difference: the
    smallest that the test would have resolved with 80% power. identical: seeds left out of the test, because their
    trials are identical in A and B. interim: whether the study of a side is unfinished. Fields with defaults are of the
    test.
    """

    objective: str
    arm: str
    a: Reached | None
    b: Reached | None
    delta: float | None = None
    delta_ci95: Interval | None = None
    p: float | None = None
    p_holm: float | None = None
    verdict: str | None = None
    worse_by_at_most: float | None = None
    worse_share_at_most: float | None = None
    untested: str | None
    resolvable_difference: float | None = None
    method: str | None = None
    n_pairs: int | None = None
    identical: Sequence[int] = ()
    interim: bool = False
    first_declared: str | None = None
    delta_ci95_images: Interval | None = None
    contrast: ChangedContrast | None
    notes: Sequence[str]


@dataclass(frozen=True)
class Contents:
    """One side of a comparison: its studies, and how many trials are planned and over. Shared ones count once."""

    studies: Sequence[str]
    planned: int
    over: int


@dataclass(frozen=True)
class Comparison:
    """A comparison of two sets of results, A and B, arm by arm.

    provenance: provenance field, recipe or setting that differs -> {"a": values, "b": values}. family: the number of
    distinct tests. judged: whether all tested rows have verdicts, even of unfinished sides.
    """

    a: Contents
    b: Contents
    rows: Sequence[ComparedRow]
    provenance: Mapping[str, Mapping[str, Sequence[str]]]
    family: int
    judged: bool
    verdicts: Mapping[str, int]

    @property
    def withheld_rows(self) -> list[ComparedRow]:
        """The rows without a verdict because a side is unfinished."""
        return [] if self.judged else [row for row in self.rows if row.interim]


@dataclass(frozen=True)
class PublishedNumber:
    """A published mean, which has neither a number of trials nor a confidence interval."""

    mean: float | None
    n: None = None
    ci95: None = None


@dataclass(frozen=True, kw_only=True)
class PublishedRow(OfStudy):
    """The results of an arm and its published number, without difference or verdict because the settings differ."""

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
class PublishedClaim(Claim, OfStudy):
    """A published claim with its verdict, its difference in the study, and the difference of the published numbers."""

    published_delta: float | None
    notes: Sequence[str]


@dataclass(frozen=True)
class Sources:
    """The sources of studies, and of their published numbers, each as "<study>: <source>"."""

    studies: Sequence[str]
    published_of: Sequence[str]


@dataclass(frozen=True)
class PublishedComparison:
    """A comparison of studies with published numbers and claims. verdicts: verdict as text -> number of claims."""

    a: Contents
    b: Sources
    rows: Sequence[PublishedRow]
    claims: Sequence[PublishedClaim]
    provenance: Mapping[str, Any]
    verdicts: Mapping[str, int]
