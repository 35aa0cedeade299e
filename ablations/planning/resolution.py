"""The smallest difference and margin that a plan's seeds can resolve, computed with results/statistics/power.py."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from ablations.planning.saved_plans import saved_plan
from results import units
from results.load import load_studies
from results.statistics import intervals, looks, tuning
from results.statistics.contrast import Measured, difference, samples_by_arm
from results.statistics.power import MOST_SEEDS, PlannedTest
from results.store import ledger
from results.store.schemas.metrics import Metric, margin_at, margin_text, too_wide
from results.store.schemas.plans import Plan
from results.study_results import StudyResults

POINTS = (0.01, 0.005)  # differences of accuracy: 1 and 0.5 points


@dataclass(frozen=True)
class Spread:
    """The standard deviation of differences between two arms' trials, with its degrees of freedom."""

    sd: float
    bound: float  # the upper 80% confidence bound of the standard deviation
    freedom: int
    source: str
    images: float | None = 0.0  # the variance that test images add to a mean difference; None: they do, but unknown


@dataclass(kw_only=True)
class Resolution:
    """The differences and margins that a plan resolves with 80% power, as `ablate plan --json` prints them.

    They are in the metric's unit, and None if unknown or infinite. A number of seeds over MOST_SEEDS is None.
    They allow for the looks that were taken: p is multiplied by `factor` in a table with `seeds` seeds, and by
    `factor_of_more` in a table with more. In a tuned study, they are those of the worst case, in which all grid points
    of an arm are equally good.
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
    factor: int = 1
    factor_of_more: int = 1
    margin: float | str | None  # the declared equivalence margin, a difference or a share of the baseline's error
    margin_size: float | None = None  # the margin as a difference, None if the baseline's mean is unknown
    margin_too_wide: str = ""  # why the margin is too wide to call an arm equivalent
    seeds_for: dict[str, int | None] = field(default_factory=dict)  # difference -> number of seeds that resolves it
    note: str


def resolution(plan: Plan, runs: Path) -> Resolution:
    seeds = len(plan.seeds)
    family = max(plan.family, 1)
    points = max((len(entry.points) for entry in plan.tuned), default=1)
    factor, factor_of_more = factors_of_tables(plan, runs)
    study = so_far(plan, runs)
    margin_size, margin_too_wide = size_of_margin(plan, study)
    note = ""
    if plan.split and plan.split.folds:
        note = (
            f"beyond {plan.split.folds} seeds every image is tested again, so that more seeds gain less than this says"
        )
    resolved = Resolution(
        seeds=seeds,
        contrasts=family,
        grid_points=points,
        factor=factor,
        factor_of_more=factor_of_more,
        margin=plan.margin,
        margin_size=margin_size,
        margin_too_wide=margin_too_wide,
        note=note,
    )
    spread = spread_of_differences(plan, study)
    if spread is None:
        return resolved
    planned = PlannedTest(spread.bound, family * factor, points, spread.images or 0.0, plan.is_paired)
    of_more = replace(planned, tests=family * factor_of_more)

    def fewest(seeds_for: Callable[[PlannedTest, float], int | None], size: float) -> int | None:
        """Return the fewest seeds. More than the plan has are for the tests of a table with more seeds."""
        needed = seeds_for(planned, size)
        if factor_of_more == factor or (needed is not None and needed <= seeds):
            return needed
        return seeds_for(of_more, size)

    resolved.spread = spread
    resolved.difference = finite_or_none(planned.resolvable_difference(seeds))
    smallest = planned.smallest_margin(seeds)
    resolved.smallest_margin = finite_or_none(smallest)
    if points > 1:
        one_is_best = replace(planned, points=1).resolvable_difference(seeds)
        resolved.difference_if_one_is_best = finite_or_none(one_is_best)
    if margin_size is not None and not margin_too_wide:
        resolved.margin_reachable = smallest <= margin_size
        resolved.margin_seeds = fewest(PlannedTest.seeds_to_show_equivalent, margin_size)
    if plan.primary_metric.is_accuracy:
        for size in POINTS:
            resolved.seeds_for[str(size)] = fewest(PlannedTest.seeds_to_resolve, size)
    return resolved


def factors_of_tables(plan: Plan, runs: Path) -> tuple[int, int]:
    """Return the factors by which looks multiply p in tables of (the plan's seeds, other numbers of seeds)."""
    declared = ledger.read_declarations(runs)
    with_results = ledger.with_declarations(plan, declared)
    now = ledger.declaration(plan, ledger.time_after(declared), ledger.ended_trials(runs, plan))
    more = now.model_copy(update={"seeds": [*now.seeds, max(now.seeds, default=0) + 1]})
    return looks.planned_factor(with_results, now), looks.planned_factor(with_results, more)


def so_far(plan: Plan, runs: Path) -> StudyResults | None:
    saved = saved_plan(runs, plan.name)
    if saved is None or saved.metric != plan.metric:
        return None
    (study,) = load_studies(runs, [plan.name], parts=("correct",) if may_need_images(plan) else ())
    return study


def may_need_images(plan: Plan) -> bool:
    """Return whether verdicts count the noise of test images, if seeds share them and answers are stored."""
    splits = [plan.split_of(arm) for arm in plan.arms]
    return plan.metric == plan.per_image_metric and not all(split and split.folds for split in splits)


def size_of_margin(plan: Plan, study: StudyResults | None) -> tuple[float | None, str]:
    """Return (the margin as a difference, None if unknown; why it is too wide, "" if it is not)."""
    if plan.margin is None:
        return None, ""
    mean = baseline_mean(plan, study)
    if mean is None and isinstance(plan.margin, str):
        return None, ""
    if mean is None:
        return float(plan.margin), ""
    size = margin_at(plan.margin, mean, plan.primary_metric)
    return float(size), too_wide(plan.margin, mean, plan.primary_metric, plan.chance_of(plan.baseline_arm))


def baseline_mean(plan: Plan, study: StudyResults | None) -> float | None:
    if study is not None:
        mean = samples_by_arm(study, study.plan.metric)[study.plan.baseline].mean.value
        if mean is not None:
            return mean
    return next((stated.mean for stated in plan.expected if stated.metric == plan.metric), None)


def spread_of_differences(plan: Plan, study: StudyResults | None) -> Spread | None:
    groups: list[list[Measured]] = []
    if study is not None:
        groups = differences(tuning.tuned_arms_only(study), plan.is_paired)  # the differences that the table tests
    stated = plan.spread
    if any(measured.mean.se is not None for measured in itertools.chain(*groups)):
        sd, freedom = pooled_spread(groups, plan.is_paired)
        source = "the differences of this study so far"
        if plan.data_sets:
            source += ", on all data sets together"
    elif stated and stated.metric == plan.metric:
        groups = []
        sd = stated.sd
        freedom = stated.freedom
        source = f"the recipe ({stated.how}: {stated.source})"
    else:
        return None
    return Spread(sd, intervals.sd_bound(sd, freedom), freedom, source, images_variance(plan, groups))


def pooled_spread(groups: Sequence[Sequence[Measured]], is_paired: bool) -> tuple[float, int]:
    """Return the standard deviation of a difference of two trials, and its degrees of freedom. groups: by baseline."""
    if is_paired:
        numbers: list[list[np.ndarray]] = []
        for group in groups:
            numbers.append([term.numbers for measured in group for term in measured.terms])
        sd, _ = intervals.pooled_sd(list(itertools.chain(*numbers)))
        return sd, intervals.pooled_df(numbers)
    arms: dict[tuple[str, ...], np.ndarray] = {}
    for measured in itertools.chain(*groups):
        for term in measured.terms:
            arms[tuple(term.ids.values())] = term.numbers
    sd, freedom = intervals.pooled_sd(list(arms.values()))
    return math.sqrt(2) * sd, freedom


def images_variance(plan: Plan, groups: Sequence[Sequence[Measured]]) -> float | None:
    """Return the mean variance that test images add to the differences, 0 if they add none, or None if unknown."""
    if not may_need_images(plan):
        return 0.0
    known = [measured.images_variance for measured in itertools.chain(*groups)]
    variances = [variance for variance in known if variance is not None]
    if variances:
        return fmean(variances)
    return None if plan.split else 0.0  # training code of the user's need not store answers


def differences(study: StudyResults, is_paired: bool) -> list[list[Measured]]:
    """Return the difference of each arm from its baseline, one list per baseline."""
    samples = samples_by_arm(study, study.plan.metric)
    groups: dict[str, list[Measured]] = {}
    for arm in study.plan.arms:
        if arm.name != arm.baseline:
            from_baseline = difference(samples[arm.name], samples[arm.baseline], is_paired)
            groups.setdefault(arm.baseline, []).append(from_baseline)
    return list(groups.values())


def finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def resolution_lines(resolved: Resolution, metric: Metric) -> list[str]:
    spread = resolved.spread
    if spread is None:
        return [
            f"unknown: no differences of {metric.name} in this run directory yet, and the recipe states none for this"
        ]
    tests = ["80% power", units.amount_text(resolved.contrasts, "contrast"), look_text(resolved.factor)]
    lines = [
        f"{size_text(resolved.difference, metric)} in {metric.title} with {seed_text(resolved.seeds)} "
        f"({', '.join(filter(None, tests))})"
    ]
    if resolved.grid_points > 1:
        smaller = size_text(resolved.difference_if_one_is_best, metric)
        lines.append(
            f"if all {resolved.grid_points} grid points of an arm are equally good, as the other arm must beat each of "
            f"them; {smaller} if one is clearly best"
        )
    freedom = units.amount_text(spread.freedom, "degree")
    lines.append(
        f"differences spread by {metric.size_text(spread.sd)} ({freedom} of freedom, from {spread.source}); "
        f"computed with its upper 80% bound, {metric.size_text(spread.bound)}"
    )
    if spread.images != 0.0:
        lines.append(images_text(spread.images, metric))
    if resolved.margin is not None:
        lines.append(margin_line(resolved, margin_text(resolved.margin, metric), metric))
    if resolved.seeds_for:
        lines.append(seeds_line(resolved, metric))
    return lines


def seeds_line(resolved: Resolution, metric: Metric) -> str:
    """Return the numbers of seeds that resolve given differences. Those above the plan's have notes."""
    numbers = [f"{metric.size_text(float(size))} {seed_text(seeds)}" for size, seeds in resolved.seeds_for.items()]
    line = "to resolve " + ", ".join(numbers)
    notes = "; ".join(filter(None, [look_text(resolved.factor_of_more), resolved.note]))
    if notes and any(seeds is None or seeds > resolved.seeds for seeds in resolved.seeds_for.values()):
        return f"{line} ({notes})"
    return line


def images_text(variance: float | None, metric: Metric) -> str:
    """Return what the choice of test images adds to the noise. variance: of a mean difference, None if unknown."""
    if variance is None:
        return (
            "this leaves out the noise of the test images, which is known once trials are over: differences are larger"
        )
    return f"test images add a standard error of {metric.size_text(math.sqrt(variance))}, however many seeds there are"


def margin_line(resolved: Resolution, margin: str, metric: Metric) -> str:
    if resolved.margin_too_wide:
        return f"no arm can be called equivalent: {resolved.margin_too_wide}"
    if resolved.margin_size is None:
        return f"equal arms are shown equivalent within {margin}: unknown before the baseline has trials"
    text = f"equal arms are shown equivalent within {margin}"
    if isinstance(resolved.margin, str):
        text += f" ({metric.size_text(resolved.margin_size)})"
    if resolved.margin_reachable:
        return f"{text} with 80% power, and within {size_text(resolved.smallest_margin, metric)} too"
    return f"{text} with less than 80% power: that takes {seed_text(resolved.margin_seeds)}"


def look_text(factor: int) -> str:
    return {1: "", 2: "p times 2, as the study grows"}.get(factor, f"p times {factor} after earlier tables")


def size_text(value: float | None, metric: Metric) -> str:
    if value is None or value > metric.largest_difference:
        return "no difference"
    return metric.size_text(value)


def seed_text(seeds: int | None) -> str:
    if seeds is None:
        return f"more than {MOST_SEEDS} seeds"
    return units.amount_text(seeds, "seed")
