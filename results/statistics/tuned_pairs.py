"""Tests between two arms that allow for the uncertainty of their tuned values.

An arm's seeds choose nearly equal values, so an interval over seeds leaves out the uncertainty of that choice. The
leading arm, at its tuned value, must therefore beat the other arm at every grid point as well. Each single test has
level 5%, and so does this intersection-union test (Berger 1982).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from results.statistics import contrast, looks, ratios, verdict
from results.statistics.contrast import Sample
from results.statistics.ratios import AtLevel, Ratio
from results.statistics.verdict import Tie
from results.store.schemas import Metric, Plan
from results.store.schemas.metrics import margin_bound, margin_text, too_wide


@dataclass(frozen=True)
class Pair:
    """The per-seed differences a - b of two arms, without excluded grid points.

    own: a - b, each at its tuned value if it is tuned. ahead: a at its tuned value minus b at each grid point, empty if
    b is not tuned. behind: a at each grid point minus b at its tuned value, empty if a is not tuned. error: the
    baseline's error of which the margin is a share, or None if the margin is in the metric's unit.
    """

    own: Sample
    ahead: tuple[Sample, ...] = ()
    behind: tuple[Sample, ...] = ()
    error: Sample | None = None

    def only_seeds(self, seeds: Collection[int]) -> "Pair":
        return replace(
            self,
            own=self.own.only_seeds(seeds),
            ahead=tuple(sample.only_seeds(seeds) for sample in self.ahead),
            behind=tuple(sample.only_seeds(seeds) for sample in self.behind),
        )


def pair(
    a: str, b: str, plan: Plan, samples: Mapping[str, Sample], unstable_points: Collection[str] = (), baseline: str = ""
) -> Pair:
    """Return the differences between the arms `a` and `b`.

    unstable_points: grid points left out (`TuningGrid.unstable_points`). baseline: the arm whose error a margin is a
    share of, by default `b`.
    """

    def grid_samples(name: str) -> list[Sample]:
        points = next((entry.points for entry in plan.tuned if entry.name == name), [])
        return [samples[point] for point in points if point not in unstable_points]

    error = None
    if isinstance(plan.margin, str):
        error = contrast.error(samples[baseline or b], plan.primary_metric)
    return Pair(
        samples[a] - samples[b],
        tuple(samples[a] - point for point in grid_samples(b)),
        tuple(point - samples[b] for point in grid_samples(a)),
        error,
    )


def p_value(of: Pair, plan: Plan) -> float | None:
    """Return the two-sided p value of a pair, corrected for looks, or None if no test is possible.

    The leading arm, at its tuned value, is tested against the other arm's tuned value and grid points. The result is
    the largest p value. A point where the other arm is not behind, or is not tested, counts as p = 1.
    """
    p_tuned = looks.p_value(of.own, plan)
    value = of.own.mean.value
    if p_tuned is None or value is None:
        return p_tuned
    p_values = [p_tuned]
    for sample in of.ahead if (value > 0) == plan.primary_metric.higher_is_better else of.behind:
        p = looks.p_value(sample, plan) if (sample.mean.value or 0.0) * value > 0 else None
        p_values.append(1.0 if p is None else p)
    return max(p_values)


def advantages(of: Pair, plan: Plan) -> list[Ratio | None]:
    """Return each arm's advantage, at its tuned value and at each grid point, over the other's tuned value.

    An advantage is in the metric's unit, or a ratio to `of.error`. Two arms are equivalent if all advantages lie below
    the margin.
    """
    first, second = (of.behind, of.ahead) if plan.primary_metric.higher_is_better else (of.ahead, of.behind)
    tuned = ratio(of.own, of.error)
    behind = [ratio(sample, of.error) for sample in first]
    ahead = [ratio(sample, of.error) for sample in second]
    return [tuned, tuned and -tuned, *behind, *(advantage and -advantage for advantage in ahead)]


def ratio(difference: Sample, error: Sample | None) -> Ratio | None:
    """Return the mean difference as a ratio to the mean error over the same seeds, or to 1 without an error.

    Identical differences have no test, although errors vary.
    """
    if error is None:
        return Ratio.of_mean(difference.tested)
    beyond = difference - error
    top, bottom = (sample.only_seeds(beyond.values).tested for sample in (difference, error))
    quotient = Ratio.of_means(top, bottom, beyond.tested)
    return quotient and replace(quotient, df=top.df)


def error_ratio(arm: Sample, baseline: Sample, metric: Metric) -> Ratio | None:
    """Return the ratio of an arm's error to the baseline's over common seeds, or None for other metrics."""
    if not metric.is_accuracy:
        return None
    error = contrast.error(arm, metric)
    baseline_error = contrast.error(baseline, metric)
    pairs = error - baseline_error
    return Ratio.of_means(
        error.only_seeds(pairs.values).tested, baseline_error.only_seeds(pairs.values).tested, pairs.tested
    )


def tie(of: Pair, plan: Plan, baseline: float | None) -> Tie | None:
    """Return the difference beside the plan's margin, or None without a margin. baseline: the baseline's mean."""
    if plan.margin is None:
        return None
    return Tie(
        margin_text(plan.margin, plan.primary_metric),
        margin_bound(plan.margin),
        ratio(of.own, of.error),
        ratio(of.own.on_these_images, of.error and of.error.on_these_images),
        "" if baseline is None else too_wide(plan.margin, baseline, plan.primary_metric, plan.chance),
    )


def p_equivalence(of: Pair, plan: Plan) -> float | None:
    """Return the p value of equivalence, corrected for looks, or None without a margin or a test.

    At each look, it is the largest one-sided p value of `advantages`.
    """
    if plan.margin is None or of.own.tested.se is None:
        return None
    bound = margin_bound(plan.margin)
    return looks.smallest_product(
        (at.factor, max(advantage.p_below(bound) for advantage in at.ratios)) for at in advantages_at_looks(of, plan)
    )


def margins_met(pairs: Sequence[Pair | None], family: int, plan: Plan) -> list[float | None]:
    """Return the smallest margin within which each pair is equivalent after Holm's correction, or None without a test.

    family: the planned number of pairs. If the plan's margin is a share of the baseline's error, so are the results.
    """
    groups = [advantages_at_looks(pair, plan) if pair else [] for pair in pairs]
    return ratios.smallest_bounds(groups, family, verdict.ALPHA)


def advantages_at_looks(of: Pair, plan: Plan) -> list[AtLevel]:
    """Return the `advantages` at each look with a test, with the factor that corrects its p value."""
    at_looks = []
    for look in looks.looks_at(of.own, plan):
        at_seeds = advantages(of.only_seeds(*look.seeds), plan)
        tested = [advantage for advantage in at_seeds if advantage and advantage.df is not None]
        if look.is_whole and len(tested) == len(at_seeds):
            at_looks.append(AtLevel(look.factor, tested))
    return at_looks
