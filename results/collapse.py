"""Trials that collapsed: that finished with an accuracy no better than chance, or far below the arm's other trials."""

import math
from collections.abc import Mapping
from statistics import median

from results.store.schemas import Plan

OTHERS = 0.5  # share of the median of the arm's other trials below which a trial collapsed
Z95 = 1.645  # normal quantile of a one-sided 5% test
RARE, FEW = 1 / 8, 10  # rate of a failure that fewer seeds than FEW often miss


def collapsed_seeds(accuracies: Mapping[int, float], plan: Plan) -> list[int]:
    """Return the seeds of an arm whose trials collapsed. accuracies: seed -> accuracy. Other metrics never collapse.

    A trial collapsed if its accuracy is below half of the median of the arm's others, or not above chance at 5%
    (one-sided, by the normal approximation for the number of test images). Chance is 1 / classes.
    """
    if not plan.primary_metric.is_accuracy:
        return []
    chance = 1 / plan.classes if plan.classes else 0.0
    if chance and plan.split is not None:
        chance += Z95 * math.sqrt(chance * (1 - chance) / plan.split.images_per_test)
    return fallen_seeds(accuracies, chance)


def fallen_seeds(accuracies: Mapping[int, float], limit: float) -> list[int]:
    """Return the seeds whose accuracies are at most `limit`, unless it is 0, or below half of the others' median."""
    found = []
    for seed, accuracy in accuracies.items():
        others = [one for other, one in accuracies.items() if other != seed]
        if (limit and accuracy <= limit) or (others and accuracy < OTHERS * median(others)):
            found.append(seed)
    return found


def unseen_failures(seeds: int) -> str:
    """Return how often few seeds miss a rare failure, as text, or "" for a single seed or many."""
    if not 1 < seeds < FEW:
        return ""
    missed = (1 - RARE) ** seeds
    rare = f"An arm that fails in 1 of {1 / RARE:.0f} trials"
    return f"{rare} shows no failure in {missed:.0%} of studies with {seeds} seeds."
