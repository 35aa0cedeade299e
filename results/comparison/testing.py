"""Tests of the difference B - A, between matched arms or between the contrasts of those arms with their baselines."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from results.comparison.matching import ArmPair, Side, are_comparable
from results.statistics import contrast, intervals, looks, power, verdict
from results.statistics.contrast import Sample
from results.statistics.intervals import Estimate
from results.statistics.looks import Look
from results.statistics.ratios import Ratio
from results.statistics.verdict import Tie
from results.store.schemas import Plan
from results.store.schemas.metrics import margin_bound, margin_text, too_wide
from results.tables.outcomes import unstable_trials

IDENTICAL = "identical"


@dataclass(frozen=True)
class AtLook:
    """The samples and estimates behind a test at a look, as in `Test`, and the factor of its p value."""

    factor: int
    a: Sample
    b: Sample
    difference: Estimate
    tested: Estimate


@dataclass(frozen=True)
class Test:
    """The test of the difference B - A between two arms or their contrasts, without identical trials.

    Trials of a seed are identical if their final weights and values are equal in A and B. tested: the difference with
    the standard error behind p, over seeds and, where answers are known, test images. p: the p value of the null
    hypothesis of no difference. For arms, p is combined with a test of divergence if trials of B diverged. p_margin:
    the p value of equivalence within the common margin. tie: None without such a margin. looks: the looks at the
    difference, for which p and p_margin are corrected. at_looks: the looks whose seeds both sides still have.
    `adjusted` sets p_holm by Holm's method, and corrects p_margin. method: paired, overlapping, welch, or none if a
    side has only identical trials. pairs: the number of paired seeds. identical: seeds with identical trials. repeated:
    seeds whose trial has one id in A and B, but different values. trials: trial ids, by which equal tests are
    recognized.
    """

    a: Side
    b: Side
    difference: Estimate
    tested: Estimate
    p: float | None
    p_margin: float | None
    looks: list[Look]
    at_looks: list[AtLook]
    tie: Tie | None
    method: str
    pairs: int
    identical: list[int]
    repeated: list[int]
    trials: tuple[str, ...]
    p_holm: float | None = None

    @property
    def factor(self) -> int:
        """The factor of the p value over all seeds."""
        return next(look.factor for look in self.looks if look.is_last)


def pair_test(pair: ArmPair, sample_of: Callable[[Side], Sample | None]) -> Test | None:
    """Return the test of B - A on the samples from `sample_of`. Without two comparable samples, return None."""
    a = pair.a
    b = pair.b
    if a is None or b is None or not are_comparable(a, b):
        return None
    left = sample_of(a)
    right = sample_of(b)
    if left is None or right is None:
        return None
    common = sorted(left.values.keys() & right.values.keys())
    equal = [seed for seed in common if left.values[seed] == right.values[seed]]
    identical = [seed for seed in equal if left.weights[seed] and left.weights[seed] == right.weights[seed]]
    new_a = left.without_seeds(identical)
    new_b = right.without_seeds(identical)
    same_split = a.study.plan.split == b.study.plan.split
    if identical and not (new_a.values and new_b.values):
        difference = Estimate(len(identical), 0.0, why=IDENTICAL)
        method = "none"
        pairs = 0
    else:
        difference, method, pairs = estimate_difference(new_a, new_b, same_split)
    tested = difference.with_extra_variance(images_variance(new_a, new_b))
    trials = [looks.trials_by_seed(sample) for sample in (left, right)]
    counted = looks.looks((trials[0], a.study.plan), (trials[1], b.study.plan))
    whole = AtLook(1, new_a, new_b, difference, tested)
    at_looks = [at_look(look, whole, same_split) for look in counted if look.is_whole]
    p = None if method == "none" else p_over_looks(at_looks, tested)
    same = a.study.plan.margin == b.study.plan.margin and left is a.trials
    tie = tie_within(a.study.plan, whole) if same else None
    return Test(
        a=a,
        b=b,
        difference=difference,
        tested=tested,
        p=p_of_arms(p, a, b, counted) if left is a.trials else p,
        p_margin=p_equivalence(at_looks, a.study.plan) if tie and not tie.too_wide else None,
        tie=tie,
        looks=counted,
        at_looks=at_looks,
        method=method,
        pairs=pairs,
        identical=identical,
        repeated=[seed for seed in common if seed not in equal and left.ids[seed] == right.ids[seed]],
        trials=(*(left.ids[seed] for seed in left.seeds), "/", *(right.ids[seed] for seed in right.seeds)),
    )


def at_look(look: Look, whole: AtLook, same_split: bool) -> AtLook:
    """Return the estimates behind the test of b - a at a look. whole: those over all seeds."""
    if look.is_last:
        return replace(whole, factor=look.factor)
    seeds_a, seeds_b = look.seeds
    a = whole.a.only_seeds(seeds_a)
    b = whole.b.only_seeds(seeds_b)
    difference, _, _ = estimate_difference(a, b, same_split)
    return AtLook(look.factor, a, b, difference, difference.with_extra_variance(images_variance(a, b)))


def p_over_looks(at_looks: Sequence[AtLook], whole: Estimate) -> float | None:
    """Return the p value of no difference, corrected for looks, or None if no test is possible now."""
    if whole.p_value is None:
        return None
    return looks.smallest_product((at.factor, looks.p_of_same_sign(at.tested, whole)) for at in at_looks)


def p_equivalence(at_looks: Sequence[AtLook], plan: Plan) -> float | None:
    """Return the p value of equivalence, corrected for looks, or None if no look has an interval."""
    ties = [(at.factor, tie_within(plan, at)) for at in at_looks]
    products = [(factor, tie.p_value) for factor, tie in ties if tie and tie.p_value is not None]
    return looks.smallest_product(products) if products else None


def p_of_arms(p: float | None, a: Side, b: Side, counted: Sequence[Look]) -> float | None:
    """Return the p value of B against A, combined with the test on whether B is less stable."""

    def p_at(look: Look) -> float:
        counts = list[int]()
        for side, seeds in zip((b, a), reversed(look.seeds), strict=True):
            counts += unstable_trials([trial for trial in side.outcomes if trial.seed in seeds])
        return verdict.fisher_p(*counts)

    more = looks.smallest_product((look.factor, p_at(look)) for look in counted if look.is_whole)
    return verdict.p_with_stability(p, (b.row.unstable, a.row.unstable), more)


def estimate_difference(a: Sample, b: Sample, same_split: bool) -> tuple[Estimate, str, int]:
    """Return (estimate of b - a, name of the method, number of paired seeds).

    The method is Welch's test if splits or test images differ, or if fewer than 2 seeds are common. Otherwise it is the
    paired test if all seeds are common, or else the test of partially overlapping samples.
    """
    pairs = b - a
    count = len(pairs.values)
    same_images = all(a.has_same_images(b, seed) for seed in a.correct.keys() & b.correct.keys())
    if not same_split or count < 2 or not same_images:
        return intervals.welch(a.numbers, b.numbers, a.image), "welch", 0
    if count == len(a.values) == len(b.values):
        return pairs.mean, "paired", count
    numbers_a = pairs_first(a, pairs.seeds)
    numbers_b = pairs_first(b, pairs.seeds)
    return intervals.overlapping_samples(numbers_a, numbers_b, count, a.image), "overlapping", count


def pairs_first(sample: Sample, seeds: Sequence[int]) -> np.ndarray:
    """Return the values (n,) of a sample, those of the paired `seeds` first."""
    return np.append(sample.only_seeds(seeds).numbers, sample.without_seeds(seeds).numbers)


def images_variance(a: Sample, b: Sample) -> float:
    """Return the variance that the choice of test images adds to mean(b) - mean(a), or 0 where answers are unknown.

    It is estimated from pairs of seeds if two have answers on the same images. Otherwise both samples' variances are
    added, which is too much if they share their images.
    """
    paired = (b - a).images_variance
    if paired is not None:
        return paired
    return (a.images_variance or 0.0) + (b.images_variance or 0.0)


def deficit_share_bound(test: Test) -> float | None:
    """Return the `deficit_bound` as a share of A's error, or of A's value of a metric that is not an accuracy."""
    if test.method == "none" or deficit_bound(test) is None:
        return deficit_bound(test)
    metric = test.a.study.plan.primary_metric
    bounds = []
    for look in test.at_looks:
        a = contrast.error(look.a, metric)
        b = contrast.error(look.b, metric)
        growth = relative_change(a.tested, b.tested, look.tested)
        if growth is not None and metric.higher_is_better and not metric.is_accuracy:
            growth = -growth
        interval = growth.interval(1 - 2 * verdict.ALPHA / look.factor) if growth else None
        if interval is not None:
            bounds.append(interval[1])
    return min(bounds, default=None)


def tie_within(plan: Plan, at: AtLook) -> Tie | None:
    """Return the difference b - a beside the margin of both studies, or None without a margin.

    A margin that is a share is one of A's error.
    """
    if plan.margin is None or at.a.mean.value is None:
        return None
    tested = Ratio.of_mean(at.tested)
    here = Ratio.of_mean(at.difference)
    if isinstance(plan.margin, str):
        a = contrast.error(at.a, plan.primary_metric)
        b = contrast.error(at.b, plan.primary_metric)
        tested = relative_change(a.tested, b.tested, at.tested)
        here = relative_change(a.on_these_images.tested, b.on_these_images.tested, at.difference)
    text = margin_text(plan.margin, plan.primary_metric, "A")
    wide = too_wide(plan.margin, at.a.mean.value, plan.primary_metric, plan.chance)
    return Tie(text, margin_bound(plan.margin), tested, here, wide)


def relative_change(a: Estimate, b: Estimate, difference: Estimate) -> Ratio | None:
    """Return (b - a) / a for two means and the estimate of their difference, of either sign."""
    ratio = Ratio.of_means(b, a, difference)
    return ratio and ratio.minus_one()


def adjusted(tests: Sequence[Test | None]) -> list[Test | None]:
    """Return the tests with p_holm, and with p_margin corrected. The two kinds of p values are separate families."""
    both = (holm_over_tests(tests, name) for name in ("p", "p_margin"))
    return [test and replace(test, p_holm=p, p_margin=margin) for test, p, margin in zip(tests, *both, strict=True)]


def withheld(tests: Sequence[Test | None], pairs: Sequence[ArmPair]) -> list[Test | None]:
    """Return the tests, those of pairs with an unfinished side without p values."""
    return [
        replace(test, p=None, p_holm=None, p_margin=None) if test and pair.unfinished else test
        for test, pair in zip(tests, pairs, strict=True)
    ]


def holm_over_tests(tests: Sequence[Test | None], name: str) -> list[float | None]:
    """Return the p values in field `name`, adjusted by Holm's method. Equal tests in several studies count once."""
    p: list[float | None] = [None if test is None else getattr(test, name) for test in tests]
    family: dict[tuple[str, ...], float | None] = {}
    for test, value in zip(tests, p, strict=True):
        if test is not None and value is not None:
            family[test.trials] = value
    adjusted = dict(zip(family, verdict.holm(list(family.values()), len(family)), strict=True))
    p_holm = list[float | None]()
    for test, value in zip(tests, p, strict=True):
        p_holm.append(None if test is None or value is None else adjusted[test.trials])
    return p_holm


