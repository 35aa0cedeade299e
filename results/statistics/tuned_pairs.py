"""Tests between two arms that allow for the uncertainty of their tuned values.

An arm's seeds choose nearly equal values, so an interval over seeds leaves out the uncertainty of that choice. The
leading arm, at its tuned value, must therefore beat the other arm at every grid point as well. Each single test has
level 5%, and so does this intersection-union test (Berger 1982).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from results import units
from results.statistics import looks, p_values, verdict
from results.statistics.contrast import Sample
from results.statistics.intervals import Estimate
from results.store.schemas import Plan


@dataclass(frozen=True)
class Pair:
    """The per-seed differences a - b of two arms, without excluded grid points.

    own: a - b, each at its tuned value if it is tuned. ahead: a at its tuned value minus b at each grid point, empty if
    b is not tuned. behind: a at each grid point minus b at its tuned value, empty if a is not tuned.
    """

    own: Sample
    ahead: tuple[Sample, ...] = ()
    behind: tuple[Sample, ...] = ()

    def only_seeds(self, seeds: Collection[int]) -> "Pair":
        ahead, behind = (tuple(one.only_seeds(seeds) for one in side) for side in (self.ahead, self.behind))
        return Pair(self.own.only_seeds(seeds), ahead, behind)


def pair(a: str, b: str, plan: Plan, samples: Mapping[str, Sample], gone: Collection[str] = ()) -> Pair:
    """Return the differences between the arms `a` and `b`. gone: grid points left out (`tuning.unstable_points`)."""
    grids = {entry.name: entry.points for entry in plan.tuned}
    one, other = ([samples[point] for point in grids.get(name, ()) if point not in gone] for name in (a, b))
    return Pair(
        samples[a] - samples[b],
        tuple(samples[a] - point for point in other),
        tuple(point - samples[b] for point in one),
    )


def p_value(of: Pair, plan: Plan) -> float | None:
    """Return the two-sided p value of a pair, corrected for looks, or None if no test is possible.

    The leading arm, at its tuned value, is tested against the other arm's tuned value and grid points. The result is
    the largest p value. A point where the other arm is not behind, or is not tested, counts as p = 1.
    """
    own, value = looks.p_value(of.own, plan), of.own.mean.value
    if own is None or value is None:
        return own
    found = [own]
    for sample in of.ahead if (value > 0) == units.higher_is_better(plan.metric) else of.behind:
        p = looks.p_value(sample, plan) if (sample.mean.value or 0.0) * value > 0 else None
        found.append(1.0 if p is None else p)
    return max(found)


def advantages(of: Pair, plan: Plan) -> list[Estimate]:
    """Return each arm's advantage, at its tuned value and at each grid point, over the other's tuned value.

    Two arms are equivalent if all advantages lie below the margin.
    """
    first, second = (of.behind, of.ahead) if units.higher_is_better(plan.metric) else (of.ahead, of.behind)
    own = of.own.tested
    return [own, -own, *(sample.tested for sample in first), *(-sample.tested for sample in second)]


def p_equivalence(of: Pair, plan: Plan) -> float | None:
    """Return the p value of equivalence, corrected for looks, or None without a margin or an interval.

    At each look, it is the largest one-sided p value of `advantages`.
    """
    margin = plan.margin
    if margin is None or of.own.tested.se is None:
        return None

    def p_at(seeds: frozenset[int]) -> float | None:
        found = [p_values.p_below(one, margin) for one in advantages(of.only_seeds(seeds), plan)]
        return None if None in found else max(p for p in found if p is not None)

    return looks.smallest_p(looks.looks_at(of.own, plan), p_at)


def margin_met(of: Pair, plan: Plan) -> float | None:
    """Return the smallest margin within which the arms are equivalent, or None if an interval is missing.

    At each look, it is the largest upper end of the intervals of `advantages`: 90% at a look that is not corrected, and
    wider at others. The smallest over the looks counts, as for `p_equivalence`.
    """
    met = []
    for look in looks.looks_at(of.own, plan):
        level = 1 - 2 * verdict.ALPHA / look.factor
        found = [one.interval(level) for one in advantages(of.only_seeds(look.seeds), plan)]
        if look.is_whole and None not in found:
            met.append(max(interval[1] for interval in found if interval is not None))
    return min(met, default=None)
