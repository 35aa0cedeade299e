"""Standard deviations: robust, pooled over samples, and bounded from above."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from results.statistics.intervals import IDENTICAL

NORMAL_MAD = 1.4826  # standard deviation / median absolute deviation of a normal sample


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
    own = [(sum(max(len(sample) - 1, 0) for sample in group), 1 + (len(group) - 1) / 4) for group in groups]
    total = sum(v for v, _ in own)
    return math.floor(total**2 / sum(v * inflated for v, inflated in own) + IDENTICAL) if total else 0


def sd_bound(sd: float, v: float) -> float:
    """Return the upper 80% confidence bound of a standard deviation estimated with v degrees of freedom."""
    return sd * math.sqrt(v / float(special.chdtri(v, 0.8)))
