"""The arms of two sets of results, A and B, in pairs, and the tests of their differences B - A.

Arms are tested, and their contrasts with their baselines.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from results.records import Row
from results.statistics import intervals, looks, power, tuning, verdict
from results.statistics.arms import ArmResults, arm_results, p_with_stability
from results.statistics.contrast import Measured, Sample, difference
from results.statistics.declared import Earlier, declared_earlier
from results.statistics.intervals import Estimate, Interval, Ratio
from results.statistics.looks import Look
from results.statistics.race import with_stops
from results.statistics.verdict import Tie
from results.store.schemas.metrics import Metric, margin_bound, margin_text, too_wide
from results.store.schemas.plans import Plan
from results.study_results import StudyResults
from results.tables import study_table

IDENTICAL = "identical"
TestKey = tuple[str, ...]


# -- pairs of arms -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """An arm of one set of results (A or B), with its row in the study's table.

    contrast: the difference from the baseline. late: what was declared first, if the margin was changed after results.
    """

    plan: Plan
    arm: ArmResults
    row: Row
    contrast: Measured | None
    interim: bool
    late: Earlier | None

    @property
    def as_first_declared(self) -> "Side":
        if self.late is None:
            return self
        return replace(self, plan=self.plan.model_copy(update={"margin": self.late.declaration.margin}))

    def is_comparable(self, other: "Side") -> bool:
        """Return whether both arms have the same metric and the same resolved config, apart from seeds."""
        return self.arm.arm.key == other.arm.arm.key and self.plan.metric == other.plan.metric

    def is_namesake(self, other: "Side") -> bool:
        """Return whether both arms have the same name in the same study, perhaps with different recipes or data."""
        return self.plan.study == other.plan.study and self.arm.name == other.arm.name

    def counterpart(self, others: Sequence["Side"]) -> "Side | None":
        """Return the arm of `others` with the same config and metric, or else the same name and study, or else None."""
        candidates = list(filter(self.is_comparable, others)) or filter(self.is_namesake, others)
        return max(
            candidates, key=lambda other: (self.plan.name == other.plan.name, self.is_namesake(other)), default=None
        )


@dataclass(frozen=True)
class ArmPair:
    """An arm of A and its counterpart in B, or None for a side without the arm. first: the arm that names the row."""

    a: Side | None
    b: Side | None
    first: Side

    @property
    def sides(self) -> dict[str, Side]:
        sides = {}
        if self.a:
            sides["A"] = self.a
        if self.b:
            sides["B"] = self.b
        return sides

    @property
    def comparable(self) -> tuple[Side, Side] | None:
        if self.a is None or self.b is None or not self.a.is_comparable(self.b):
            return None
        return self.a, self.b

    @property
    def late(self) -> dict[str, Earlier]:
        """What was declared first about the arm on each side whose margin was changed after there were results."""
        return {name: side.late for name, side in self.sides.items() if side.late}

    @property
    def as_first_declared(self) -> "ArmPair":
        return replace(self, a=self.a and self.a.as_first_declared, b=self.b and self.b.as_first_declared)

    @property
    def unfinished(self) -> list[str]:
        """The names of the sides whose study is unfinished, or whose arm a race stopped, of "A" and "B"."""
        return [name for name, side in self.sides.items() if side.interim or side.row.stopped]


def matched_pairs(in_a: Sequence[Side], in_b: Sequence[Side]) -> list[ArmPair]:
    pairs = [ArmPair(side, side.counterpart(in_b), first=side) for side in in_a]
    paired = {id(pair.b) for pair in pairs}
    for side in in_b:
        if id(side) not in paired:
            pairs.append(ArmPair(side.counterpart(in_a), side, first=side))
    return pairs


def sides(studies: Sequence[StudyResults], interim: bool = False) -> list[Side]:
    """Return every arm of every study, tuned arms too. interim: judge before all planned trials are over."""
    listed = []
    for untuned in map(with_stops, studies):
        table = study_table.table(untuned, interim=interim)
        rows = table.rows_by_arm
        study, choices = tuning.with_tuned(untuned)
        arms = arm_results(study, choices)
        for name, arm in arms.items():
            contrast = None
            if arm.arm.baseline != name:
                contrast = difference(arm.sample, arms[arm.arm.baseline].sample, study.plan.is_paired)
            late = changed_margin(name, study.plan)
            listed.append(Side(study.plan, arm, rows[name], contrast, table.interim, late))
    return listed


def changed_margin(name: str, plan: Plan) -> Earlier | None:
    """Return what was declared first about an arm or its contrasts, if the margin was another one."""
    for earlier in declared_earlier(plan):
        for arm in plan.arms:
            is_compared = name in (arm.name, arm.baseline)
            if is_compared and "margin" in earlier.changed and earlier.concerns(arm.name, plan):
                return earlier
    return None


def differing_settings(a: Side, b: Side) -> list[tuple[str, Any, Any]]:
    """Return (setting, value in a, value in b) for settings that differ. A setting that one side lacks is None."""
    left = settings(a)
    right = settings(b)
    return [(key, left.get(key), right.get(key)) for key in left | right if left.get(key) != right.get(key)]


def settings(side: Side) -> dict[str, Any]:
    config = side.arm.arm.config
    return {**config, **config.get("options", {}), "options": None}


# -- tests -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """The difference B - A over all seeds or those of a look, without identical trials.

    method: paired, overlapping, welch, or none if a side has only identical trials. factor: what p is multiplied by.
    """

    a: Measured
    b: Measured
    estimate: Estimate
    method: str
    pairs: int
    factor: int = 1

    @cached_property
    def tested(self) -> Estimate:
        """The estimate with the standard error behind p, over seeds and, where answers are known, test images."""
        paired = difference(self.b, self.a, is_paired=True).images_variance
        if paired is None:  # too much if the samples share their images
            paired = (self.a.images_variance or 0.0) + (self.b.images_variance or 0.0)
        return self.estimate.with_extra_variance(paired)

    @property
    def images_interval(self) -> Interval | None:
        if self.tested == self.estimate:
            return None
        return self.tested.interval()

    def growth_of_error(self, metric: Metric, *, on_these_images: bool = False) -> Ratio | None:
        """Return (b - a) / a for the errors of both arms, or for the values of a metric that is not an accuracy."""
        assert isinstance(self.a, Sample)
        assert isinstance(self.b, Sample)
        a = self.a.errors(metric)
        b = self.b.errors(metric)
        ratio = Ratio.of_means(b.tested, a.tested, self.tested)
        if on_these_images:
            ratio = Ratio.of_means(b.mean, a.mean, self.estimate)
        return ratio and ratio.minus_one()

    def tie(self, side: Side) -> Tie | None:
        """Return the difference beside the margin of both studies, or None without one. side: A, whose error counts."""
        plan = side.plan
        if plan.margin is None or self.a.mean.value is None:
            return None
        metric = plan.primary_metric
        tested = Ratio.of_mean(self.tested)
        here = Ratio.of_mean(self.estimate)
        if isinstance(plan.margin, str):
            tested = self.growth_of_error(metric)
            here = self.growth_of_error(metric, on_these_images=True)
        text = margin_text(plan.margin, metric, "A")
        wide = too_wide(plan.margin, self.a.mean.value, metric, plan.chance_of(side.arm.arm))
        return Tie(text, margin_bound(plan.margin), tested, here, wide)


@dataclass(frozen=True)
class Test:
    """The test of the difference B - A between two arms or their contrasts, without identical trials.

    Trials of a seed are identical if their final weights and values are equal in A and B. p: for arms, combined with a
    test of divergence. p_margin: the p value of equivalence. looks: those for which both are corrected. at_looks: the
    differences at looks whose seeds both sides still have. identical: seeds with identical trials. repeated: seeds
    whose trial has one id but different values. key: metric and trial ids, by which equal tests are recognized.
    """

    a: Side
    b: Side
    difference: Difference
    looks: list[Look]
    at_looks: list[Difference]
    identical: list[int]
    repeated: list[int]
    key: TestKey
    p: float | None
    p_margin: float | None = None
    tie: Tie | None = None
    p_holm: float | None = None

    @property
    def metric(self) -> Metric:
        return self.a.plan.primary_metric

    @property
    def is_of_identical(self) -> bool:
        return self.difference.method == "none"

    @property
    def unstable(self) -> tuple[int, int]:
        """The numbers of trials of B and of A that diverged or collapsed."""
        return self.b.arm.unstable, self.a.arm.unstable

    @property
    def verdict(self) -> str | None:
        """The verdict on B against A: "identical" if a side has only identical trials, None if not tested."""
        if self.is_of_identical:
            return IDENTICAL
        return verdict.verdict(
            self.difference.estimate,
            self.p_holm,
            self.p_margin,
            higher_is_better=self.metric.higher_is_better,
            unstable=self.unstable,
        )

    @property
    def deficit_bound(self) -> float | None:
        """The one-sided 95% upper bound on how much worse B is than A, corrected for looks.

        It equals the observed deficit if all differences are equal, and is None if more trials diverged in B than in A.
        """
        if self.difference.estimate.value is None or self.b.row.diverged > self.a.row.diverged:
            return None

        def deficit(at: Difference) -> Estimate:
            return -at.tested if self.metric.higher_is_better else at.tested

        bound = smallest_upper_bound(self.at_looks, deficit)
        if bound is None and (self.is_of_identical or self.difference.tested.n > 1):
            return deficit(self.difference).value
        return bound

    @property
    def deficit_share_bound(self) -> float | None:
        """The `deficit_bound` as a share of A's error, or of A's value of a metric that is not an accuracy."""
        if self.is_of_identical or not self.deficit_bound:  # 0 is no share of any error
            return self.deficit_bound

        def deficit(at: Difference) -> Ratio | None:
            growth = at.growth_of_error(self.metric)
            if growth is not None and self.metric.higher_is_better and not self.metric.is_accuracy:
                return -growth
            return growth

        bound = smallest_upper_bound(self.at_looks, deficit)
        observed = deficit(self.difference)
        if bound is None and observed and self.difference.tested.se is None:
            return observed.value
        return bound


def smallest_upper_bound(
    at_looks: Sequence[Difference], quantity: Callable[[Difference], Estimate | Ratio | None]
) -> float | None:
    """Return the smallest one-sided 95% bound of a quantity at any look, corrected for looks, or None without one."""
    bounds = []
    for at in at_looks:
        value = quantity(at)
        if value is None:
            continue
        interval = value.interval(1 - 2 * verdict.ALPHA / at.factor)
        if interval is not None:
            bounds.append(interval[1])
    return min(bounds, default=None)


def arm_test(pair: ArmPair) -> Test | None:
    if pair.comparable is None:
        return None
    a, b = pair.comparable
    test = sample_test(a, b, a.arm.sample, b.arm.sample)
    test = replace(test, p=p_with_stability(test.p, b.arm, a.arm, test.looks))
    if a.plan.margin != b.plan.margin:
        return test
    tie = test.difference.tie(a)
    p_margin = None
    if tie and not tie.too_wide:
        p_margin = p_equivalence(test.at_looks, a)
    return replace(test, tie=tie, p_margin=p_margin)


def contrast_test(pair: ArmPair) -> Test | None:
    if pair.comparable is None:
        return None
    a, b = pair.comparable
    if a.contrast is None or b.contrast is None:
        return None
    return sample_test(a, b, a.contrast, b.contrast)


def sample_test(a: Side, b: Side, left: Measured, right: Measured) -> Test:
    """Return the test of the difference right - left. left, right: samples or contrasts of A and of B."""
    identical, repeated = repeated_seeds(left, right)
    new_a = left
    new_b = right
    if identical:
        new_a = left.only_seeds(set(left.seeds) - set(identical))
        new_b = right.only_seeds(set(right.seeds) - set(identical))
    is_paired = a.plan.is_paired and b.plan.is_paired and a.plan.split_of(a.arm.arm) == b.plan.split_of(b.arm.arm)
    if identical and not (new_a.seeds and new_b.seeds):
        change = Difference(new_a, new_b, Estimate(len(identical), 0.0, why=IDENTICAL), "none", 0)
    else:
        change = estimate_difference(new_a, new_b, is_paired)
    counted = looks.looks((looks.trials_by_seed(left), a.plan), (looks.trials_by_seed(right), b.plan))
    at_looks = []
    for look in looks.whole_looks(counted):
        at = change
        if not look.is_last:
            seeds_a, seeds_b = look.seeds
            at = estimate_difference(new_a.only_seeds(seeds_a), new_b.only_seeds(seeds_b), is_paired)
        at_looks.append(replace(at, factor=look.factor))
    p = None
    if change.tested.p_value is not None:
        p = min([1.0, *(at.factor * looks.p_of_same_sign(at.tested, change.tested) for at in at_looks)])
    return Test(
        a=a,
        b=b,
        difference=change,
        looks=counted,
        at_looks=at_looks,
        identical=identical,
        repeated=repeated,
        key=(a.plan.metric, *trials_of(left), *trials_of(right)),
        p=p,
    )


def trials_of(measured: Measured) -> Iterator[str]:
    """Yield the trial ids of each term, whose seeds may differ, and a slash after each term."""
    for term in measured.terms:
        yield from map(term.ids_of, term.seeds)
        yield "/"


def repeated_seeds(left: Measured, right: Measured) -> tuple[list[int], list[int]]:
    """Return (seeds with identical trials, seeds whose trial of one id has two values). Unpaired differences: none."""
    identical = list[int]()
    repeated = list[int]()
    if not isinstance(left, Sample) or not isinstance(right, Sample):
        return identical, repeated
    for seed in sorted(left.values.keys() & right.values.keys()):
        if left.values[seed] != right.values[seed]:
            if left.ids[seed] == right.ids[seed]:
                repeated.append(seed)
        elif seed in left.weights and left.weights[seed] == right.weights.get(seed):
            identical.append(seed)
    return identical, repeated


def p_equivalence(at_looks: Sequence[Difference], side: Side) -> float | None:
    products = []
    for at in at_looks:
        tie = at.tie(side)
        if tie and tie.p_value is not None:
            products.append(at.factor * tie.p_value)
    if not products:
        return None
    return min(1.0, *products)


def estimate_difference(a: Measured, b: Measured, is_paired: bool) -> Difference:
    """Return the difference b - a: paired, partially overlapping, or Welch's where samples cannot pair."""
    if not (is_paired and isinstance(a, Sample) and isinstance(b, Sample) and can_pair(a, b)):
        return Difference(a, b, difference(b, a, is_paired=False).mean, "welch", 0)
    pairs = b - a
    count = len(pairs.values)
    if count == len(a.values) == len(b.values):
        return Difference(a, b, pairs.mean, "paired", count)
    left = pairs_first(a, pairs.values)
    right = pairs_first(b, pairs.values)
    return Difference(a, b, intervals.overlapping_samples(left, right, count, a.image), "overlapping", count)


