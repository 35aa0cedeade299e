"""Power: the seeds that a difference or an equivalence needs, and the differences that a test could resolve."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from results.statistics import intervals
from results.statistics.intervals import Estimate

POWER = 0.8
MOST_SEEDS = 1000
NODES = 2000  # quantiles of the standard deviation over which the power is averaged
PARTS = 100  # quantiles of the ratio of two arms' variances over which it is averaged
DRAWS = 10_000  # simulated studies behind the power with tuning


@dataclass(frozen=True)
class PlannedTest:
    """How an arm is tested, in Holm's first step. `n` counts seeds of each arm.

    sd: the standard deviation of the per-seed differences (unpaired: of a difference of two trials), above 0. tests:
    contrasts times what looks multiply p by. points: the grid points of each tuned arm, all equally good. An arm is
    tested against every point of the other (see `tuned_pairs`): power is higher where other points are worse than the
    best. images: the variance that the choice of test images adds to the mean difference, whatever the number of seeds.
    """

    sd: float
    tests: int = 1
    points: int = 1
    images: float = 0.0
    is_paired: bool = True

    def seeds_to_resolve(self, difference: float) -> int | None:
        """Return the fewest seeds that resolve a difference with 80% power, or None if over MOST_SEEDS are needed."""
        return fewest_seeds(lambda n: self.power_to_resolve(n, difference) >= POWER)

    def seeds_to_show_equivalent(self, margin: float) -> int | None:
        """Return the fewest seeds that show equal arms equivalent with 80% power, or None if over MOST_SEEDS."""
        return fewest_seeds(lambda n: self.equivalence_power(n, margin) >= POWER)

    def resolvable_difference(self, n: int) -> float:
        """Return the smallest difference that n seeds resolve with 80% power, or inf for n < 2."""
        if n < 2:
            return math.inf
        return threshold(lambda size: self.power_to_resolve(n, size) >= POWER, self.sd, halvings=60)

    def smallest_margin(self, n: int) -> float:
        """Return the smallest margin within which n seeds show equal arms equivalent with 80% power, inf for n < 2."""
        if n < 2:
            return math.inf
        return threshold(lambda margin: self.equivalence_power(n, margin) >= POWER, self.sd, halvings=40)

    def power_to_resolve(self, n: int, difference: float) -> float:
        """Return the probability that n seeds resolve a difference at 5% two-sided.

        It is P(T'_{n-1}(difference sqrt(n) / sd) > t_{1 - 0.025/tests, n-1}), where T' is noncentral t. With several
        points, the difference from each of them must be resolved, which is simulated.
        """
        critical = self.critical_values(n, 1 - 0.025 / self.tests)
        pairs, size, weight = self.standard_error(n)
        shift = difference / size
        if self.points > 1:
            means, spreads = grid_differences(pairs, 1, self.points)
            resolved = shift + means > np.resize(critical, (DRAWS, 1, 1)) * np.sqrt(weight * spreads**2 + 1 - weight)
            return float(resolved.all(axis=(1, 2)).mean())
        if self.images:
            return float(special.ndtr(shift - np.outer(critical, quantiles_of_spread(pairs, weight))).mean())
        below = special.nctdtr(pairs - 1, shift, critical)
        resolved = np.where(np.isnan(below), shift > critical, 1.0 - below)  # NaN: SciPy's result for a thin tail
        return float(resolved.mean())

    def equivalence_power(self, n: int, margin: float) -> float:
        """Return the probability that n seeds show two equal arms to be equivalent.

        Each one-sided test has level 5% / tests, and no difference may be resolved at 5%. With mean D and standard
        deviation S of normal differences, the power is P(|D| < min(margin - t_{1-0.05/tests} S / sqrt(n), t_{0.975} S /
        sqrt(n))), averaged over quantiles of S (Schuirmann 1987; Phillips 1990). With several points, it is simulated,
        and a difference that is resolved at all of them is too rare to count.
        """
        if n < 2:
            return 0.0
        critical = self.critical_values(n, 1 - 0.05 / self.tests)
        resolved = self.critical_values(n, 0.975)
        pairs, size, weight = self.standard_error(n)
        room = margin / size
        if self.points > 1:
            means, spreads = grid_differences(pairs, self.points, self.points)
            bounds = np.resize(critical, (DRAWS, 1, 1)) * np.sqrt(weight * spreads**2 + 1 - weight)
            ahead = (means + bounds)[:, :, 0]
            behind = (bounds - means)[:, 0]  # each grid against the other's first point
            return float((np.maximum(ahead, behind).max(axis=1) < room).mean())
        spread = quantiles_of_spread(pairs, weight)
        largest = np.minimum(room - np.outer(critical, spread), np.outer(resolved, spread))
        return float(np.where(largest > 0, 2 * special.ndtr(largest) - 1, 0.0).mean())

    def critical_values(self, n: int, probability: float) -> np.ndarray:
        """Return t quantiles (k,), all equally likely: one if paired, else those of Welch's degrees of freedom.

        Those follow from one arm's part of the sum of both variances, which has a beta distribution and does not depend
        on the sum, for arms that vary alike.
        """
        if self.is_paired:
            return np.array([intervals.t_quantile(probability, n - 1)])
        part = special.betaincinv((n - 1) / 2, (n - 1) / 2, (np.arange(PARTS) + 0.5) / PARTS)
        critical: np.ndarray = special.stdtrit((n - 1) / (part**2 + (1 - part) ** 2), probability)
        return critical

    def standard_error(self, n: int) -> tuple[int, float, float]:
        """Return (pairs, standard error of the mean difference, share of seeds in its square).

        pairs: as many as have the degrees of freedom; for unpaired arms that vary alike, those are 2 (n - 1).
        """
        pairs = n
        sd = self.sd
        if not self.is_paired:
            pairs = 2 * n - 1
            sd *= math.sqrt(pairs / n)
        squared = sd**2 / pairs + self.images
        return pairs, math.sqrt(squared), sd**2 / pairs / squared


def fewest_seeds(enough: Callable[[int], bool]) -> int | None:
    """Return the fewest seeds, 2 to MOST_SEEDS, for which the monotone `enough` is true, or None if there are none."""
    numbers = range(2, MOST_SEEDS + 1)
    place = bisect_left(numbers, True, key=enough)
    return numbers[place] if place < len(numbers) else None


def threshold(enough: Callable[[float], bool], start: float, halvings: int) -> float:
    """Return the smallest positive number for which `enough` is true: double `start`, then bisect `halvings` times."""
    low = 0.0
    high = start
    while not enough(high):
        high *= 2
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@lru_cache(256)  # a search for a margin asks for the same n each time; 4 MB
def quantiles_of_spread(n: int, weight: float) -> np.ndarray:
    """Return quantiles (NODES,) of an estimated standard error, as multiples of the true one.

    weight: the share of seeds in its square. The share of images is estimated from so many images that it is certain.
    """
    seeds = special.chdtri(n - 1, (np.arange(NODES) + 0.5) / NODES) / (n - 1)
    spreads: np.ndarray = np.sqrt(weight * seeds + 1 - weight)
    return spreads


@lru_cache(16)
def grid_differences(n: int, points: int, others: int) -> tuple[np.ndarray, np.ndarray]:
    """Return means (DRAWS, points, others), times sqrt(n), and deviations of the differences between two grids.

    All trials of a seed are independent draws with variance 1/2, so that a difference has standard deviation 1. n
    seeds, over 1, are drawn by the sufficient statistics: normal means, and scatter matrices by Bartlett's
    decomposition, whose cost does not grow with n. The random seed is fixed.
    """
    rng = np.random.default_rng(0)
    count = points + others
    columns = min(points + others, n - 1)
    means = rng.standard_normal((DRAWS, count)) / math.sqrt(2)
    factor = np.zeros((DRAWS, count, columns))  # times its transpose: the scatter matrix of the points
    for row in range(count):
        factor[:, row, :row] = rng.standard_normal((DRAWS, min(row, columns)))
        if row < columns:
            factor[:, row, row] = np.sqrt(rng.chisquare(n - 1 - row, DRAWS))
    squares = np.stack(
        [((factor[:, [point]] - factor[:, points:]) ** 2).sum(axis=2) for point in range(points)], axis=1
    )  # (DRAWS, points, others)
    return means[:, :points, None] - means[:, None, points:], np.sqrt(squares / (2 * (n - 1)))


def resolvable_differences(differences: Sequence[Estimate], family: int) -> list[float | None]:
    """Return the smallest difference that each test resolves with 80% power, or None without a standard error.

    The upper 80% confidence bound of the pooled standard deviation is used. All differences must therefore be of one
    metric and one kind of test. A test counts as its degrees of freedom + 1 pairs, rounded down.
    """
    squares = []
    freedom = []
    for difference in differences:
        if difference.se and difference.df:
            squares.append(difference.df * difference.n * difference.se**2)
            freedom.append(difference.df)
    if not freedom:
        return [None] * len(differences)
    total = math.fsum(freedom)
    sd = intervals.sd_bound(math.sqrt(math.fsum(squares) / total), total)
    sizes: list[float | None] = []
    for difference in differences:
        size = None
        if difference.se and difference.df:
            pairs = int(difference.df) + 1
            size = PlannedTest(sd * math.sqrt(pairs / difference.n), family).resolvable_difference(pairs)
        sizes.append(size)
    return sizes
