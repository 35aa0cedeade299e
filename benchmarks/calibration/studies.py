"""Studies with drawn accuracies, made in memory, and the share of them in which something was found."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import synthetic

from results.comparison.records import ComparedRow
from results.records import Row
from results.store.schemas.plans import Split
from results.study_results import StudyResults
from results.tables.study_table import table

OFFICIAL: dict[str, Any] = {"kind": "official", "folds": None, "images": 10000}
CONTINUOUS = OFFICIAL | {"images": 10**9}  # so many that half of one is no spread
ALPHA, SIGMAS = 0.05, 3.0  # Monte Carlo error is 3 standard errors
SD = 0.01  # of a seed
FOLDS = np.array([360, 360, 359, 359, 359])  # images that a seed of digits tests


@dataclass(frozen=True)
class Line:
    """The share of `n` studies in which something was found. From 0 to 1, nothing is promised about it."""

    what: str
    low: float
    high: float
    measured: float
    n: int

    @property
    def error(self) -> float:
        """The Monte Carlo error at the promised share, else at the measured share."""
        ends = [self.low, self.high]
        promised = [share for share in ends if 0 < share < 1] or ([self.measured] if ends == [0, 1] else ends)
        share = min(promised, key=lambda share: abs(share - self.measured))
        return SIGMAS * math.sqrt(share * (1 - share) / self.n)

    @property
    def holds(self) -> bool:
        return self.low - self.error <= self.measured <= self.high + self.error

    @property
    def expected(self) -> str:
        if self.low == self.high:
            return f"{self.low:.1%}"
        if self.low == 0:
            return "not promised" if self.high == 1 else f"at most {self.high:.1%}"
        return f"at least {self.low:.1%}" if self.high == 1 else f"{self.low:.1%} to {self.high:.1%}"


def share_of(what: str, hits: Iterable[float], low: float = 0.0, high: float = ALPHA) -> Line:
    hits = list(hits)
    return Line(what, low, high, float(np.mean(hits)), len(hits))


@cache
def template(arms: int, seeds: int, folds: bool = False) -> StudyResults:
    values = [f"v{i}" for i in range(arms + 1)]
    split = synthetic.DIGITS if folds else OFFICIAL
    plan = synthetic.make_plan("s", {"stem": values}, {"stem": "v0"}, seeds=seeds, split=split, margin=None)
    records = synthetic.from_accuracies(plan, {arm["name"]: [0.9] * seeds for arm in plan["arms"]})
    made = synthetic.results(plan, records)
    return made if folds else replace(made, plan=made.plan.model_copy(update={"split": Split(**CONTINUOUS)}))


def study(accuracies: np.ndarray, base: StudyResults | None = None, **planned: Any) -> StudyResults:
    """Return a study with accuracies (arms, n), the baseline's first, NaN for a missing trial.

    planned: overrides fields of the plan.
    """
    base = base or template(len(accuracies) - 1, accuracies.shape[1])
    values = accuracies.ravel()
    status = np.where(np.isnan(values), "missing", "finished")
    columns = base.columns | {"test_accuracy": values.tolist(), "status": status.tolist()}
    return replace(base, plan=base.plan.model_copy(update=planned), columns=columns)


def contrast_rows(results: StudyResults, **how: Any) -> Sequence[Row]:
    return table(results, **how).rows[1:]


def any_resolved(rows: Sequence[Row] | Sequence[ComparedRow], words: Sequence[str] = ("better", "worse")) -> bool:
    return any(row.verdict in words for row in rows)


def verdict(accuracies: np.ndarray, base: StudyResults | None = None, **how: bool) -> bool:
    """Return whether an arm of a study with these accuracies is called better or worse."""
    return any_resolved(contrast_rows(study(accuracies, base), **how))


def covers(interval: Sequence[float] | None, truth: float) -> bool:
    return interval is not None and interval[0] <= truth <= interval[1]


def seeds_and_arms(rng: np.random.Generator, arms: int, n: int) -> np.ndarray:
    """Draw accuracies (arms + 1, n): an effect of each seed, and one of each trial."""
    return 0.9 + rng.normal(0, SD, n) + rng.normal(0, SD, (arms + 1, n))
