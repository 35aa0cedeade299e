"""Calibration of races: false verdicts, the power that is left, and the trials that are saved."""

import math
from collections.abc import Iterator

import numpy as np

from benchmarks.calibration.studies import SD, Line, any_resolved, contrast_rows, seeds_and_arms, share_of, study
from results.statistics import race as racing
from results.statistics.power import PlannedTest
from results.study_results import StudyResults

SIZES = ((3, 5), (3, 10), (7, 10))  # arms, seeds


def race(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count verdicts of races of which no arm differs, one is better, or all are worse."""
    for arms, n in SIZES:
        what = f"race of {arms} arms, {n} seeds"
        effect = PlannedTest(SD * math.sqrt(2), arms).resolvable_difference(n)  # with 80% power in a study of all seeds
        nulls = [raced(seeds_and_arms(rng, arms, n)) for _ in range(studies)]
        rows = [contrast_rows(made) for made, _ in nulls]
        yield share_of(f"{what}, none differs: a verdict", map(any_resolved, rows))
        yield share_of("... better", (any_resolved(of, ["better"]) for of in rows), high=0.025)
        yield share_of("... trials saved", [saved for _, saved in nulls], high=1.0)
        whole = (study(seeds_and_arms(rng, arms, n), race=True) for _ in range(studies))
        found = (any_resolved(contrast_rows(one), ["worse"]) for one in whole)
        yield share_of("... worse at any look, if no arm stops for want of prospects", found, high=0.025)

        one_better = effect * (np.arange(arms + 1) == 1)[:, None]
        races = [raced(seeds_and_arms(rng, arms, n) + one_better) for _ in range(studies)]
        found = (contrast_rows(made)[0].verdict == "better" for made, _ in races)
        yield share_of(f"{what}, one better by {100 * effect:.2f} points: better", found, 0.77, 0.84)
        yield share_of("... trials saved", [saved for _, saved in races], high=1.0)

        worse = effect * (np.arange(arms + 1) > 0)[:, None]
        races = [raced(seeds_and_arms(rng, arms, n) - worse) for _ in range(studies)]
        yield share_of(f"{what}, all worse by as much: trials saved", [saved for _, saved in races], 0.4, 1.0)
        first = (contrast_rows(made)[0].verdict for made, _ in races)
        yield share_of("... the first is called worse", (word == "worse" for word in first), high=1.0)
        whole = (study(seeds_and_arms(rng, arms, n) - worse, race=True) for _ in range(studies))
        found = (contrast_rows(one)[0].verdict == "worse" for one in whole)
        yield share_of("... if no arm stops for want of prospects", found, high=1.0)


def raced(accuracies: np.ndarray) -> tuple[StudyResults, float]:
    """Return a study whose race trains no more than it must, and the share of its trials saved. (arms, seeds)"""
    left = accuracies.copy()
    made = study(accuracies, race=True)
    stops = racing.stops(made)
    for row, arm in zip(left, made.plan.arms, strict=True):
        if arm.name in stops:
            row[stops[arm.name].seeds :] = np.nan
    return study(left, race=True), float(np.isnan(left).mean())
