"""Which of two tuned arms is better at its best, where nobody knows the best value of either.

The value that an arm's seeds use is nearly the same for all of them, so that chance in this choice is in no interval
over seeds: of two equal arms one may have been given the better value. What comes out ahead at its own value must
therefore differ from the other at every point of the grid, of which one is the other's best. Each of these tests holds
its level, and so do all together (an intersection-union test: Berger 1982).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from results import units
from results.statistics import contrast, inference, interim, verdict
from results.statistics.contrast import Sample
from results.statistics.inference import Estimate

Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """a - b; ahead: a at its own value - b at each point of the grid; behind: a at each point - b at its own.

    Of arms that are not tuned there is no grid.
    """

    own: Sample
    ahead: tuple[Sample, ...] = ()
    behind: tuple[Sample, ...] = ()


def pair(a: str, b: str, plan: Plan, samples: Mapping[str, Sample], gone: Collection[str] = ()) -> Pair:
    """gone: points where trials diverged, which are nobody's best (results/statistics/tuning.py)."""
    grids = {entry["name"]: entry["points"] for entry in plan.get("tuned", [])}
    one, other = ([samples[point] for point in grids.get(name, ()) if point not in gone] for name in (a, b))
    return Pair(
        samples[a] - samples[b],
        tuple(samples[a] - point for point in other),
        tuple(point - samples[b] for point in one),
    )


def p(of: Pair, plan: Plan) -> float | None:
    """Of neither being better than the other, two-sided: the largest over the grid of the one that is behind."""
    own, value = interim.p(of.own, plan), contrast.mean(of.own).value
    if own is None or value is None:
        return own
    against = of.ahead if (value > 0) == units.higher_is_better(plan["metric"]) else of.behind
    return max([own, *(towards(value, sample, plan) for sample in against)])


def towards(value: float, sample: Sample, plan: Plan) -> float:
    """p of a difference with the sign of `value`; 1 of any other, and of one that cannot be tested."""
    found, mean = interim.p(sample, plan), contrast.mean(sample).value
    return found if found is not None and mean is not None and mean * value > 0 else 1.0


def advantages(of: Pair, plan: Plan) -> list[Estimate]:
    """What has to be below a margin: either's advantage, wherever on its grid its best lies."""
    first, second = (of.behind, of.ahead) if units.higher_is_better(plan["metric"]) else (of.ahead, of.behind)
    own = contrast.mean(of.own)
    return [own, -own, *(contrast.mean(sample) for sample in first), *(-contrast.mean(sample) for sample in second)]


def p_within(of: Pair, margin: float | None, plan: Plan) -> float | None:
    """Of either being better by the margin: the largest p of the one-sided tests, after looks."""
    if margin is None:
        return None
    found = [inference.below(one, margin) for one in advantages(of, plan)]
    return None if None in found else min(1.0, interim.factor(plan) * max(p for p in found if p is not None))


def margin_met(of: Pair, plan: Plan) -> float | None:
    """The smallest margin within which the two are equivalent: the largest end of the 90% interval, after looks."""
    level = 1 - 2 * verdict.ALPHA / interim.factor(plan)
    found = [one.interval(level) for one in advantages(of, plan)]
    return None if None in found else max(interval[1] for interval in found if interval is not None)
