"""Means and differences of means, with the standard errors behind every interval; and standard deviations.

Distributions come from scipy.special, because importing scipy.stats takes three times as long. `image` is what one test
image adds to an accuracy, or 0 for other metrics.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import special

Interval = tuple[float, float]
IDENTICAL = 1e-12  # spread, relative to size, below which numbers differ by rounding alone
DRAWS = 10_000  # simulated samples behind a simultaneous interval
NORMAL_MAD = 1.4826  # standard deviation / median absolute deviation of a normal sample


@dataclass(frozen=True)
class Estimate:
    """A mean, or a difference of means, with its standard error.

    n: the number of values or pairs, or the size of the smaller sample. value: None without data. se, df: the standard
    error and its degrees of freedom, None without an interval. why: the reason for a missing interval, such as "n = 1".
    """

    n: int
    value: float | None
    se: float | None = None
    df: float | None = None
    why: str = ""

    def interval(self, level: float = 0.95) -> Interval | None:
        """Return the two-sided t interval (low, high), or None without a standard error."""
        if self.value is None or self.se is None or self.df is None:
            return None
        half = self.se * t_quantile((1 + level) / 2, self.df)
        return self.value - half, self.value + half

    def with_extra_variance(self, variance: float) -> "Estimate":
        """Return the estimate with `variance` added to the square of its standard error, if it has one."""
        return self if self.se is None else replace(self, se=math.sqrt(self.se**2 + variance))

    def __neg__(self) -> "Estimate":
        return self if self.value is None else replace(self, value=-self.value)

    @property
    def p_value(self) -> float | None:
        """The two-sided p value of the null hypothesis that the value is 0, or None without a standard error."""
        if self.value is None or self.se is None or self.df is None:
            return None
        return float(2 * special.stdtr(self.df, -abs(self.value) / self.se))


@lru_cache(1024)  # a table needs few quantiles, thousands of times
def t_quantile(probability: float, df: float) -> float:
    """Return a quantile of Student's t distribution with `df` degrees of freedom."""
    return float(special.stdtrit(df, probability))


def mean(values: np.ndarray, extra_variance: float = 0.0, image: float = 0.0) -> Estimate:
    """Return an estimate of the mean of values (n,).

    The estimate has n - 1 degrees of freedom and SE^2 = s^2 / n + extra_variance. For per-seed differences this is the
    paired t test. There is no interval for fewer than two values, or for identical values (see `are_identical`).
    Accuracies are discrete, so zero spread is not certainty.
    """
    n = len(values)
    if n < 2:
        return Estimate(n, float(values[0]) if n else None, why=f"n = {n}")
    value = exact_sum(values.tolist()) / n
    if are_identical(values, image):
        return Estimate(n, value, why=f"all {n} are identical")
    return Estimate(n, value, math.sqrt(variance(values) / n + extra_variance), n - 1)


def variance(values: np.ndarray) -> float:
    """Return the unbiased sample variance of values (n,), n > 1."""
    numbers = values.tolist()  # Python sums five values faster than NumPy does
    center = exact_sum(numbers) / len(numbers)
    return exact_sum([(number - center) * (number - center) for number in numbers]) / (len(numbers) - 1)


def exact_sum(numbers: Sequence[float]) -> float:
    """Return the sum of the numbers, rounded only once. On overflow, the result is inf or NaN as in NumPy."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return sum(numbers)


def are_identical(values: np.ndarray, image: float = 0.0) -> bool:
    """Return whether values (n,) differ only by rounding, or by at most half of `image`, as between unequal folds."""
    low = float(values.min())
    high = float(values.max())
    return bool(high - low <= max(image / 2, IDENTICAL * max(1.0, -low, high)))


def welch(a: np.ndarray, b: np.ndarray, image: float = 0.0) -> Estimate:
    """Return an estimate of mean(b) - mean(a) for two independent samples with unequal variances (Welch 1947).

    There is no interval if a sample has fewer than two values, or if neither sample varies (see `are_identical`).
    """
    n = min(len(a), len(b))
    if n == 0:
        return Estimate(n, None, why="n = 0")
    difference = float(b.mean() - a.mean())
    if n < 2:
        return Estimate(n, difference, why=f"n = {n}")
    if are_identical(a, image) and are_identical(b, image):
        return Estimate(n, difference, why="all are identical on either side")
    parts = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)])
    return Estimate(n, difference, math.sqrt(parts.sum()), welch_df(parts, np.array([len(a), len(b)])))


def welch_df(parts: np.ndarray, sizes: np.ndarray) -> float:
    """Return the degrees of freedom of Welch's t test, from squared standard errors (2,) and sample sizes (2,)."""
    return float(parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum())


