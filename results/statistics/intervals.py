"""Means, their differences and ratios, with the standard errors behind every interval; and standard deviations.

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
    """A mean, or a difference of means, with its standard error; se and df are None without an interval.

    n: the number of values or pairs, or the size of the smaller sample. why: the reason for a missing interval.
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
    return float(special.stdtrit(df, probability))


def mean(values: np.ndarray, extra_variance: float = 0.0, image: float = 0.0) -> Estimate:
    """Return an estimate of the mean of values (n,), with n - 1 degrees of freedom and SE^2 = s^2 / n + extra_variance.

    Fewer than two values, and identical ones, have no interval: accuracies are discrete, so no spread is no certainty.
    """
    n = len(values)
    if n < 2:
        return Estimate(n, float(values[0]) if n else None, why=f"n = {n}")
    value = exact_sum(values.tolist()) / n
    if are_identical(values, image):
        return Estimate(n, value, why=f"all {n} are identical")
    return Estimate(n, value, math.sqrt(variance(values) / n + extra_variance), n - 1)


def variance(values: np.ndarray) -> float:
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
    """Return an estimate of mean(b) - mean(a) for two independent samples with unequal variances (Welch 1947)."""
    return sum_of_means([-a, b], image)


def sum_of_means(samples: Sequence[np.ndarray], image: float = 0.0) -> Estimate:
    """Return an estimate of the sum of the means of independent samples with unequal variances (Welch 1947).

    There is no interval if a sample has fewer than two values, or if no sample varies (see `are_identical`).
    """
    sizes = np.array(list(map(len, samples)))
    n = int(sizes.min())
    if n == 0:
        return Estimate(n, None, why="n = 0")
    value = float(sum(sample.mean() for sample in samples))
    if n < 2:
        return Estimate(n, value, why=f"n = {n}")
    if all(are_identical(sample, image) for sample in samples):
        return Estimate(n, value, why="all are identical on either side")
    parts = np.array([sample.var(ddof=1) for sample in samples]) / sizes
    return Estimate(n, value, math.sqrt(parts.sum()), welch_df(parts, sizes))


def welch_df(parts: np.ndarray, sizes: np.ndarray) -> float:
    return float(parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum())


