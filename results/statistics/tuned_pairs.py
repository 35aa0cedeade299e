"""Compare two tuned arms, each at its best value, where neither best value is known for certain.

The seeds of an arm share nearly the same chosen value, so no interval over seeds contains the luck of that choice. The
arm ahead at its own value must therefore differ from the other arm at every point of the grid. Each test holds its
level, and so does the intersection-union of all (Berger 1982).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from results import units
from results.statistics import inference, interim, verdict
from results.statistics.contrast import Sample
from results.statistics.inference import Estimate
from results.store.schemas import Plan


@dataclass(frozen=True)
class Pair:
    """The differences a - b of two arms.

    own: both arms at their tuned values. ahead: a at its tuned value, b at each grid point. behind: a at each grid
    point, b at its tuned value. `ahead` and `behind` are empty for arms that are not tuned.
    """

    own: Sample
    ahead: tuple[Sample, ...] = ()
    behind: tuple[Sample, ...] = ()


def pair(a: str, b: str, plan: Plan, samples: Mapping[str, Sample], gone: Collection[str] = ()) -> Pair:
    """Form the pair of two arms. `gone` lists grid points excluded because trials diverged there."""
    grids = {entry.name: entry.points for entry in plan.tuned}
    one, other = ([samples[point] for point in grids.get(name, ()) if point not in gone] for name in (a, b))
    return Pair(
        samples[a] - samples[b],
        tuple(samples[a] - point for point in other),
        tuple(point - samples[b] for point in one),
    )


def p_value(of: Pair, plan: Plan) -> float | None:
    """Return the two-sided p value: the largest p of the arm ahead against the other arm, tuned or at a grid point."""
    own, value = interim.p_value(of.own, plan), of.own.mean.value
    if own is None or value is None:
        return own
    against = of.ahead if (value > 0) == units.higher_is_better(plan.metric) else of.behind
    return max([own, *(p_towards(value, sample, plan) for sample in against)])


def p_towards(value: float, sample: Sample, plan: Plan) -> float:
    """Return the p value of a difference with the sign of `value`; 1 for the opposite sign or no test."""
    found, mean = interim.p_value(sample, plan), sample.mean.value
    return found if found is not None and mean is not None and mean * value > 0 else 1.0


def advantages(of: Pair, plan: Plan) -> list[Estimate]:
    """List the differences that must lie below a margin, over both arms and all grid points."""
    first, second = (of.behind, of.ahead) if units.higher_is_better(plan.metric) else (of.ahead, of.behind)
    own = of.own.mean
    return [own, -own, *(sample.mean for sample in first), *(-sample.mean for sample in second)]


def p_equivalence(of: Pair, margin: float | None, plan: Plan) -> float | None:
    """Return p of equivalence within the margin: the largest of all one-sided tests, corrected for looks."""
    if margin is None:
        return None
    found = [inference.p_below(one, margin) for one in advantages(of, plan)]
    return None if None in found else min(1.0, interim.correction_factor(plan) * max(p for p in found if p is not None))


def margin_met(of: Pair, plan: Plan) -> float | None:
    """Return the smallest margin within which both arms are equivalent: the largest end of the 90% intervals."""
    level = 1 - 2 * verdict.ALPHA / interim.correction_factor(plan)
    found = [one.interval(level) for one in advantages(of, plan)]
    return None if None in found else max(interval[1] for interval in found if interval is not None)
