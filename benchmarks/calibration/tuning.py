"""Calibration of arms at their tuned rates: means, verdicts, rates at which trials diverge, and power."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import synthetic

from benchmarks.calibration.studies import OFFICIAL, SD, Line, any_resolved, share_of
from results.records import Row
from results.statistics.power import PlannedTest
from results.study_results import StudyResults
from results.tables.study_table import table

ARMS, SEEDS = 2, 5
GRIDS = {  # the rates' differences from the best
    "one clearly best": (-0.08, -0.08, 0.0, -0.08, -0.08),
    "two others within a point of it": (-0.08, -0.01, 0.0, -0.01, -0.08),
    "all five alike": (0.0,) * 5,
}
DIVERGES = {  # how often trials diverge at each rate
    "a tenth of the best": (0.0, 0.0, 0.1, 0.4, 1.0),
    "a third of the best": (0.0, 0.0, 0.33, 0.66, 1.0),
    "a fifth of all": (0.2,) * 5,
}


def tuning(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count means above the truth, and verdicts, if each seed's rate is chosen by the other seeds.

    Seeds share the choice, which varies between studies, and no interval over seeds contains that. So a verdict is
    over the other arm's whole grid.
    """
    means = (tuned_row(*draw(rng, GRIDS["all five alike"])).mean for _ in range(studies))
    above = (mean is not None and mean > 0.9 for mean in means)
    yield share_of("a rate of five alike, chosen by the other seeds' validation: a mean too high", above, 0.5, 0.5)
    for close in (0.0, 0.9):
        drawn = (draw(rng, GRIDS["two others within a point of it"], close) for _ in range(studies))
        alike = (any_resolved([tuned_row(*one)]) for one in drawn)
        yield share_of(f"two arms alike, validation and test correlated by {close:.1f}: a verdict", alike)
    for name, grid in GRIDS.items():
        alike = (any_resolved([tuned_row(*draw(rng, grid))]) for _ in range(studies))
        yield share_of(f"two arms alike, each at its own rate, {name}: a verdict", alike)
    yield from diverging_rates(rng, studies)
    yield from tuned_power(rng, studies)


def diverging_rates(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count verdicts on equal arms whose rates diverge, and choices of such rates by arms near chance."""
    grid = (-0.08, -0.02, 0.0, -0.01, -0.08)
    for name, share in DIVERGES.items():
        rows = (tuned_row(*draw(rng, grid), diverged=drawn_divergence(rng, share)) for _ in range(studies))
        yield share_of(f"two arms alike, {name} trials diverge: a verdict", (any_resolved([row]) for row in rows))
    last = np.broadcast_to(np.arange(5)[:, None, None] == 4, (5, ARMS, SEEDS))
    drawn = (draw(rng, GRIDS["all five alike"], accuracy=0.1) for _ in range(studies))
    last_diverged = [tuned_row(*one, diverged=last) for one in drawn]
    chosen = (row.diverged > 0 or any("add lr 0.006" in note for note in row.notes) for row in last_diverged)
    yield share_of("arms near chance, all trials of the last rate diverge: it is chosen, or advised", chosen, 0.0, 0.0)


def tuned_power(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count resolved differences and ties of the size that a plan states, in both cases that it names."""
    sd = 2 * SD  # of a difference: each trial has a variance of training, and one of testing
    for points, name in ((1, "one clearly best"), (5, "all five alike")):
        test = PlannedTest(sd, points=points)
        effect = test.resolvable_difference(SEEDS)
        rows = (tuned_row(*draw(rng, GRIDS[name], effect=effect)) for _ in range(studies))
        what = f"power, tuned, 5 seeds, {name}: worse by {100 * effect:.2f} points"
        # A best rate at the edge of the grid gives no verdict, in 2% of studies of rates alike.
        yield share_of(what, (row.verdict == "worse" for row in rows), 0.77, 0.82)
        margin = test.smallest_margin(SEEDS)
        rows = (tuned_row(*draw(rng, GRIDS[name]), margin=margin) for _ in range(studies))
        what = f"power, tuned, 5 seeds, {name}: equivalent within {100 * margin:.2f} points"
        yield share_of(what, (row.verdict == "equivalent" for row in rows), 0.76, 0.82)


def draw(
    rng: np.random.Generator, grid: Sequence[float], close: float = 0.5, effect: float = 0.0, accuracy: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """Draw test and validation accuracies (rates, arms, seeds) with standard deviation sqrt(2) SD.

    close: the correlation of test and validation. effect: how much lower the second arm is.
    """
    means = accuracy + np.array(grid)[:, None, None] - effect * np.arange(ARMS)[None, :, None]
    training, test, validation = math.sqrt(2) * SD * rng.normal(0, 1, (3, len(grid), ARMS, SEEDS))
    test, validation = (math.sqrt(close) * training + math.sqrt(1 - close) * one for one in (test, validation))
    return means + test, means + validation


def drawn_divergence(rng: np.random.Generator, share: Sequence[float]) -> np.ndarray:
    return rng.random((len(share), ARMS, SEEDS)) < np.array(share)[:, None, None]


@cache
def tuned_template(rates: int) -> StudyResults:
    grid = [0.001 * (i + 1) for i in range(rates)]
    stems = {"stem": ["v0", "v1"]}
    plan = synthetic.make_plan("s", stems, {"stem": "v0"}, curves={"lr": grid}, split=OFFICIAL, margin=None)
    plan = synthetic.tuned(plan, "stem")
    return synthetic.results(plan, synthetic.from_accuracies(plan, {arm["name"]: [0.9] * 5 for arm in plan["arms"]}))


def tuned_row(test: np.ndarray, validation: np.ndarray, diverged: np.ndarray | None = None, **planned: Any) -> Row:
    """Return the row of the arm at its tuned rate; test, validation, diverged: (rates, arms, seeds).

    planned: overrides fields of the plan.
    """
    base = tuned_template(len(test))
    columns = base.columns | {"test_accuracy": test.ravel().tolist(), "val_accuracy": validation.ravel().tolist()}
    if diverged is not None:
        values = {
            name: np.where(diverged, np.nan, of) for name, of in (("test_accuracy", test), ("val_accuracy", validation))
        }
        columns |= {name: of.ravel().tolist() for name, of in values.items()}
        columns |= {"status": np.where(diverged, "diverged", "finished").ravel().tolist()}
    plan = base.plan.model_copy(update=planned) if planned else base.plan
    rows = table(replace(base, plan=plan, columns=columns)).rows
    return next(row for row in rows if row.arm == "stem=v1,lr=tuned")
