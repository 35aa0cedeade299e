"""Calibration of races, and of `ablate gate`: false verdicts and keeps, power, and what early decisions save."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import scipy.stats
from statsmodels.stats.multitest import multipletests

from benchmarks.calibration.studies import (
    ALPHA,
    SD,
    Line,
    any_resolved,
    contrast_rows,
    covers,
    seeds_and_arms,
    share_of,
    study,
)
from results.statistics import intervals, stream
from results.statistics import race as racing
from results.statistics.power import PlannedTest
from results.study_results import StudyResults

SIZES = ((3, 5), (3, 10), (7, 10))  # arms, seeds of a race
PROPOSALS, REAL, EFFECT, MARGIN = 200, 10, 0.01, 0.005
STEPS, FRESH = [5, 10, 20, 40], 5
SPREAD = SD * math.sqrt(2)  # of a difference
ABANDONED = 0.3  # p after a step above which an impatient user gives a proposal up


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
        hits = (any_resolved(contrast_rows(one), ["worse"]) for one in whole)
        yield share_of("... worse at any look, if no arm stops for want of prospects", hits, high=0.025)

        one_better = effect * (np.arange(arms + 1) == 1)[:, None]
        races = [raced(seeds_and_arms(rng, arms, n) + one_better) for _ in range(studies)]
        hits = (contrast_rows(made)[0].verdict == "better" for made, _ in races)
        yield share_of(f"{what}, one better by {100 * effect:.2f} points: better", hits, 0.77, 0.84)
        yield share_of("... trials saved", [saved for _, saved in races], high=1.0)

        worse = effect * (np.arange(arms + 1) > 0)[:, None]
        races = [raced(seeds_and_arms(rng, arms, n) - worse) for _ in range(studies)]
        yield share_of(f"{what}, all worse by as much: trials saved", [saved for _, saved in races], 0.4, 1.0)
        first = (contrast_rows(made)[0].verdict for made, _ in races)
        yield share_of("... the first is called worse", (word == "worse" for word in first), high=1.0)
        whole = (study(seeds_and_arms(rng, arms, n) - worse, race=True) for _ in range(studies))
        hits = (contrast_rows(one)[0].verdict == "worse" for one in whole)
        yield share_of("... if no arm stops for want of prospects", hits, high=1.0)


def raced(accuracies: np.ndarray) -> tuple[StudyResults, float]:
    """Return the study of a race that trains no more than it must, and the share of its trials that this saves."""
    left = accuracies.copy()
    made = study(accuracies, race=True)
    stops = racing.stops(made)
    for row, arm in zip(left, made.plan.arms, strict=True):
        if arm.name in stops:
            row[stops[arm.name].seeds :] = np.nan
    return study(left, race=True), float(np.isnan(left).mean())


@dataclass
class Outcome:
    """What a stream of proposals led to. kept: by proposal."""

    real: np.ndarray
    kept: np.ndarray
    seeds: int = 0
    shown: list[bool] = field(default_factory=list)  # of each keep: whether the interval of its decision covers
    fresh: list[bool] = field(default_factory=list)  # the same of the interval with fresh seeds

    @property
    def false_share(self) -> float:
        return float((self.kept & ~self.real).sum() / max(1, self.kept.sum()))

    @property
    def power(self) -> float:
        return float(self.kept[self.real].mean())


def gates(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count false keeps in streams of 200 proposals, 10 of them better by a point.

    `n` counts streams. The share of false keeps varies less than that of streams with a false keep, so that the Monte
    Carlo error is an upper bound.
    """
    orders = {"first": np.arange(REAL), "last": np.arange(PROPOSALS - REAL, PROPOSALS), "at random": None}
    whole: list[Outcome] = []
    for name, places in orders.items():
        outcomes = [proposed(rng, real_changes(rng, places)) for _ in range(studies)]
        whole += outcomes
        yield mean_of(f"gate, real changes {name}: false keeps", [one.false_share for one in outcomes], ALPHA)
        yield mean_of("... real changes of a point kept", [one.power for one in outcomes])
        seeds = np.mean([one.seeds for one in outcomes]) / PROPOSALS / STEPS[-1]
        yield mean_of(f"... seeds used, of {STEPS[-1]} a proposal", [float(seeds)] * studies)
    null = [proposed(rng, np.zeros(PROPOSALS, bool)) for _ in range(studies)]
    yield mean_of("gate, no change is real: false keeps", [one.false_share for one in null], ALPHA)
    left = [proposed(rng, real_changes(rng, None), abandons=True) for _ in range(studies)]
    yield mean_of("gate, unpromising proposals abandoned: false keeps", [one.false_share for one in left], ALPHA)
    fixed = [real_changes(rng, None) for _ in range(studies)]
    rules: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "Holm over all 200, which knows them all": lambda p: multipletests(p, ALPHA, method="holm")[0],
        "p < 0.05 each": lambda p: p < ALPHA,
    }
    for name, decide in rules.items():
        outcomes = [Outcome(real, decide(p_values(rng, real))) for real in fixed]
        yield mean_of(f"{name}, {STEPS[-1]} seeds: false keeps", [one.false_share for one in outcomes])
        yield mean_of("... real changes of a point kept", [one.power for one in outcomes])
    shown = [covered for one in whole for covered in one.shown]
    fresh = [covered for one in whole for covered in one.fresh]
    yield share_of("interval of a kept change as it was decided (what fresh seeds avoid)", shown, high=1.0)
    yield share_of(f"interval of a kept change with {FRESH} fresh seeds", fresh, 0.95, 0.95)


def mean_of(what: str, shares: list[float], high: float = 1.0) -> Line:
    return Line(what, 0.0, high, float(np.mean(shares)), len(shares))


def real_changes(rng: np.random.Generator, places: np.ndarray | None) -> np.ndarray:
    """Return which proposals are real (proposals,). places: None for places at random."""
    real = np.zeros(PROPOSALS, bool)
    real[rng.choice(PROPOSALS, REAL, replace=False) if places is None else places] = True
    return real


def proposed(rng: np.random.Generator, real: np.ndarray, abandons: bool = False) -> Outcome:
    """Return the outcome of a stream. abandons: whether proposals with a large p are left without a decision."""
    outcome = Outcome(real, np.zeros(len(real), bool))
    keeps: list[int] = []
    for number, is_real in enumerate(real):
        level = stream.next_level(number, keeps)
        effect = EFFECT * is_real
        differences = rng.normal(effect, SPREAD, STEPS[-1] + FRESH)
        for step, seeds in enumerate(STEPS, 1):
            gain = intervals.mean(differences[:seeds])
            of_step = stream.step_level(level, STEPS, step)
            decision = stream.decide(gain, MARGIN, of_step, is_last=seeds == STEPS[-1])
            p = stream.p_better(gain)
            if decision.answer != "more" or (abandons and p is not None and p > ABANDONED):
                break
        outcome.seeds += seeds
        if decision.answer == "keep":
            outcome.kept[number] = True
            keeps.append(number + 1)
            outcome.shown.append(covers(gain.interval(), effect))
            outcome.fresh.append(covers(intervals.mean(differences[STEPS[-1] :]).interval(), effect))
    return outcome


def p_values(rng: np.random.Generator, real: np.ndarray) -> np.ndarray:
    """Return one-sided p values of all proposals, each with all seeds (proposals,)."""
    drawn = rng.normal(0, SPREAD, (len(real), STEPS[-1])) + EFFECT * real[:, None]
    return np.asarray(scipy.stats.ttest_1samp(drawn, 0, axis=1, alternative="greater").pvalue)
