"""Equivalence margins: differences in the metric's unit, or shares of the baseline's error such as "25%"."""

import math

from results.store.schemas.metrics import WIDEST, Metric


def share_of_error(margin: float | str) -> float | None:
    """Return the share that a margin such as "25%" is of the baseline's error, or None for a number."""
    return float(margin.removesuffix("%")) / 100 if isinstance(margin, str) else None


def bound(margin: float | str) -> float:
    """Return the largest difference within a margin: in the metric's unit, or as a share of the baseline's error."""
    share = share_of_error(margin)
    return float(margin) if share is None else share


def share_text(share: float) -> str:
    """Return a share as text, such as "25%", rounded up to a tenth of a percent because it is an upper bound."""
    return f"{math.ceil(round(1000 * share, 6)) / 10:g}%"


def margin_text(margin: float | str, metric: Metric, baseline: str = "the baseline") -> str:
    """Return a margin with its unit, such as "1.00 points" or "25% of the baseline's error"."""
    if not isinstance(margin, str):
        return metric.size_text(margin)
    return f"{margin} of {baseline}'s {'error' if metric.is_accuracy else 'value'}"


def margin_at(margin: float | str, mean: float, metric: Metric) -> float:
    """Return a margin in the metric's unit where the baseline has this mean."""
    share = share_of_error(margin)
    if share is None:
        return float(margin)
    return share * (1 - mean if metric.is_accuracy else abs(mean))


def too_wide(margin: float | str, mean: float, metric: Metric, classes: int | None) -> str:
    """Return why a margin is too wide for the baseline's mean to call an arm equivalent, or "" if it is not.

    An accuracy's margin may be half of the baseline's error, and half of its accuracy above chance, at most. Chance is
    1 / classes; classes: None if chance is unknown.
    """
    if not metric.is_accuracy:
        return ""
    size = margin_at(margin, mean, metric)
    if size > WIDEST * (1 - mean) * (1 + 1e-9):
        error = metric.size_text(1 - mean)
        return f"the margin of {margin_text(margin, metric)} exceeds half of the baseline's error of {error}"
    if classes and size > WIDEST * (mean - 1 / classes):
        above = metric.signed_text(mean - 1 / classes).removeprefix("+") + metric.unit_of_difference
        return (
            f"the margin of {margin_text(margin, metric)} exceeds half of the baseline's accuracy above chance "
            f"(1 / {classes} classes) of {above}"
        )
    return ""
