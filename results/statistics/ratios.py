"""Ratios of two means over the same seeds, and the smallest ratios that Holm's method shows not to be exceeded.

A bound on a ratio is tested by a linear contrast of the two means (Fieller 1954), which is an exact t test for normal
values. A single mean is the ratio to a bottom of exactly 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from results.statistics.intervals import Estimate, Interval, t_quantile


@dataclass(frozen=True)
class Ratio:
    """The ratio top / bottom of two means, bottom above 0.

    variances, covariance: squared standard errors of top and bottom, and their covariance. df: degrees of freedom, None
    without a test.
    """

    top: float
    bottom: float = 1.0
    variances: tuple[float, float] = (0.0, 0.0)
    covariance: float = 0.0
    df: float | None = None

    @classmethod
    def of_mean(cls, mean: Estimate) -> "Ratio | None":
        """Return a mean as its ratio to 1, or None without a value."""
        if mean.value is None:
            return None
        return cls(mean.value, variances=((mean.se or 0.0) ** 2, 0.0), df=mean.df)

    @classmethod
    def of_means(cls, top: Estimate, bottom: Estimate, difference: Estimate) -> "Ratio | None":
        """Return top / bottom, or None without values or unless bottom is above 0. difference: top - bottom.

        The covariance follows from the variance of the difference, and the degrees of freedom are the difference's.
        """
        if top.value is None or bottom.value is None or bottom.value <= 0:
            return None
        variances = (top.se or 0.0) ** 2, (bottom.se or 0.0) ** 2
        largest = math.sqrt(variances[0] * variances[1])
        covariance = (sum(variances) - (difference.se or 0.0) ** 2) / 2
        return cls(top.value, bottom.value, variances, min(max(covariance, -largest), largest), difference.df)

    def minus_one(self) -> "Ratio":
        """Return (top - bottom) / bottom."""
        top, bottom = self.variances
        spread = top - 2 * self.covariance + bottom
        return replace(
            self, top=self.top - self.bottom, variances=(spread, bottom), covariance=self.covariance - bottom
        )

    def __neg__(self) -> "Ratio":
        return replace(self, top=-self.top, covariance=-self.covariance)

    @property
    def value(self) -> float:
        return self.top / self.bottom

    def p_below(self, bound: float) -> float:
        """Return the one-sided p value of the null hypothesis top / bottom >= bound, or 1 without a test."""
        if self.df is None:
            return 1.0
        variance = self.variances[0] - 2 * bound * self.covariance + bound**2 * self.variances[1]
        if variance <= 0:
            return 1.0
        return float(special.stdtr(self.df, (self.top - bound * self.bottom) / math.sqrt(variance)))

    def interval(self, level: float = 0.95, lowest: float = -math.inf) -> Interval | None:
        """Return Fieller's interval (low, high) of the ratio, or None without a test or if it is unbounded.

        lowest: the smallest possible ratio.
        """
        if self.df is None:
            return None
        t = t_quantile((1 + level) / 2, self.df)
        high = float(bounds(t, *moments(self)))
        if not math.isfinite(high):
            return None
        return max(lowest, float(bounds(-t, *moments(self)))), max(lowest, high)


def moments(ratio: Ratio) -> tuple[float, float, float, float, float]:
    return ratio.top, ratio.bottom, *ratio.variances, ratio.covariance


def bounds(t: float | np.ndarray, *of: float | np.ndarray) -> np.ndarray:
    """Return the upper bounds of ratios that lie t standard errors above, or the lower ones for negative t.

    of: the `moments` of the ratios, as numbers or arrays. A bound is infinite if the bottom is not clearly above 0.
    """
    top, bottom, top_variance, bottom_variance, covariance = map(np.asarray, of)
    square = np.square(t)
    a = bottom**2 - square * bottom_variance
    b = top * bottom - square * covariance
    c = top**2 - square * top_variance
    root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
    bounded = a > 0
    return np.where(bounded, (b + np.sign(t) * root) / np.where(bounded, a, 1.0), np.inf)


@dataclass(frozen=True)
class AtLevel:
    """Ratios that are tested together. factor: what their p value is multiplied by."""

    factor: int
    ratios: Sequence[Ratio]

    def p_below(self, bound: float) -> float:
        """Return the p value of the null hypothesis that a ratio is at least `bound`."""
        return max(ratio.p_below(bound) for ratio in self.ratios)


def smallest_bounds(groups: Sequence[Sequence[AtLevel]], family: int, alpha: float) -> list[float | None]:
    """Return for each group the smallest bound below which Holm's method shows its ratios to be, or None.

    Each group is one hypothesis with several tests, of which the smallest p value times its factor counts. The p value
    of a test is the largest of its ratios' at a common bound. family: the planned number of hypotheses. alpha: the
    error rate.

    Holm's method rejects at a bound in any order, each time at alpha / (number of hypotheses left). The next hypothesis
    to be rejected as the bound grows is therefore the one with the smallest bound at the level of the next step.
    """
    smallest: list[float | None] = [None] * len(groups)
    tested = [i for i, group in enumerate(groups) if group]
    if not tested:
        return smallest
    columns: list[tuple[float, ...]] = []  # of all ratios, those of a test side by side, and the tests of a group too
    levels = []
    first_ratios: list[int] = []  # of each test
    first_tests = []  # of each group
    for i in tested:
        first_tests.append(len(first_ratios))
        for test in groups[i]:
            first_ratios.append(len(columns))
            for ratio in test.ratios:
                columns.append(moments(ratio))
                levels.append((ratio.df or 0.0, test.factor))
    different, kind = np.unique(np.array(levels), axis=0, return_inverse=True)
    freedom, factors = different.T
    left = np.full(len(tested), True)
    reached = -math.inf
    planned = max(family, len(groups))
    for size in range(planned, planned - len(tested), -1):
        t = special.stdtrit(freedom, 1 - alpha / (size * factors))[kind.ravel()]
        of_tests = np.maximum.reduceat(bounds(t, *np.array(columns).T), first_ratios)
        upper = np.where(left, np.minimum.reduceat(of_tests, first_tests), np.inf)
        at = int(np.argmin(upper))
        reached = max(reached, float(upper[at]))
        if not math.isfinite(reached):
            break
        smallest[tested[at]] = reached
        left[at] = False
    return smallest
