"""Sensitivity: the smallest difference that a test would have resolved."""

import math
from collections.abc import Sequence

from results.statistics import inference
from results.statistics.inference import Estimate


def resolvable_differences(differences: Sequence[Estimate], family: int) -> list[float | None]:
    """Return the smallest difference that each test resolves with 80% power; None where there is no test.

    All differences must be of one metric and one kind of test: their spread is pooled and raised to its upper 80%
    bound.
    """
    tested = [one for one in differences if one.se and one.df]
    freedom = math.fsum(one.df or 0.0 for one in tested)
    if not freedom:
        return [None] * len(differences)
    variance = math.fsum((one.df or 0.0) * one.n * (one.se or 0.0) ** 2 for one in tested) / freedom
    sd = inference.sd_bound(math.sqrt(variance), freedom)
    return [smallest_resolvable(one, sd, family) if one in tested else None for one in differences]


def smallest_resolvable(difference: Estimate, sd: float, family: int) -> float:
    """Return the smallest difference that one test resolves.

    In Welch's test the degrees of freedom stand in for the number of pairs.
    """
    pairs = int(difference.df or 0.0) + 1
    return inference.resolvable_difference(pairs, sd * math.sqrt(pairs / difference.n), family)
