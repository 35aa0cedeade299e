"""The arms of a study with the outcomes of their trials, and the tests of each arm against its baseline."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import NamedTuple

import numpy as np

from results.records import Pairing
from results.statistics import contrast, intervals, looks, race, verdict
from results.statistics.contrast import Sample, difference
from results.statistics.intervals import Interval
from results.statistics.looks import Look
from results.statistics.tuned_pairs import Pair
from results.statistics.tuning import PointChoice
from results.statistics.verdict import Tie
from results.store.schemas.plans import Arm, Plan
from results.store.schemas.trials import EvalSummary
from results.study_results import StudyResults, collapsed_seeds

FEWEST_PAIRS = 3  # of two, any correlation is 1 or -1


class TrialOutcome(NamedTuple):
    """The outcome of one planned trial. A number that does not exist is NaN.

    suspect_hardware: a step whose loss was NaN but finite when recomputed. value: the study's metric. collapsed: as in
    `collapsed_seeds`.
    """

    seed: int
    status: str
    reason: str
    evals: Mapping[str, EvalSummary]
    diverged_at_step: float
    suspect_hardware: float
    host: str
    device: str
    value: float
    collapsed: bool = False

    @property
    def has_metric(self) -> bool:
        return self.status == "finished" and not math.isnan(self.value)

    @property
    def is_over(self) -> bool:
        return self.status == "diverged" or self.has_metric

    @property
    def is_unstable(self) -> bool:
        return self.status == "diverged" or self.collapsed


@dataclass(frozen=True)
class ArmResults:
    """An arm of the plan with the outcomes of its trials, and the metric by seed.

    choice: the grid points of a tuned arm. grid: the metric at those of its grid points that comparisons include.
    is_at_edge: whether a best value of the arm or its baseline lies at the edge of the grid, so that the arm gets no
    verdict.
    """

    arm: Arm
    outcomes: Sequence[TrialOutcome]
    sample: Sample
    choice: PointChoice | None = None
    grid: Sequence[Sample] = ()
    is_at_edge: bool = False

    @property
    def name(self) -> str:
        return self.arm.name

    @property
    def over(self) -> list[TrialOutcome]:
        return [trial for trial in self.outcomes if trial.is_over]

    @property
    def is_stopped(self) -> bool:
        return self.count(race.STOPPED) > 0

    @property
    def collapsed(self) -> list[TrialOutcome]:
        return [trial for trial in self.outcomes if trial.collapsed]

    def count(self, status: str) -> int:
        return sum(trial.status == status for trial in self.outcomes)

    @cached_property
    def unstable(self) -> int:
        return sum(trial.is_unstable for trial in self.outcomes)

    def unstable_trials(self, seeds: Collection[int]) -> tuple[int, int]:
        over = [trial for trial in self.over if trial.seed in seeds]
        return sum(trial.is_unstable for trial in over), len(over)


@dataclass(frozen=True)
class Contrast:
    """An arm beside its baseline, with the tests of their difference. A p value is None if there was no test.

    pair: the differences arm - baseline. looks: those for which p values are corrected. family: the number of contrasts
    corrected together. p_margin: the adjusted p value of equivalence. margin_met: the smallest margin for which it is
    below 5%.
    """

    arm: ArmResults
    baseline: ArmResults
    pair: Pair
    tie: Tie | None
    p: float | None
    looks: Sequence[Look] = ()
    family: int = 0
    p_holm: float | None = None
    p_margin: float | None = None
    margin_met: float | None = None

    @property
    def is_at_edge(self) -> bool:
        """Whether a best value of either arm lies at the edge of its grid, so that there are no adjusted p values."""
        return self.arm.is_at_edge or self.baseline.is_at_edge

    @property
    def is_stopped(self) -> bool:
        return self.arm.is_stopped or self.baseline.is_stopped

    @property
    def unstable(self) -> tuple[int, int]:
        return self.arm.unstable, self.baseline.unstable

    @property
    def devices(self) -> tuple[list[str], list[str]]:
        """The known devices that trained the arm and its baseline, if a pair of seeds (unpaired: any) mixes some."""
        of_arm = {trial.seed: trial.device for trial in self.arm.over if trial.device}
        of_baseline = {trial.seed: trial.device for trial in self.baseline.over if trial.device}
        mixed = any(of_baseline.get(seed, device) != device for seed, device in of_arm.items())
        if not self.pair.plan.is_paired:
            mixed = len({*of_arm.values(), *of_baseline.values()}) > 1
        if not mixed:
            return [], []
        return sorted({*of_arm.values()}), sorted({*of_baseline.values()})

    @property
    def judged_p(self) -> float | None:
        """The unadjusted p value, or None where no verdict may be given."""
        return None if self.is_at_edge else self.p

    @property
    def verdict(self) -> str | None:
        higher = self.pair.plan.primary_metric.higher_is_better
        difference = self.pair.own.mean
        return verdict.verdict(difference, self.p_holm, self.p_margin, higher_is_better=higher, unstable=self.unstable)

    @property
    def p_equivalence(self) -> float | None:
        """The unadjusted p value of equivalence, None without a test and where no verdict may be given."""
        if self.is_at_edge or self.is_stopped or self.tie is None or self.tie.too_wide:
            return None
        return self.pair.p_equivalence


def outcomes_by_arm(study: StudyResults) -> dict[str, list[TrialOutcome]]:
    by_arm: dict[str, list[TrialOutcome]] = {arm.name: [] for arm in study.plan.arms}
    names = ("arm", *TrialOutcome._fields[:-2], study.plan.metric)
    for arm, *values in zip(*map(study.columns.__getitem__, names), strict=True):
        by_arm[arm].append(TrialOutcome(*values))
    for name, outcomes in by_arm.items():
        reached = {trial.seed: trial.value for trial in outcomes if trial.has_metric}
        collapsed = collapsed_seeds(reached, study.plan, study.plan.arms_by_name[name])
        for number, trial in enumerate(outcomes):
            outcomes[number] = trial._replace(collapsed=trial.seed in collapsed)
    return by_arm


def arm_results(study: StudyResults, choices: Mapping[str, PointChoice]) -> dict[str, ArmResults]:
    samples = contrast.samples_by_arm(study, study.plan.metric)
    outcomes = outcomes_by_arm(study)
    at_edge = {name for name, choice in choices.items() if choice.is_at_edge}
    arms = {}
    for arm in study.plan.arms:
        choice = choices.get(arm.name)
        grid = []
        if choice is not None:
            grid = [samples[point] for point in choice.grid.stable_points]
        is_at_edge = not at_edge.isdisjoint((arm.name, arm.baseline))
        arms[arm.name] = ArmResults(arm, outcomes[arm.name], samples[arm.name], choice, grid, is_at_edge)
    return arms


def tested_contrasts(arms: Mapping[str, ArmResults], plan: Plan) -> dict[str, Contrast]:
    """Return arm -> tested contrast with its baseline. p values are adjusted within each of `families`."""
    untested = []
    for name, trials in looks.planned_contrasts(plan).items():
        arm = arms[name]
        baseline = arms[arm.arm.baseline]
        pair = pair_of(arm, baseline, baseline, plan)
        counted = looks.looks((trials, plan))
        p = pair.p_value
        if looks.declares_race(trials, plan):
            p = race.p_value(pair.own, plan, p, arm.is_stopped)
        if not arm.is_stopped:
            p = p_with_stability(p, arm, baseline, counted)
        tie = pair.tie(baseline.sample.mean.value, plan.chance_of(baseline.arm))
        untested.append(Contrast(arm, baseline, pair, tie, p, counted))
    tested = {each.arm.name: each for each in untested}  # in the order of the plan
    for family, size in families(untested, plan):
        equivalent = []
        for each in family:
            is_tested = not (each.is_at_edge or each.is_stopped)
            equivalent.append(each.pair.advantages_at_looks if is_tested else [])
        margins = intervals.smallest_bounds(equivalent, size, verdict.ALPHA)
        for each, margin_met in zip(adjusted(family, size), margins, strict=True):
            tested[each.arm.name] = replace(each, margin_met=margin_met)
    return tested


def pair_of(a: ArmResults, b: ArmResults, baseline: ArmResults, plan: Plan) -> Pair:
    """Return the differences between the arms `a` and `b`. baseline: the arm whose error a margin is a share of."""
    error = None
    if isinstance(plan.margin, str):
        error = baseline.sample.errors(plan.primary_metric)
    ahead = [difference(a.sample, point, plan.is_paired) for point in b.grid]
    behind = [difference(point, b.sample, plan.is_paired) for point in a.grid]
    return Pair(plan, difference(a.sample, b.sample, plan.is_paired), ahead, behind, error)


def p_with_stability(p: float | None, arm: ArmResults, baseline: ArmResults, counted: Sequence[Look]) -> float | None:
    """Return the p value of a contrast, combined with Fisher's exact test on whether the arm breaks down more often.

    p: of the finished pairs, or None if they were not tested. counted: the looks, with the seeds of the baseline first.
    The result is twice the smaller p value, for two tests. Fisher's p value, corrected for looks, counts alone if p is
    None, or if both arm and baseline have trials that diverged or collapsed.
    """
    if not arm.unstable:
        return p
    products = [1.0]
    for look in looks.whole_looks(counted):
        counts = *arm.unstable_trials(look.seeds[-1]), *baseline.unstable_trials(look.seeds[0])
        products.append(look.factor * verdict.fisher_p(*counts))
    more = min(products)
    if p is None or baseline.unstable:
        return more
    return min(1.0, 2 * min(p, more))


def families(contrasts: Collection[Contrast], plan: Plan) -> list[tuple[list[Contrast], int]]:
    """Return (contrasts, their planned number) of the table and, in a tuned study, of the arms on the grid."""
    table = []
    points = []
    for each in contrasts:
        if plan.tuned and each.arm.choice is None:
            points.append(each)
        else:
            table.append(each)
    return [(table, plan.family), (points, plan.points_family)]


def adjusted(contrasts: Sequence[Contrast], size: int) -> list[Contrast]:
    p_holm = verdict.holm([each.judged_p for each in contrasts], size)
    p_margin = verdict.holm([each.p_equivalence for each in contrasts], size)
    tested = []
    for each, different, equivalent in zip(contrasts, p_holm, p_margin, strict=True):
        tested.append(replace(each, family=size, p_holm=different, p_margin=equivalent))
    return tested


def pairing_gain(contrasts: Collection[Contrast], plan: Plan) -> Pairing | None:
    """Return what pairing brought to a plan that declares it, or None if no arm with FEWEST_PAIRS can tell."""
    if plan.paired != "by-seed":
        return None
    correlations = []
    narrower = []
    (table, _), _ = families(contrasts, plan)
    for each in table:
        seeds = each.pair.own.seeds
        arm = each.arm.sample.only_seeds(seeds).numbers
        baseline = each.baseline.sample.only_seeds(seeds).numbers
        paired = each.pair.own.mean.interval()
        unpaired = intervals.welch(baseline, arm).interval()
        if len(seeds) < FEWEST_PAIRS or paired is None or unpaired is None:
            continue
        if intervals.are_identical(arm) or intervals.are_identical(baseline):
            continue
        correlations.append(float(np.corrcoef(arm, baseline)[0, 1]))
        narrower.append(1 - (paired[1] - paired[0]) / (unpaired[1] - unpaired[0]))
    if not correlations:
        return None
    return Pairing(median(correlations), median(narrower), len(correlations))


def simultaneous_intervals(contrasts: Collection[Contrast], plan: Plan) -> dict[str, Interval | None]:
    """Return arm -> interval of its difference, which all hold at once with 95%: max-t, or Bonferroni's if unpaired."""
    simultaneous = dict[str, Interval | None]()
    for family, size in families(contrasts, plan):
        if not plan.is_paired:
            for each in family:
                simultaneous[each.arm.name] = each.pair.own.mean.interval(1 - verdict.ALPHA / size)
            continue
        groups: dict[tuple[int, ...], dict[str, Sample]] = defaultdict(dict)
        for each in family:
            sample = each.pair.own
            if isinstance(sample, Sample) and sample.mean.se is not None:
                groups[tuple(sample.seeds)][each.arm.name] = sample
        matrices = []
        for group in groups.values():
            matrices.append(np.column_stack([sample.numbers for sample in group.values()]))
        level = intervals.simultaneous_level(matrices)
        for group in groups.values():
            for name, sample in group.items():
                simultaneous[name] = sample.mean.interval(level)
    return simultaneous
