"""Power: the seeds that a difference or an equivalence needs, and the differences that a test could resolve.

sd: the standard deviation of the per-seed differences, above 0. family: the number of contrasts corrected for. tests:
the number of contrasts times the number of looks. points: the number of grid points of each tuned arm, all equally
good, or 1 without tuning. An arm is then tested against every point of the other arm (see `tuned_pairs`), so that power
is lower. It is higher than computed where other points are worse than the best. images: the variance that the choice
of test images adds to the mean difference, whatever the number of seeds; 0 if seeds draw their test images. is_paired:
whether seeds pair the arms; if not, n counts the seeds of each arm, and sd is that of a difference of two trials.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
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


def seeds_to_resolve(
    difference: float, sd: float, family: int = 1, points: int = 1, images: float = 0.0, is_paired: bool = True
) -> int | None:
    """Return the fewest seeds that resolve a difference with 80% power, or None if over MOST_SEEDS are needed."""
    return fewest_seeds(lambda n: power_to_resolve(n, difference, sd, family, points, images, is_paired) >= POWER)


def seeds_to_show_equivalent(
    margin: float, sd: float, tests: int = 1, points: int = 1, images: float = 0.0, is_paired: bool = True
) -> int | None:
    """Return the fewest seeds that show equal arms equivalent with 80% power, or None if over MOST_SEEDS are needed."""
    return fewest_seeds(lambda n: equivalence_power(n, sd, margin, tests, points, images, is_paired) >= POWER)


def smallest_margin(
    n: int, sd: float, tests: int = 1, points: int = 1, images: float = 0.0, is_paired: bool = True
) -> float:
    """Return the smallest margin within which n seeds show equal arms equivalent with 80% power, or inf for n < 2."""
    if n < 2:
        return math.inf

    def is_enough(margin: float) -> bool:
        return equivalence_power(n, sd, margin, tests, points, images, is_paired) >= POWER

    return threshold(is_enough, sd, halvings=40)


def as_pairs(n: int, sd: float) -> tuple[int, float]:
    """Return the pairs, and their deviation, whose mean has the standard error and the freedom of two arms of n seeds.

    The sum of the two variances has 2 (n - 1) degrees of freedom, for arms that vary alike.
    """
    pairs = 2 * n - 1
    return pairs, sd * math.sqrt(pairs / n)


def critical_values(n: int, probability: float, is_paired: bool) -> np.ndarray:
    """Return t quantiles (k,) of a test, all equally likely: one if paired, else those of Welch's degrees of freedom.

    Those follow from one arm's part of the sum of both variances, which has a beta distribution and does not depend on
    the sum, for arms that vary alike.
    """
    if is_paired:
        return np.array([intervals.t_quantile(probability, n - 1)])
    part = special.betaincinv((n - 1) / 2, (n - 1) / 2, (np.arange(PARTS) + 0.5) / PARTS)
    critical: np.ndarray = special.stdtrit((n - 1) / (part**2 + (1 - part) ** 2), probability)
    return critical


def equivalence_power(
    n: int, sd: float, margin: float, tests: int = 1, points: int = 1, images: float = 0.0, is_paired: bool = True
) -> float:
    """Return the probability that n pairs show two equal arms to be equivalent, in Holm's first step.

    Each one-sided test has level 5% / tests, and no difference may be resolved at 5%. With mean D and standard
    deviation S of normal differences, the power is P(|D| < min(margin - t_{1-0.05/tests} S / sqrt(n), t_{0.975} S /
    sqrt(n))), averaged over quantiles of S (Schuirmann 1987; Phillips 1990). With several points, it is simulated, and
    a difference that is resolved at all of them is too rare to count.
    """
    if n < 2:
        return 0.0
    critical = critical_values(n, 1 - 0.05 / tests, is_paired)
    resolved = critical_values(n, 0.975, is_paired)
    if not is_paired:
        n, sd = as_pairs(n, sd)
    size, weight = standard_error(n, sd, images)
    room = margin / size
    if points > 1:
        means, spreads = grid_differences(n, points, points)
        bounds = np.resize(critical, (DRAWS, 1, 1)) * np.sqrt(weight * spreads**2 + 1 - weight)
        ahead = (means + bounds)[:, :, 0]
        behind = (bounds - means)[:, 0]  # each grid against the other's first point
        return float((np.maximum(ahead, behind).max(axis=1) < room).mean())
    spread = quantiles_of_spread(n, weight)
    largest = np.minimum(room - np.outer(critical, spread), np.outer(resolved, spread))
    return float(np.where(largest > 0, 2 * special.ndtr(largest) - 1, 0.0).mean())


def standard_error(n: int, sd: float, images: float) -> tuple[float, float]:
    """Return the standard error of a mean difference over n pairs, and the share of seeds in its square."""
    squared = sd**2 / n + images
    return math.sqrt(squared), sd**2 / n / squared


@lru_cache(256)  # a search for a margin asks for the same n each time; 4 MB
def quantiles_of_spread(n: int, weight: float) -> np.ndarray:
    """Return quantiles (NODES,) of an estimated standard error, as multiples of the true one.

    weight: the share of seeds in its square. The share of images is estimated from so many images that it is certain.
    """
    seeds = special.chdtri(n - 1, (np.arange(NODES) + 0.5) / NODES) / (n - 1)
    spreads: np.ndarray = np.sqrt(weight * seeds + 1 - weight)
    return spreads


def fewest_seeds(enough: Callable[[int], bool]) -> int | None:
    """Return the fewest seeds, 2 to MOST_SEEDS, for which the monotone `enough` is true, or None if there are none."""
    numbers = range(2, MOST_SEEDS + 1)
    place = bisect_left(numbers, True, key=enough)
    return numbers[place] if place < len(numbers) else None


def resolvable_differences(differences: Sequence[Estimate], family: int) -> list[float | None]:
    """Return the smallest difference that each test resolves with 80% power, or None without a standard error.

    The upper 80% confidence bound of the pooled standard deviation is used. All differences must therefore be of one
    metric and one kind of test. A test counts as its degrees of freedom + 1 pairs, rounded down.
    """
    tested = [difference for difference in differences if difference.se and difference.df]
    freedom = math.fsum(difference.df or 0.0 for difference in tested)
    if not freedom:
        return [None] * len(differences)
    variance = (
        math.fsum((difference.df or 0.0) * difference.n * (difference.se or 0.0) ** 2 for difference in tested)
        / freedom
    )
    sd = intervals.sd_bound(math.sqrt(variance), freedom)
    sizes: list[float | None] = []
    for difference in differences:
        if difference.se and difference.df:
            pairs = int(difference.df) + 1
            sizes.append(resolvable_difference(pairs, sd * math.sqrt(pairs / difference.n), family))
        else:
            sizes.append(None)
    return sizes


def resolvable_difference(
    n: int, sd: float, family: int = 1, points: int = 1, images: float = 0.0, is_paired: bool = True
) -> float:
    """Return the smallest difference that n seeds resolve with 80% power in Holm's first step, or inf for n < 2."""
    if n < 2:
        return math.inf

    def is_enough(size: float) -> bool:
        return power_to_resolve(n, size, sd, family, points, images, is_paired) >= POWER

    return threshold(is_enough, sd, halvings=60)


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


