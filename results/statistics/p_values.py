"""Fisher's exact test, and Holm's correction of p values for several tests."""

import itertools
import math
from collections.abc import Sequence


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
