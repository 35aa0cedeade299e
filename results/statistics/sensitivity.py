"""Sensitivity: the smallest difference that a test would have seen; a gate that found nothing owes its reader that."""

import math
from collections.abc import Sequence

from results.statistics import inference
from results.statistics.inference import Estimate


def resolvable(differences: Sequence[Estimate], family: int) -> list[float | None]:
    """Of each difference the smallest that its test resolves with 80% power; None where there is no test.

    The spread is pooled over all that are handed in, which are of one metric and of one kind of test, and raised to
    its upper 80% bound.
    """
    tested = [one for one in differences if one.se and one.df]
    freedom = math.fsum(one.df or 0.0 for one in tested)
    if not freedom:
        return [None] * len(differences)
    variance = math.fsum((one.df or 0.0) * one.n * (one.se or 0.0) ** 2 for one in tested) / freedom
    sd = inference.sd_bound(math.sqrt(variance), freedom)
    return [seen(one, sd, family) if one in tested else None for one in differences]


def seen(difference: Estimate, sd: float, family: int) -> float:
    """With `sd` for its spread; of Welch's test the degrees of freedom stand for the pairs."""
    pairs = int(difference.df or 0.0) + 1
    return inference.resolvable_difference(pairs, sd * math.sqrt(pairs / difference.n), family)