def power_to_resolve(
    n: int, difference: float, sd: float, family: int = 1, points: int = 1, images: float = 0.0, is_paired: bool = True
) -> float:
    """Return the probability that n seeds resolve a difference at 5% two-sided, in Holm's first step.

    For a family of m contrasts, it is P(T'_{n-1}(difference sqrt(n) / sd) > t_{1 - 0.025/m, n-1}), where T' is
    noncentral t. With several points, the difference from each of them must be resolved, which is simulated.
    """
    critical = critical_values(n, 1 - 0.025 / family, is_paired)
    if not is_paired:
        n, sd = as_pairs(n, sd)
    size, weight = standard_error(n, sd, images)
    shift = difference / size
    if points > 1:
        means, spreads = grid_differences(n, 1, points)
        resolved = shift + means > np.resize(critical, (DRAWS, 1, 1)) * np.sqrt(weight * spreads**2 + 1 - weight)
        return float(resolved.all(axis=(1, 2)).mean())
    if images:
        return float(special.ndtr(shift - np.outer(critical, quantiles_of_spread(n, weight))).mean())
    below = special.nctdtr(n - 1, shift, critical)
    resolved = np.where(np.isnan(below), shift > critical, 1.0 - below)  # NaN: SciPy's result for a thin tail
    return float(resolved.mean())


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