def overlapping_samples(a: np.ndarray, b: np.ndarray, pairs: int, image: float = 0.0) -> Estimate:
    """Return an estimate of mean(b) - mean(a) for two partially paired samples (Derrick et al. 2017).

    The first `pairs` > 1 values are paired, and the others are independent. SE^2 = s_a^2 / n_a +
    s_b^2 / n_b - 2 r s_a s_b pairs / (n_a n_b), where r is the correlation of the pairs. Variances may differ. There is
    no interval where `welch` has none, or if all pairs have the same difference.
    """
    sizes = np.array([len(a), len(b)])
    unpaired = welch(a, b, image)
    if unpaired.se is None:
        return unpaired
    parts = np.array([a.var(ddof=1), b.var(ddof=1)]) / sizes
    scatter = np.cov(a[:pairs], b[:pairs])
    spread = math.sqrt(scatter[0, 0] * scatter[1, 1])
    r = float(scatter[0, 1]) / spread if spread else 0.0
    squared = float(parts.sum() - 2 * r * math.sqrt(parts.prod() / sizes.prod()) * pairs)
    if squared <= IDENTICAL * parts.sum():
        return Estimate(unpaired.n, unpaired.value, why="all pairs differ alike")
    alone = int(sizes.sum()) - 2 * pairs
    df = pairs - 1 + (welch_df(parts, sizes) - pairs + 1) * alone / (alone + 2 * pairs)
    return Estimate(unpaired.n, unpaired.value, math.sqrt(squared), df)


def shared_images_variance(correct: np.ndarray, repetition: np.ndarray) -> float:
    """Return the variance that repeated tests on the same images add to a mean over seeds.

    Each seed tests one fold, and the folds of a repetition partition the images. correct: (n, images), correctness or
    its difference between two arms, NaN outside the seed's fold. repetition: (n,), the index of each seed's partition.

    The variance is t^2 sum c (c - 1) / (sum c)^2, where c counts the tests of an image. t^2 is the mean covariance
    between repetitions, at least 0. For r whole repetitions the variance equals (1 - 1/r) t^2 / images. It is 0 for a
    single repetition, and where all seeds test the same images.
    """
    labels = np.unique(repetition)
    if len(labels) < 2 or not np.isnan(correct).any():
        return 0.0
    # The folds of one repetition do not overlap: at most one of its seeds tested the image.
    rows = np.array([np.fmax.reduce(correct[repetition == label]) for label in labels])  # (r, images)
    is_tested = (~np.isnan(rows)).astype(float)
    values = np.nan_to_num(rows)
    both = is_tested @ is_tested.T
    sums = values @ is_tested.T  # sums[i, j]: of row i over the images of row j
    scatter = values @ values.T - sums * sums.T / np.maximum(both, 1)
    covariances = np.where(both > 1, scatter / np.maximum(both - 1, 1), 0.0)  # over the images that both rows tested
    between = max(0.0, float(covariances[np.tril_indices(len(rows), -1)].mean()))
    count = (~np.isnan(correct)).sum(axis=0)
    return between * float((count * (count - 1)).sum() / count.sum() ** 2)


def images_variance(correct: np.ndarray) -> float:
    """Return the variance that the choice of test images adds to a mean over seeds that all test the same images.

    Seeds and images are crossed random factors. correct: (n, images), both over 1: correctness or its difference
    between two arms, without NaN. The variance is s_image^2 / images - MSE / (n images), but at least 0, as in the
    two-way random model. Its expectation does not depend on n.
    """
    n, images = correct.shape
    seeds = correct.mean(axis=1)
    image = correct.mean(axis=0)
    residual = correct - seeds[:, None] - image[None, :] + correct.mean()
    mse = float((residual**2).sum()) / ((n - 1) * (images - 1))
    return max(0.0, float(image.var(ddof=1)) / images - mse / (n * images))


