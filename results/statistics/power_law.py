"""The power law of error over compute, error = a C^-b, fitted to each seed of a model family."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from results.statistics import intervals
from results.statistics.intervals import Estimate

MIN_SIZES = 4  # fewest sizes for a fit of two parameters

Points = Mapping[Any, tuple[np.ndarray, np.ndarray]]  # seed -> compute (sizes,), error (sizes,)


@dataclass(frozen=True)
class Fits:
    """Least-squares fits of log error on log compute, one per seed.

    a, b (seeds,): the coefficients of error = a C^-b, where C is the compute.
    low, high: the range of compute that all fits share.
    """

    a: np.ndarray
    b: np.ndarray
    low: float
    high: float

    def predict(self, compute: np.ndarray) -> tuple[np.ndarray, list[Estimate]]:
        """Return (means over seeds (points,), an Estimate per point) of the fitted error at `compute` (points,).

        Raises ValueError if a point lies outside the fitted range.
        """
        if compute.min() < self.low * (1 - 1e-9) or compute.max() > self.high * (1 + 1e-9):
            raise ValueError(f"no extrapolation: fitted from {self.low:g} to {self.high:g}")
        errors = self.a * compute[:, None] ** -self.b  # (points, seeds)
        return errors.mean(axis=1), [intervals.mean(row) for row in errors]


def fit(points: Points) -> Fits | None:
    """Return the fits of all seeds that have a positive error at MIN_SIZES or more values of compute.

    Returns None if there is no such seed, or the seeds share no range of compute.
    """
    usable = []
    for compute, error in points.values():
        is_usable = np.isfinite(error) & (error > 0) & (compute > 0)
        if len(np.unique(compute[is_usable])) >= MIN_SIZES:
            usable.append((compute[is_usable], error[is_usable]))
    if not usable:
        return None
    lines = np.array([np.polynomial.polynomial.polyfit(np.log(c), np.log(e), 1) for c, e in usable])
    low = max(float(compute.min()) for compute, _ in usable)
    high = min(float(compute.max()) for compute, _ in usable)
    return Fits(np.exp(lines[:, 0]), -lines[:, 1], low, high) if low < high else None
