"""Calibration of secondary metrics: false verdicts in any metric of any arm, whatever is true of the first metric."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.calibration.studies import ALPHA, SD, Line, seeds_and_arms, share_of, study
from results.records import Row
from results.statistics.verdict import RESOLVED, holm
from results.tables.study_table import table

FIRST, METRICS, LARGE = "test_accuracy", ("test_loss", "train_loss"), 0.2  # LARGE: a difference that no test misses


@dataclass(frozen=True)
class Truth:
    """How many of the arms really differ in the first metric, and of those in the first secondary metric too."""

    what: str
    arms: int
    first: int
    second: int = 0


TRUTHS = (
    Truth("no arm differs", 3, 0),
    Truth("all arms differ in the first metric alone", 3, 3),
    Truth("one arm of 3 differs in the first metric alone", 3, 1),
    Truth("one arm of 7 differs in the first metric alone", 7, 1),
    Truth("two arms of 3 differ, in two metrics", 3, 2, 2),
)


def secondary(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count studies with a false verdict. Each arm is tested in three metrics, which share what a seed brings."""
    for truth in TRUTHS:
        wrong, alone = [], []
        for _ in range(studies):
            rows = drawn_rows(rng, truth)
            wrong.append(any(false_verdicts(rows, truth)))
            alone.append(any(false_verdicts(rows, truth, metrics_alone=True)))
        yield share_of(f"{truth.what}: a false verdict in 3 metrics", wrong)
        if truth.first == 1:
            yield share_of("... secondary metrics corrected by Holm on their own (what this avoids)", alone, high=1.0)
    plans = (study(seeds_and_arms(rng, 3, 5), secondary_metrics=["params"]) for _ in range(studies))
    hits = (any(row.dominated_by for row in table(made).rows) for made in plans)
    yield share_of("arms of equal accuracy, each with more parameters: one is dominated", hits)


def drawn_rows(rng: np.random.Generator, truth: Truth) -> list[Row]:
    """Return the arms' rows of a study with 5 seeds, without the baseline's."""
    arms = np.arange(truth.arms + 1)[:, None]
    first = seeds_and_arms(rng, truth.arms, 5)
    made = study(first - LARGE * ((arms > 0) & (arms <= truth.first)), secondary_metrics=list(METRICS))
    columns = dict(made.columns)
    for name, differing in zip(METRICS, (truth.second, 0), strict=True):
        values = first + rng.normal(0, SD, first.shape) + LARGE * ((arms > 0) & (arms <= differing))
        columns[name] = values.ravel().tolist()
    return list(table(replace(made, columns=columns)).rows[1:])


def false_verdicts(rows: list[Row], truth: Truth, metrics_alone: bool = False) -> Iterator[bool]:
    """Yield whether an arm that does not differ in a metric is called better or worse.

    metrics_alone: correct the secondary metrics of resolved arms by Holm at 5%, as if they were alone.
    """
    yield from (row.verdict in RESOLVED for row in rows[truth.first :])
    for name, differing in zip(METRICS, (truth.second, 0), strict=True):
        if not metrics_alone:
            yield from (row.secondary[name].verdict in RESOLVED for row in rows[differing:])
    if metrics_alone:
        opened = [row.secondary[name].p for row in rows for name in METRICS if row.secondary[name].p is not None]
        yield from (p is not None and p < ALPHA for p in holm(opened))