def resolvable_differences(tests: Sequence[Test | None], family: int) -> list[float | None]:
    """Return the smallest difference that each test would resolve with 80% power, or None without a standard error.

    Standard deviations are pooled per metric, method and factor of looks. family: the number of distinct tests.
    """
    groups: dict[tuple[str, str, int], dict[tuple[str, ...], Estimate]] = defaultdict(dict)
    for test in filter(None, tests):
        groups[test.method, test.a.study.plan.metric, test.factor][test.trials] = test.tested
    smallest: dict[tuple[str, ...], float | None] = {}
    for (_, _, factor), group in groups.items():
        smallest |= zip(group, power.resolvable_differences(list(group.values()), factor * family), strict=True)
    return [smallest[test.trials] if test else None for test in tests]


def test_verdict(test: Test) -> str | None:
    """Return the verdict on B against A: "identical" if a side has only identical trials, None if not tested."""
    if test.method == "none":
        return IDENTICAL
    return verdict.verdict(
        test.difference,
        test.p_holm,
        test.p_margin,
        higher_is_better=test.a.study.plan.primary_metric.higher_is_better,
        unstable=(test.b.row.unstable, test.a.row.unstable),
    )


def deficit_bound(test: Test) -> float | None:
    """Return the one-sided 95% upper bound on how much worse B is than A, corrected for looks.

    The bound is negative if B is shown to be better. It equals the observed deficit if all differences, or all values
    of each side, are equal. It is None if more trials diverged in B than in A, or if there are too few trials.
    """
    if test.difference.value is None or test.b.row.diverged > test.a.row.diverged:
        return None
    higher = test.a.study.plan.primary_metric.higher_is_better
    bounds = []
    for look in test.at_looks:
        worse = -look.tested if higher else look.tested
        interval = worse.interval(1 - 2 * verdict.ALPHA / look.factor)
        if interval is not None:
            bounds.append(interval[1])
    if bounds:
        return min(bounds)
    worse = -test.tested if higher else test.tested
    return worse.value if test.method == "none" or worse.n > 1 else None