def simultaneous_level(samples: Sequence[np.ndarray]) -> float:
    """Return the marginal level at which all t intervals hold at once with probability 95% (max-t, like Dunnett's).

    It is 95% for a single contrast, and never less. samples: matrices of per-seed differences (n, contrasts),
    correlated within a matrix and independent between matrices. The result is simulated with a fixed seed, from
    studentized normal samples with the observed correlations.
    """
    if sum(sample.shape[1] for sample in samples) <= 1:
        return 0.95
    rng = np.random.default_rng(0)
    largest = np.zeros(DRAWS)  # largest P(|T| <= t) of the contrasts, by draw
    for sample in samples:
        n = len(sample)
        centered = sample - sample.mean(axis=0)
        for some in np.array_split(largest, 20):  # a view of the draws: less memory
            drawn = rng.standard_normal((len(some), n, n)) @ centered  # contrasts correlated as in the sample
            deviation = drawn.std(axis=1, ddof=1)
            t = np.abs(drawn.mean(axis=1)) * math.sqrt(n) / np.where(deviation > 0, deviation, np.inf)
            np.maximum(some, (1 - 2 * special.stdtr(n - 1, -t)).max(axis=1), out=some)
    return max(0.95, float(np.quantile(largest, 0.95)))


def clopper_pearson(k: int, n: int) -> Interval:
    """Return the exact 95% interval (low, high) of the proportion k / n (Clopper and Pearson 1934)."""
    tail = (1 - 0.95) / 2
    low = float(special.betaincinv(k, n - k + 1, tail)) if k else 0.0
    high = float(special.betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
    return low, high


def robust_deviation(values: np.ndarray) -> float:
    """Return the standard deviation as estimated by the median absolute deviation (Croux and Rousseeuw 1992)."""
    n = len(values)
    return NORMAL_MAD * n / (n - 0.8) * float(np.median(np.abs(values - np.median(values))))


def outlier(values: np.ndarray, usual: float = 0.0) -> int | None:
    """Return the index of the value over 3 robust deviations from the median, or None unless there is exactly one.

    Fewer than five values (n,) have no outlier. usual: the smallest deviation to assume, without which one in seven
    normal samples of five would contain an outlier.
    """
    if len(values) < 5:
        return None
    far = np.flatnonzero(np.abs(values - np.median(values)) > 3 * max(robust_deviation(values), usual))
    return int(far[0]) if len(far) == 1 else None


def pooled_sd(samples: Sequence[np.ndarray]) -> tuple[float, int]:
    """Return the pooled standard deviation and its degrees of freedom, or (nan, 0) if no sample has two values."""
    v = sum(max(len(sample) - 1, 0) for sample in samples)
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in samples if len(sample))
    return (math.sqrt(squares / v), v) if v else (math.nan, 0)


def pooled_df(groups: Sequence[Sequence[np.ndarray]]) -> int:
    """Return the degrees of freedom, rounded down, of a standard deviation pooled over contrasts.

    groups: for each baseline, the per-seed differences of each of its arms. With equal variances, two of the m
    differences from one baseline have correlation 1/2, and their sample variances 1/4. A group with v degrees of
    freedom therefore counts as v / (1 + (m - 1) / 4). Groups are combined by Satterthwaite's formula. With v alone, the
    80% bound of 8 arms would hold in only 68% of cases.
    """
    total = 0
    inflated = 0.0
    for group in groups:
        v = sum(max(len(sample) - 1, 0) for sample in group)
        total += v
        inflated += v * (1 + (len(group) - 1) / 4)
    return math.floor(total**2 / inflated + IDENTICAL) if total else 0


def sd_bound(sd: float, v: float) -> float:
    """Return the upper 80% confidence bound of a standard deviation estimated with v degrees of freedom."""
    return sd * math.sqrt(v / float(special.chdtri(v, 0.8)))
