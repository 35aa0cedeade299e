"""The law error = a C^-b + c of a group of arms over training compute C; intervals do not say whether it holds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from results.statistics.contrast import Sample, samples_by_arm
from results.statistics.intervals import Interval
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import Arm, Plan
from results.study_results import StudyResults

MIN_SIZES = 4  # fewest sizes for a fit of three parameters
MIN_SEEDS = 3  # fewest seeds for an interval
DRAWS = 1000
EXPONENTS = (0.01, 4.0)  # between which b is sought
COARSE, FINE = 60, 12  # exponents tried on the whole range, and then around the best
FURTHER = 4.0  # how far a law is drawn beyond the largest compute, as a multiple
TAILS = (0.025, 0.975)
NO_LOGARITHM = "an error is not above 0 in the seeds that finished at all sizes"


@dataclass(frozen=True)
class SeedErrors:
    """Errors (seeds, sizes) of the seeds that finished at all sizes. compute (sizes,): training FLOPs."""

    compute: np.ndarray
    errors: np.ndarray

    @property
    def seeds(self) -> int:
        return len(self.errors)

    @cached_property
    def means(self) -> np.ndarray:
        return np.asarray(self.errors.mean(axis=0))

    @cached_property
    def drawn(self) -> np.ndarray:
        """Drawn means (DRAWS, sizes): a bootstrap over whole seeds, with weights that are t-distributed.

        So the interval of a mean is its t interval, up to the logarithm, which keeps all draws positive.
        """
        n = self.seeds
        rng = np.random.default_rng(0)
        weights = rng.standard_normal((DRAWS, n)) / math.sqrt(n * (n - 1))
        weights /= np.sqrt(rng.chisquare(n - 1, (DRAWS, 1)) / (n - 1))
        return np.asarray(self.means * np.exp(weights @ (self.errors / self.means - 1)))


@dataclass(frozen=True)
class Coefficients:
    """Several laws error = a (C / unit)^-b + c, each with its own a, b and c (laws,)."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    unit: float

    @property
    def falls(self) -> np.ndarray:
        """Whether each law falls (laws,), with an exponent inside EXPONENTS."""
        low, high = EXPONENTS
        return np.asarray((self.a > 0) & (self.b > low * 1.001) & (self.b < high * 0.999))

    def errors(self, compute: np.ndarray) -> np.ndarray:
        powers = (compute / self.unit) ** -self.b[:, None]
        return np.asarray(self.a[:, None] * powers + self.c[:, None])