def can_pair(a: Sample, b: Sample) -> bool:
    """Return whether two samples have at least 2 common seeds, and the same test images in each, if they are known."""
    if len(a.values.keys() & b.values.keys()) < 2:
        return False
    return all(a.has_same_images(b, seed) for seed in a.correct.keys() & b.correct.keys())


def pairs_first(sample: Sample, paired: Container[int]) -> np.ndarray:
    """Return the values (n,) of a sample, those of the paired seeds first."""
    seeds = sorted(sample.seeds, key=lambda seed: seed not in paired)
    return np.array([sample.values[seed] for seed in seeds])


def adjusted(tests: Sequence[Test | None]) -> list[Test | None]:
    """Return the tests with p_holm and p_margin corrected, as separate families."""
    different: dict[TestKey, float] = {}  # equal tests in several studies count once
    equivalent: dict[tuple[TestKey, float | str | None], float] = {}
    for existing in filter(None, tests):
        if existing.p is not None:
            different[existing.key] = existing.p
        if existing.p_margin is not None:
            equivalent[existing.key, existing.a.plan.margin] = existing.p_margin
    p_holm = dict(zip(different, verdict.holm(list(different.values())), strict=True))
    p_margin = dict(zip(equivalent, verdict.holm(list(equivalent.values())), strict=True))
    corrected = list[Test | None]()
    for test in tests:
        if test and test.p is not None:
            test = replace(test, p_holm=p_holm[test.key])
        if test and test.p_margin is not None:
            test = replace(test, p_margin=p_margin[test.key, test.a.plan.margin])
        corrected.append(test)
    return corrected


def withheld(tests: Sequence[Test | None], pairs: Sequence[ArmPair]) -> list[Test | None]:
    kept = []
    for test, pair in zip(tests, pairs, strict=True):
        if test and pair.unfinished:
            test = replace(test, p=None, p_holm=None, p_margin=None)
        kept.append(test)
    return kept


def resolvable_differences(tests: Sequence[Test | None], family: int) -> list[float | None]:
    """Return the smallest difference that each test would resolve with 80% power, or None without a standard error.

    Standard deviations are pooled per metric, method and factor of looks. family: the number of distinct tests.
    """
    groups: dict[tuple[str, str, int], dict[TestKey, Estimate]] = defaultdict(dict)
    for test in filter(None, tests):
        factor = looks.last_factor(test.looks)
        groups[test.difference.method, test.metric.name, factor][test.key] = test.difference.tested
    smallest: dict[TestKey, float | None] = {}
    for (_, _, factor), group in groups.items():
        smallest |= zip(group, power.resolvable_differences(list(group.values()), factor * family), strict=True)
    return [None if test is None else smallest[test.key] for test in tests]
