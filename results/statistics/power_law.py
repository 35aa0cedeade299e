"""How an error falls with compute: error = a C^-b, fitted to each seed of a family of models."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from results.statistics import inference
from results.statistics.inference import Estimate

SIZES = 4  # that a fit of two parameters needs at least

Points = Mapping[int, tuple[np.ndarray, np.ndarray]]  # seed -> compute (sizes,), error (sizes,)


@dataclass(frozen=True)
class Fits:
    """a, b: (seeds,), by least squares of log error on log compute; low, high: the compute that all were fitted to."""

    a: np.ndarray
    b: np.ndarray
    low: float
    high: float

    def exponent(self) -> Estimate:
        """The mean of b over the seeds."""
        return inference.mean(self.b)

    def at(self, compute: np.ndarray) -> tuple[np.ndarray, list[Estimate]]:
        """The fitted errors, mean over the seeds: (points,), and the same as estimates. Raises ValueError outside."""
        if compute.min() < self.low * (1 - 1e-9) or compute.max() > self.high * (1 + 1e-9):
            raise ValueError(f"no extrapolation: fitted from {self.low:g} to {self.high:g}")
        errors = self.a * compute[:, None] ** -self.b  # (points, seeds)
        return errors.mean(axis=1), [inference.mean(row) for row in errors]


def fit(points: Points) -> Fits | None:
    """One fit a seed that has SIZES different sizes with an error above 0.

    None where no seed has, or where they have no range in common.
    """
    usable = {seed: known(*found) for seed, found in points.items()}
    usable = {seed: found for seed, found in usable.items() if len(np.unique(found[0])) >= SIZES}
    if not usable:
        return None
    lines = np.array([np.polynomial.polynomial.polyfit(np.log(c), np.log(e), 1) for c, e in usable.values()])
    low = max(float(compute.min()) for compute, _ in usable.values())
    high = min(float(compute.max()) for compute, _ in usable.values())
    return Fits(np.exp(lines[:, 0]), -lines[:, 1], low, high) if low < high else None


def known(compute: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without what has no logarithm."""
    there = np.isfinite(error) & (error > 0) & (compute > 0)
    return compute[there], error[there]
