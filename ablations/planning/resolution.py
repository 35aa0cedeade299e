"""The smallest difference and margin that a plan's seeds can resolve, computed with results/statistics/power.py."""

import itertools
import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ablations.planning.jobs import read
from results import units
from results.load import load_studies
from results.statistics import deviations, interim, power, tuning
from results.statistics.contrast import Sample, samples_by_arm
from results.store.schemas import Plan
from results.study_results import StudyResults

POINTS = (0.01, 0.005)  # differences of accuracy: 1 and 0.5 points


@dataclass(frozen=True)
class Spread:
    """The standard deviation of per-seed differences between two arms, with its degrees of freedom."""

    sd: float
    bound: float  # the upper 80% confidence bound of the standard deviation
    freedom: int
    source: str

    @classmethod
    def from_sd(cls, sd: float, freedom: int, source: str) -> "Spread":
        return cls(sd, deviations.sd_bound(sd, freedom), freedom, source)


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The differences and margins that a plan resolves with 80% power, as `ablate plan --json` prints them.

    They are in the metric's unit, and None if unknown or infinite. A number of seeds over power.MOST_SEEDS is None. In
    a tuned study, they are those of the worst case, in which all grid points of an arm are equally good.
    """

    spread: Spread | None = None
    difference: float | None = None  # the smallest resolved difference
    difference_if_one_is_best: float | None = None  # the same where one point of each grid is clearly best
    smallest_margin: float | None = None  # the smallest margin within which equal arms are shown equivalent
    margin_reachable: bool | None = None  # whether `seeds` seeds show equal arms equivalent within `margin`
    margin_seeds: int | None = None  # the fewest seeds that show equal arms equivalent within `margin`
    seeds: int
    contrasts: int
    grid_points: int = 1  # of each tuned arm; 1 without tuning
    margin: float | None  # the declared equivalence margin
    seeds_for: dict[str, int | None] = field(default_factory=dict)  # difference -> number of seeds that resolves it
    note: str


def resolution(plan: Plan, runs: Path) -> Resolution:
    seeds, family, margin = len(plan.seeds), max(plan.family, 1), plan.margin
    tests = family * interim.correction_factor(plan)
    again = f"beyond {plan.split.folds} seeds every image is tested again, so that more seeds gain less than this says"
    points = max((len(entry.points) for entry in plan.tuned), default=1)
    note = again if plan.split.folds else ""
    known = Resolution(seeds=seeds, contrasts=family, grid_points=points, margin=margin, note=note)
    found = spread(plan, runs)
    if found is None:
        return known
    sd = found.bound
    smallest = finite_or_none(power.smallest_margin(seeds, sd, tests, points))
    one_is_best = power.resolvable_difference(seeds, sd, tests) if points > 1 else math.inf
    wanted = POINTS if units.is_accuracy(plan.metric) else ()
    return replace(
        known,
        spread=found,
        difference=finite_or_none(power.resolvable_difference(seeds, sd, tests, points)),
        difference_if_one_is_best=finite_or_none(one_is_best),
        smallest_margin=smallest,
        margin_reachable=None if margin is None else smallest is not None and smallest <= margin,
        margin_seeds=None if margin is None else power.seeds_to_show_equivalent(margin, sd, tests, points),
        seeds_for={str(difference): power.seeds_to_resolve(difference, sd, tests, points) for difference in wanted},
    )


def spread(plan: Plan, runs: Path) -> Spread | None:
    """Return the spread of the study's differences so far, pooled over arms, or else the recipe's, or else None."""
    if read(runs, plan.name) is not None:
        (study,) = load_studies(runs, [plan.name], parts=())
        groups = differences(tuning.tuned_arms_only(study))  # the differences that the table tests
        if any(pairs.mean.se is not None for group in groups for pairs in group):
            numbers = [[pairs.numbers for pairs in group] for group in groups]
            sd, _ = deviations.pooled_sd(list(itertools.chain(*numbers)))
            return Spread.from_sd(sd, deviations.pooled_df(numbers), "the differences of this study so far")
    stated = plan.spread
    if stated and stated.metric == plan.metric:
        return Spread.from_sd(stated.sd, stated.freedom, f"the recipe ({stated.how}: {stated.source})")
    return None


def differences(study: StudyResults) -> list[list[Sample]]:
    """Return the per-seed differences of each arm from its baseline, one list per baseline."""
    found = samples_by_arm(study, study.plan.metric)
    groups: dict[str, list[Sample]] = {}
    for arm in study.plan.arms:
        if arm.name != arm.baseline:
            groups.setdefault(arm.baseline, []).append(found[arm.name] - found[arm.baseline])
    return list(groups.values())


def finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def resolution_lines(found: Resolution, metric: str, objective: str = "") -> list[str]:
    """Return the resolution as lines of text. objective: the arms' objective, a part of the metric's name."""
    unit = units.unit(metric)
    spread = found.spread
    if spread is None:
        return ["unknown: no differences in this run directory yet, and the recipe states none for these settings"]
    contrasts, freedom = units.amount_text(found.contrasts, "contrast"), units.amount_text(spread.freedom, "degree")
    lines = [
        f"{size_text(found.difference, unit)} in {units.metric_name(metric, objective)} with {seeds_text(found.seeds)} "
        f"(80% power, {contrasts})",
        f"differences spread by {unit.size_text(spread.sd)} ({freedom} of freedom, from "
        f"{spread.source}); computed with its upper 80% bound, {unit.size_text(spread.bound)}",
    ]
    if found.grid_points > 1:
        lines.insert(1, grid_text(found, unit))
    if found.margin is not None:
        lines.append(margin_text(found, found.margin, unit))
    if found.seeds_for:
        wanted = [f"{unit.size_text(float(one))} {seeds_text(seeds)}" for one, seeds in found.seeds_for.items()]
        beyond = any(seeds is None or seeds > found.seeds for seeds in found.seeds_for.values())
        lines.append("to resolve " + ", ".join(wanted) + (f" ({found.note})" if found.note and beyond else ""))
    return lines


def grid_text(found: Resolution, unit: units.Unit) -> str:
    """Return what the resolved difference assumes about the grid of a tuned arm."""
    smaller = size_text(found.difference_if_one_is_best, unit)
    return (
        f"if all {found.grid_points} grid points of an arm are equally good, as the other arm must beat each of them; "
        f"{smaller} if one is clearly best"
    )


def margin_text(found: Resolution, margin: float, unit: units.Unit) -> str:
    text = f"equal arms are shown equivalent within {unit.size_text(margin)}"
    if found.margin_reachable:
        return f"{text} with 80% power, and within {size_text(found.smallest_margin, unit)} too"
    return f"{text} with less than 80% power: that takes {seeds_text(found.margin_seeds)}"


def size_text(value: float | None, unit: units.Unit) -> str:
    return unit.size_text(value) if value is not None and value <= unit.range else "no difference"


def seeds_text(seeds: int | None) -> str:
    return units.amount_text(seeds, "seed") if seeds is not None else f"more than {power.MOST_SEEDS} seeds"
