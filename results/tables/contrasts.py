"""The arms of a study's table, and the tests of each arm against its baseline."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from results.records import INTERVAL, Interval, Row
from results.statistics import contrast, intervals, looks, tuned_pairs, verdict
from results.statistics.contrast import Sample
from results.statistics.looks import Look
from results.statistics.tuned_pairs import Pair
from results.statistics.tuning import PointChoice
from results.statistics.verdict import Tie
from results.store.schemas import Arm, Plan
from results.study_results import StudyResults
from results.tables import layout
from results.tables.outcomes import TrialOutcome, absence_notes, outcomes_by_arm, p_less_stable, unstable_trials


@dataclass(frozen=True)
class ArmResults:
    """An arm of the plan with the outcomes of its trials, the metric by seed, and its row without difference."""

    arm: Arm
    outcomes: Sequence[TrialOutcome]
    sample: Sample
    row: Row

    @property
    def is_baseline(self) -> bool:
        return self.arm.name == self.arm.baseline


@dataclass(frozen=True)
class Contrast:
    """An arm beside its baseline, with the tests of their difference. A p value is None if there was no test.

    pair: the differences arm - baseline. is_at_edge: whether a best value of either lies at the edge of the grid, so
    that there are no adjusted p values. tie: None without a margin. family: the number of contrasts corrected together.
    p_holm: p adjusted within the family. p_margin: the adjusted p value of equivalence. margin_met: the smallest margin
    for which it is below 5%.
    """

    arm: ArmResults
    baseline: ArmResults
    pair: Pair
    is_at_edge: bool
    looks: Sequence[Look]
    tie: Tie | None
    p: float | None
    family: int = 0
    p_holm: float | None = None
    p_margin: float | None = None
    margin_met: float | None = None


def arm_results(study: StudyResults, besides: Sequence[str]) -> dict[str, ArmResults]:
    """Return arm -> its results. besides: further metrics. Raises ValueError for a metric without values."""
    samples = contrast.samples_by_arm(study, study.plan.metric)
    outcomes = outcomes_by_arm(study)
    measured: dict[str, dict[str, float | Interval | None]] = {name: {} for name in samples}
    for further in besides:
        if further not in study.numbers:
            raise ValueError(f"{study.name}: {layout.unknown_column(further, study.numbers)}")
        for name, sample in contrast.samples_by_arm(study, further).items():
            measured[name] |= {further: sample.mean.value, further + INTERVAL: sample.mean.interval()}
    arms = {}
    for arm in study.plan.arms:
        finished = samples[arm.name]
        trials = outcomes[arm.name]
        row = replace(arm_row(arm, trials, finished, study.plan), measured=measured[arm.name])
        arms[arm.name] = ArmResults(arm, trials, finished, row)
    return arms


def arm_row(arm: Arm, outcomes: Sequence[TrialOutcome], finished: Sample, plan: Plan) -> Row:
    """Return the row of an arm, without the difference from its baseline."""
    count = Counter(trial.status for trial in outcomes)
    mean = finished.mean
    notes = [*arm.notes, *absence_notes(outcomes, plan)]
    if mean.n > 1 and mean.se is None:
        notes.append(f"no interval of the mean: {mean.why}")
    return Row(
        arm=arm.name,
        n=mean.n,
        planned=len(outcomes),
        mean=mean.value,
        sd=math.sqrt(intervals.variance(finished.numbers)) if mean.n > 1 else None,
        ci95=mean.interval(),
        published=arm.published,
        params=arm.params,
        flops=arm.flops,
        baseline=arm.baseline,
        diverged=count["diverged"],
        collapsed=sum(trial.collapsed for trial in outcomes),
        failed=count["failed"],
        missing=len(outcomes) - mean.n - count["diverged"] - count["failed"],
        notes=notes,
    )


def tested_contrasts(
    arms: Mapping[str, ArmResults], plan: Plan, choices: Mapping[str, PointChoice]
) -> dict[str, Contrast]:
    """Return arm -> tested contrast with its baseline. p values are adjusted within each of `families`.

    choices: tuned arm -> the grid points that its seeds use.
    """
    samples = {name: results.sample for name, results in arms.items()}
    at_edge = {name for name, choice in choices.items() if choice.is_at_edge}
    left_out = unstable_points(choices)
    contrasts = {}
    for name, trials in looks.planned_contrasts(plan).items():
        arm = arms[name]
        baseline = arms[arm.arm.baseline]
        pair = tuned_pairs.pair(name, arm.arm.baseline, plan, samples, left_out)
        counted = looks.looks((trials, plan))
        contrasts[name] = Contrast(
            arm,
            baseline,
            pair,
            is_at_edge=not at_edge.isdisjoint((name, arm.arm.baseline)),
            looks=counted,
            tie=tuned_pairs.tie(pair, plan, baseline.row.mean),
            p=contrast_p(arm, baseline, pair, plan, counted),
        )
    tested = dict[str, Contrast]()
    for names, size in families(contrasts, plan):
        tested |= zip(names, family_tested([contrasts[name] for name in names], size, plan), strict=True)
    return tested


def unstable_points(choices: Mapping[str, PointChoice]) -> set[str]:
    """Return the grid points that comparisons leave out, because most of their trials diverged or collapsed."""
    return set().union(*(choice.grid.unstable_points for choice in choices.values()))


def contrast_p(arm: ArmResults, baseline: ArmResults, pair: Pair, plan: Plan, counted: Sequence[Look]) -> float | None:
    """Return the p value of an arm against its baseline, by finished pairs and by how often trials break down.

    counted: the looks at the contrast.
    """
    unstable = unstable_trials(arm.outcomes)[0], unstable_trials(baseline.outcomes)[0]
    less_stable = [
        (look.factor, p_less_stable(arm.outcomes, baseline.outcomes, *look.seeds)) for look in counted if look.is_whole
    ]
    p = tuned_pairs.p_value(pair, plan)
    return verdict.p_with_stability(p, unstable, looks.smallest_product(less_stable))


def families(arms: Collection[str], plan: Plan) -> list[tuple[list[str], int]]:
    """Return (some of `arms`, planned number of contrasts) for two families, each corrected on its own.

    In a tuned study, the second family has the arms on the grid. In other studies, it is empty, with size 0.
    """
    tuned = {entry.name for entry in plan.tuned}
    table = [name for name in arms if not tuned or name in tuned]
    return [(table, plan.family), ([name for name in arms if name not in table], plan.points_family)]


def family_tested(contrasts: Sequence[Contrast], size: int, plan: Plan) -> list[Contrast]:
    """Return the contrasts of a family of planned `size` with their adjusted p values."""
    p = list[float | None]()
    p_equivalence = list[float | None]()
    pairs = list[Pair | None]()
    for untested in contrasts:
        too_wide = untested.tie is not None and untested.tie.too_wide
        within = None
        if not untested.is_at_edge and not too_wide:
            within = tuned_pairs.p_equivalence(untested.pair, plan)
        p.append(None if untested.is_at_edge else untested.p)
        p_equivalence.append(within)
        pairs.append(None if untested.is_at_edge else untested.pair)
    adjusted = verdict.holm(p, size), verdict.holm(p_equivalence, size), tuned_pairs.margins_met(pairs, size, plan)
    tested = []
    for untested, p_holm, p_margin, met in zip(contrasts, *adjusted, strict=True):
        tested.append(replace(untested, family=size, p_holm=p_holm, p_margin=p_margin, margin_met=met))
    return tested


def simultaneous_intervals(contrasts: Mapping[str, Contrast], plan: Plan) -> dict[str, Interval | None]:
    """Return arm -> interval of its difference. All intervals of a family hold at once with probability 95%."""
    simultaneous = dict[str, Interval | None]()
    for names, _ in families(contrasts, plan):
        groups: dict[tuple[int, ...], list[Sample]] = defaultdict(list)
        of_family = {name: contrasts[name].pair.own for name in names if contrasts[name].pair.own.mean.se is not None}
        for sample in of_family.values():
            groups[tuple(sample.seeds)].append(sample)
        matrices = [np.column_stack([sample.numbers for sample in group]) for group in groups.values()]
        level = intervals.simultaneous_level(matrices)
        simultaneous |= {name: sample.mean.interval(level) for name, sample in of_family.items()}
    return simultaneous
