"""Dominated arms: another arm is at least as good in every metric and better in one, whatever the intervals allow.

All intervals hold at once with probability 95% (Bonferroni over the pairs of arms and the metrics that vary by seed).
So no arm is wrongly called dominated in 95% of studies. Where an interval contains 0, nothing is dominated.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from results.statistics import looks, verdict
from results.statistics.arms import ArmResults, Contrast
from results.statistics.contrast import difference
from results.statistics.intervals import Interval
from results.statistics.secondary import SecondaryMetric
from results.store.schemas.metrics import EXACT
from results.store.schemas.plans import Plan


def dominating_arms(
    arms: Mapping[str, ArmResults], contrasts: Mapping[str, Contrast], secondary: Sequence[SecondaryMetric], plan: Plan
) -> dict[str, list[str]]:
    """Return arm -> the arms that dominate it, among those with the same baseline.

    contrasts: those in the first metric, whose looks count. The result is empty for a study of one metric, a tuned
    study, and a study of which a finished trial lacks a metric.
    """
    if not plan.secondary_metrics or plan.tuned or any(in_metric.lacking for in_metric in secondary):
        return {}
    dominating: dict[str, list[str]] = {name: [] for name in arms}
    pairs = [(a, b) for a, b in itertools.combinations(arms.values(), 2) if a.arm.baseline == b.arm.baseline]
    factors = [looks.last_factor(contrast.looks) for contrast in contrasts.values() if contrast.looks]
    tests = len(pairs) * (1 + len(secondary)) * max(factors, default=1)
    for a, b in pairs:
        advantages = list(advantage_intervals(a, b, secondary, plan, 1 - verdict.ALPHA / tests))
        if None in advantages:
            continue
        lows, highs = zip(*filter(None, advantages), strict=True)
        if dominates(lows) and not a.unstable:
            dominating[b.name].append(a.name)
        if dominates([-high for high in highs]) and not b.unstable:
            dominating[a.name].append(b.name)
    return dominating


def dominates(smallest: Sequence[float]) -> bool:
    return min(smallest) >= 0 and max(smallest) > 0


def advantage_intervals(
    a: ArmResults, b: ArmResults, secondary: Sequence[SecondaryMetric], plan: Plan, level: float
) -> Iterator[Interval | None]:
    samples = [(plan.primary_metric, a.sample, b.sample)]
    for in_metric in secondary:
        samples.append((in_metric.metric, in_metric.samples[a.name], in_metric.samples[b.name]))
    for metric, of_a, of_b in samples:
        gain = difference(of_a, of_b, plan.is_paired)
        if not metric.higher_is_better:
            gain = difference(of_b, of_a, plan.is_paired)
        yield gain.tested.interval(level)
    for name in plan.secondary_metrics:
        if name in EXACT:
            size_of_a = getattr(a.arm, name)
            size_of_b = getattr(b.arm, name)
            if size_of_a is None or size_of_b is None:
                yield None
                continue
            advantage = float(size_of_b - size_of_a)  # the smaller is the better
            yield advantage, advantage
