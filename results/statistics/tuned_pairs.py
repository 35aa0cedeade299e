"""Tests between two arms that allow for the uncertainty of their tuned values.

An arm's seeds choose nearly equal values, so an interval over seeds leaves out the uncertainty of that choice. The
leading arm, at its tuned value, must therefore beat the other arm at every grid point as well. Each single test has
level 5%, and so does this intersection-union test (Berger 1982).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from results.statistics import looks
from results.statistics.contrast import DataAverage, Measured, Sample, Unpaired, difference
from results.statistics.intervals import AtLevel, Estimate, Ratio
from results.statistics.verdict import Tie
from results.store.schemas.metrics import margin_bound, margin_text, too_wide
from results.store.schemas.plans import Plan

TESTED = attrgetter("tested")
MEAN = attrgetter("mean")  # on these test images


@dataclass(frozen=True)
class Pair:
    """The differences a - b of two arms of a plan, by seed unless the plan is unpaired.

    own: a - b, each at its tuned value if it is tuned. ahead: a at its tuned value minus b at each grid point. behind:
    a at each grid point minus b at its tuned value. error: the baseline's error of which the margin is a share.
    """

    plan: Plan
    own: Measured
    ahead: Sequence[Measured] = ()
    behind: Sequence[Measured] = ()
    error: Measured | None = None

    def only_seeds(self, seeds: Collection[int]) -> "Pair":
        ahead = [sample.only_seeds(seeds) for sample in self.ahead]
        behind = [sample.only_seeds(seeds) for sample in self.behind]
        error = self.error and self.error.only_seeds(seeds)
        return replace(self, own=self.own.only_seeds(seeds), ahead=ahead, behind=behind, error=error)

    @property
    def p_value(self) -> float | None:
        """The two-sided p value, corrected for looks, or None if no test is possible.

        The leading arm is tested against the other arm's tuned value and grid points, and the largest p value counts. A
        point where the other arm is not behind, or is not tested, counts as p = 1.
        """
        largest = looks.p_value(self.own, self.plan)
        value = self.own.mean.value
        if largest is None or value is None:
            return largest
        against = self.behind
        if (value > 0) == self.plan.primary_metric.higher_is_better:
            against = self.ahead
        for sample in against:
            p = None
            if (sample.mean.value or 0.0) * value > 0:
                p = looks.p_value(sample, self.plan)
            if p is None:
                return 1.0
            largest = max(largest, p)
        return largest

    @property
    def advantages(self) -> list[Ratio]:
        """Each arm's advantage, at its tuned value and at each grid point, over the other's tuned value.

        An advantage is in the metric's unit, or a ratio to `error`. Two arms are equivalent if all advantages lie below
        the margin. The list is empty unless all can be tested.
        """
        first = self.ahead
        second = self.behind
        if self.plan.primary_metric.higher_is_better:
            first = self.behind
            second = self.ahead
        tuned = ratio(self.own, self.error)
        advantages = [tuned, tuned and -tuned, *(ratio(sample, self.error) for sample in first)]
        for sample in second:
            lead = ratio(sample, self.error)
            advantages.append(lead and -lead)
        tested = [advantage for advantage in advantages if advantage is not None and advantage.df is not None]
        return tested if len(tested) == len(advantages) else []

    @property
    def advantages_at_looks(self) -> list[AtLevel]:
        at_looks = []
        for look in looks.looks_at(self.own, self.plan):
            advantages = self.only_seeds(*look.seeds).advantages
            if advantages:
                at_looks.append(AtLevel(look.factor, advantages))
        return at_looks

    @property
    def p_equivalence(self) -> float | None:
        """The p value of equivalence, corrected for looks, or None without a margin or a test."""
        if self.plan.margin is None or self.own.tested.se is None:
            return None
        bound = margin_bound(self.plan.margin)
        return min([1.0, *(at.factor * at.p_below(bound) for at in self.advantages_at_looks)])

    def tie(self, baseline: float | None, chance: float) -> Tie | None:
        """Return the difference beside the plan's margin, or None without one. chance: of a guess, 0 if unknown."""
        plan = self.plan
        if plan.margin is None:
            return None
        metric = plan.primary_metric
        withheld = ""
        if baseline is not None:
            withheld = too_wide(plan.margin, baseline, metric, chance)
        return Tie(
            margin_text(plan.margin, metric),
            margin_bound(plan.margin),
            ratio(self.own, self.error),
            ratio(self.own, self.error, MEAN),
            withheld,
        )


def ratio(own: Measured, error: Measured | None, estimate: Callable[[Measured], Estimate] = TESTED) -> Ratio | None:
    """Return a mean difference as a ratio to the mean error, over the same seeds if paired, or to 1 without an error.

    estimate: over seeds and test images, or over seeds alone. Identical differences have no test, although errors vary.
    """
    if error is None:
        return Ratio.of_mean(estimate(own))
    beyond = beyond_error(own, error)
    top = own
    if isinstance(own, Sample):
        top = own.only_seeds(beyond.seeds)
        error = error.only_seeds(beyond.seeds)
    quotient = Ratio.of_means(estimate(top), estimate(error), estimate(beyond))
    return quotient and replace(quotient, df=estimate(top).df)


def beyond_error(own: Measured, error: Measured) -> Measured:
    """Return a difference minus the error of its baseline. The parts of averages belong together."""
    if isinstance(own, DataAverage) and isinstance(error, DataAverage):
        return DataAverage(tuple(map(beyond_error, own.parts, error.parts)))
    if isinstance(own, Unpaired) and isinstance(error, Sample):
        return own.minus_dependent(error)
    return difference(own, error, is_paired=True)


def error_ratio(arm: Sample, baseline: Sample, plan: Plan) -> Ratio | None:
    """Return the ratio of an arm's error to the baseline's, over common seeds if paired, or None for other metrics."""
    if not plan.primary_metric.is_accuracy:
        return None
    top = arm.errors(plan.primary_metric)
    bottom = baseline.errors(plan.primary_metric)
    beyond = difference(top, bottom, plan.is_paired)
    if plan.is_paired:
        top = top.only_seeds(beyond.seeds)
        bottom = bottom.only_seeds(beyond.seeds)
    return Ratio.of_means(top.tested, bottom.tested, beyond.tested)
