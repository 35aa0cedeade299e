"""The p values of tests: one-sided, equivalence, Fisher's exact test, and Holm's correction for several tests."""

import itertools
import math
from collections.abc import Sequence

from scipy import special

from results.statistics.intervals import Estimate


def p_below(difference: Estimate, bound: float) -> float | None:
    """Return the one-sided p value of the null hypothesis difference >= bound, or None without a standard error."""
    if difference.value is None or difference.se is None or difference.df is None:
        return None
    return float(special.stdtr(difference.df, (difference.value - bound) / difference.se))


def tost_p(difference: Estimate, margin: float) -> float | None:
    """Return the p value of equivalence by two one-sided tests (Schuirmann 1987), or None without a standard error."""
    below, above = p_below(difference, margin), p_below(-difference, margin)
    return None if below is None or above is None else max(below, above)


def holm(p: Sequence[float | None], family: int) -> list[float | None]:
    """Return p values adjusted by Holm's method (1979). family: planned tests. None stays None and counts as 1."""
    size, ascending = max(family, len(p)), sorted((value, i) for i, value in enumerate(p) if value is not None)
    scaled = (min(1.0, (size - rank) * value) for rank, (value, _) in enumerate(ascending))
    adjusted = {i: largest for (_, i), largest in zip(ascending, itertools.accumulate(scaled, max), strict=True)}
    return [adjusted.get(i) for i in range(len(p))]


def fisher_p(k: int, n: int, others: int, of: int) -> float:
    """Return the one-sided p value of Fisher's exact test that the rate k / n is higher than others / of."""
    total, both = k + others, n + of
    ways = sum(math.comb(n, x) * math.comb(of, total - x) for x in range(k, min(n, total) + 1))
    return ways / math.comb(both, total)