@dataclass(frozen=True)
class Law:
    """A law error = a C^-b + c, fitted to mean errors.

    drawn: the laws of the drawn means, whose c may be below 0. Only so do intervals cover a true c of 0.
    """

    measured: SeedErrors
    fitted: Coefficients
    drawn: Coefficients

    @property
    def a(self) -> float:
        """The factor of C^-b, where C is in FLOPs."""
        return float(self.fitted.a[0] * self.fitted.unit ** self.fitted.b[0])

    @property
    def b(self) -> float:
        return float(self.fitted.b[0])

    @property
    def c(self) -> float:
        return float(self.fitted.c[0])

    @property
    def b_interval(self) -> Interval:
        """The 95% interval of b. It begins at 0 if it reaches the least exponent tried, or errors that rise."""
        low, high = np.quantile(np.where(self.drawn.a > 0, self.drawn.b, 0.0), TAILS)
        return (float(low) if low > EXPONENTS[0] * 1.001 else 0.0), float(high)

    @property
    def c_interval(self) -> Interval:
        """The 95% interval of c, of which all that is below 0 is cut off."""
        low, high = np.maximum(0.0, np.quantile(self.drawn.c, TAILS))
        return float(low), float(high)

    @property
    def slope(self) -> tuple[float, Interval]:
        """b without c, of error = a C^-b, with its 95% interval."""
        powers = np.log(self.measured.compute)
        means = np.vstack([self.measured.means, self.measured.drawn])
        slopes = -np.polyfit(powers, np.log(means).T, 1)[0]
        low, high = np.quantile(slopes[1:], TAILS)
        return float(slopes[0]), (float(low), float(high))

    @property
    def failed(self) -> int:
        return int((~self.drawn.falls).sum())

    @property
    def misses(self) -> float:
        """The largest distance of a mean error from the law, as a share of the mean error."""
        measured = self.measured
        return float(np.abs(self.fitted.errors(measured.compute)[0] / measured.means - 1).max())

    def errors(self, compute: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the fitted errors (points,) at `compute` (points,), and both ends of their 95% intervals."""
        low, high = np.maximum(0.0, np.quantile(self.drawn.errors(compute), TAILS, axis=0))
        return self.fitted.errors(compute)[0], low, high


def fit(measured: SeedErrors) -> Law | str:
    if len(np.unique(measured.compute)) < MIN_SIZES or measured.seeds < MIN_SEEDS:
        return f"fewer than {MIN_SEEDS} seeds with {MIN_SIZES} sizes"
    if not (measured.means > 0).all():
        return NO_LOGARITHM
    fitted = least_squares(measured.compute, measured.means[None], measured.means, lowest=0.0, rounds=10)
    if not fitted.falls[0]:
        return "the error does not fall with compute as a power"
    return Law(measured, fitted, least_squares(measured.compute, measured.drawn, measured.means))


def least_squares(
    compute: np.ndarray, means: np.ndarray, scale: np.ndarray, lowest: float = -math.inf, rounds: int = 5
) -> Coefficients:
    """Return the laws with the least squares of (error - mean) / scale, one for each row of `means` (laws, sizes).

    scale (sizes,). lowest: bound of c, which is at most the smallest mean too. At a given b, a and c follow from linear
    equations, so only b is sought: on a grid, then `rounds` - 1 times on a finer one around the best (variable
    projection).
    """
    weights = scale**-2.0
    powers = np.log(compute / compute.min())
    index = np.arange(len(means))
    highest = np.where(np.isfinite(lowest), means.min(axis=1), np.inf)[:, None]
    low, high = (np.full(1, math.log(end)) for end in EXPONENTS)
    for tried in (COARSE, *[FINE] * (rounds - 1)):
        b = np.exp(np.linspace(low, high, tried, axis=1))  # (1 or laws, tried)
        x = np.exp(-b[..., None] * powers)  # (1 or laws, tried, sizes)
        x_sum = x @ weights
        xx_sum = (x * x) @ weights
        y_sum = (means @ weights)[:, None]
        xy_sum = (x @ (means * weights)[..., None])[..., 0]
        c = (xx_sum * y_sum - x_sum * xy_sum) / (weights.sum() * xx_sum - x_sum**2)
        c = np.clip(c, lowest, highest)
        a = (xy_sum - c * x_sum) / xx_sum
        loss = ((a[..., None] * x + c[..., None] - means[:, None]) ** 2) @ weights  # (laws, tried)
        best = loss.argmin(axis=1)
        log_b = np.log(np.broadcast_to(b, loss.shape)[index, best])
        step = (high - low) / (tried - 1)
        low, high = (np.clip(log_b + side * step, *np.log(EXPONENTS)) for side in (-1, 1))
    return Coefficients(a[index, best], np.exp(log_b), c[index, best], float(compute.min()))


# -- the arms of a study ----------------------------------------------------------------------------------------------


def training_flops(arm: Arm) -> float:
    """Return the plan's training FLOPs, else 3 forward passes of all training images, or NaN if unknown."""
    if arm.train_flops:
        return float(arm.train_flops)
    batch = arm.config.get("batch")
    if not (arm.flops and arm.steps and batch):
        return math.nan
    return float(3 * arm.flops * arm.steps * batch)


def group_of(arm: Arm, plan: Plan) -> str:
    """Return the group whose arms have one law: the arm's model family, else its change, at all points of curves."""
    return arm.model_family or plan.change_of(arm)


def errors_by_arm(study: StudyResults) -> dict[str, Sample]:
    """Return arm -> its errors by seed: 1 - accuracy, or the values of any other metric."""
    metric = study.plan.primary_metric
    samples = samples_by_arm(study, metric.name)
    return {name: sample.errors(metric) for name, sample in samples.items()}


def usable_arms(arms: Iterable[Arm], errors: Mapping[str, Sample]) -> list[Arm]:
    """Return the arms that have compute, finished trials and a mean error above 0, ascending by compute."""
    usable = []
    for arm in arms:
        numbers = errors[arm.name].numbers
        if math.isfinite(training_flops(arm)) and len(numbers) and numbers.mean() > 0:
            usable.append(arm)
    return sorted(usable, key=training_flops)


def without_error(study: StudyResults) -> list[str]:
    """Return the arms that no fit has, because their mean error is not above 0, and has no logarithm."""
    numbers = {name: sample.numbers for name, sample in errors_by_arm(study).items()}
    return [name for name, errors in numbers.items() if len(errors) and errors.mean() <= 0]


def measured_of(arms: Sequence[Arm], errors: Mapping[str, Sample]) -> SeedErrors:
    samples = [errors[arm.name].values for arm in arms]
    seeds = sorted(set(samples[0]).intersection(*samples)) if samples else []
    values = np.array([[sample[seed] for sample in samples] for seed in seeds])
    return SeedErrors(np.array(list(map(training_flops, arms))), values.reshape(len(seeds), len(arms)))


def is_error(metric: Metric) -> bool:
    return metric.is_accuracy or not metric.higher_is_better


def laws_of(study: StudyResults) -> dict[str, Law | str]:
    metric = study.plan.primary_metric
    errors = errors_by_arm(study)
    groups: dict[str, list[Arm]] = {}
    for arm in study.plan.arms:
        groups.setdefault(group_of(arm, study.plan), []).append(arm)
    if not is_error(metric):
        return dict.fromkeys(groups, f"{metric.name} is not an error")
    laws = {}
    for group, arms in groups.items():
        laws[group] = fit(measured_of(usable_arms(arms, errors), errors))
    return laws