def overlapping_samples(a: np.ndarray, b: np.ndarray, pairs: int, image: float = 0.0) -> Estimate:
    """Return an estimate of mean(b) - mean(a) for two partially paired samples (Derrick et al. 2017).

    The first `pairs` > 1 values are paired, the others independent: SE^2 = s_a^2 / n_a + s_b^2 / n_b - 2 r s_a s_b
    pairs / (n_a n_b), where r is the correlation of the pairs. There is no interval where `welch` has none, or if all
    pairs have the same difference.
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

    correct: (n, images), correctness or its difference between two arms, NaN outside the seed's fold. repetition: (n,),
    the index of each seed's partition into folds.

    The variance is t^2 sum c (c - 1) / (sum c)^2, where c counts the tests of an image, and t^2 is the mean covariance
    between repetitions, at least 0. For r whole repetitions it equals (1 - 1/r) t^2 / images.
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


def images_variance(*terms: np.ndarray) -> float:
    """Return the variance that the choice of test images adds to a mean over seeds that all test the same images.

    terms: a matrix (n, images), both over 1, without NaN: correctness, or its difference between two arms; or several,
    of independent seeds, whose means are added. Seeds and images are crossed random factors: s_image^2 / images - the
    sum of MSE / (n images), at least 0, whose expectation does not depend on n.
    """
    images = terms[0].shape[1]
    effect = np.zeros(images)
    noise = 0.0
    for correct in terms:
        n = len(correct)
        image = correct.mean(axis=0)
        residual = correct - correct.mean(axis=1)[:, None] - image[None, :] + correct.mean()
        mse = float((residual**2).sum()) / ((n - 1) * (images - 1))
        effect += image
        noise += mse / (n * images)
    return max(0.0, float(effect.var(ddof=1)) / images - noise)


def simultaneous_level(samples: Sequence[np.ndarray]) -> float:
    """Return the marginal level at which all t intervals hold at once with probability 95% (max-t, like Dunnett's).

    samples: matrices of per-seed differences (n, contrasts), correlated within a matrix and independent between
    matrices. The result is simulated from studentized normal samples with the observed correlations, by a fixed random
    seed.
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

    usual: the smallest deviation to assume, without which one in seven normal samples of five would contain an outlier.
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
    differences from one baseline have correlation 1/2, and their sample variances 1/4. So v degrees of freedom count as
    v / (1 + (m - 1) / 4), and groups are combined by Satterthwaite's formula. With v alone, the 80% bound of 8 arms
    would hold in 68%.
    """
    total = 0
    inflated = 0.0
    for group in groups:
        deviating = [sample for sample in group if len(sample) > 1]
        v = sum(len(sample) - 1 for sample in deviating)
        total += v
        inflated += v * (1 + (len(deviating) - 1) / 4)
    return math.floor(total**2 / inflated + IDENTICAL) if total else 0


def sd_bound(sd: float, v: float) -> float:
    """Return the upper 80% confidence bound of a standard deviation estimated with v degrees of freedom."""
    return sd * math.sqrt(v / float(special.chdtri(v, 0.8)))


# -- ratios of two means over the same seeds ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """The ratio top / bottom of two means, bottom above 0; a single mean has a bottom of exactly 1.

    A bound is tested by a linear contrast of both means (Fieller 1954), an exact t test for normal values. variances,
    covariance: squared standard errors of top and bottom, and their covariance. df: None without a test.
    """

    top: float
    bottom: float = 1.0
    variances: tuple[float, float] = (0.0, 0.0)
    covariance: float = 0.0
    df: float | None = None

    @classmethod
    def of_mean(cls, mean: Estimate) -> "Ratio | None":
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
        high = self.bound(t)
        if not math.isfinite(high):
            return None
        return max(lowest, self.bound(-t)), max(lowest, high)

    def bound(self, t: float) -> float:
        """Return the ratio t standard errors above (below for negative t), inf if the bottom may be 0."""
        top_variance, bottom_variance = self.variances
        square = t * t
        a = self.bottom * self.bottom - square * bottom_variance
        if not a > 0:
            return math.inf
        b = self.top * self.bottom - square * self.covariance
        c = self.top * self.top - square * top_variance
        root = math.sqrt(max(b * b - a * c, 0.0))
        return (b + math.copysign(root, t)) / a


@dataclass(frozen=True)
class AtLevel:
    """Ratios that are tested together. factor: what their p value is multiplied by."""

    factor: int
    ratios: Sequence[Ratio]

    def p_below(self, bound: float) -> float:
        """Return the p value of the null hypothesis that a ratio is at least `bound`."""
        return max(ratio.p_below(bound) for ratio in self.ratios)

    def upper_bound(self, alpha: float, family: int) -> float:
        """Return the bound below which all ratios are shown to be, at alpha / (family * factor)."""
        level = 1 - alpha / (family * self.factor)
        return max(ratio.bound(t_quantile(level, ratio.df or 0.0)) for ratio in self.ratios)


def smallest_bounds(groups: Sequence[Sequence[AtLevel]], family: int, alpha: float) -> list[float | None]:
    """Return for each group the smallest bound below which Holm's method shows its ratios to be, or None.

    Each group is one hypothesis with several tests, of which the best counts. family: the planned number of hypotheses.

    Holm's method rejects at a bound in any order, each time at alpha / (number of hypotheses left). The next hypothesis
    to be rejected as the bound grows is therefore the one with the smallest bound at the level of the next step.
    """
    smallest: list[float | None] = [None] * len(groups)
    left = [number for number, group in enumerate(groups) if group]
    reached = -math.inf
    size = max(family, len(groups))
    while left:
        upper = {number: min(test.upper_bound(alpha, size) for test in groups[number]) for number in left}
        following = min(left, key=upper.__getitem__)
        reached = max(reached, upper[following])
        if not math.isfinite(reached):
            break
        smallest[following] = reached
        left.remove(following)
        size -= 1
    return smallest
