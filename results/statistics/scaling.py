"""Fits over training compute C: the law error = a C^-b + c of a group of arms, and the best size at each budget.

All intervals are over seeds. They do not say whether a law holds, or how well a parabola fits.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from results.statistics import contrast, intervals
from results.statistics.contrast import Sample
from results.statistics.intervals import Interval, Ratio
from results.store.schemas import Arm, Metric, Plan
from results.study_results import StudyResults

MIN_SIZES = 4  # fewest sizes for a fit of three parameters
MIN_BUDGETS = 3  # fewest budgets for a fit of two parameters
MIN_SEEDS = 3  # fewest seeds for an interval
DRAWS = 1000
EXPONENTS = (0.01, 4.0)  # between which b is sought
COARSE, FINE = 60, 12  # exponents tried on the whole range, and then around the best
FURTHER = 4.0  # how far a law is drawn beyond the largest compute, as a multiple
ONE_BUDGET = 1.04  # largest ratio of training FLOPs within a budget: 2% to either side of the baseline's
FAILED = 0.025  # share of draws without a minimum that no interval allows
TAILS = (0.025, 0.975)
DURATIONS = ("steps", "epochs")
LARGEST_LOG = 700.0  # of a size; exp of more than 709 overflows
BASE = "baseline"
ALL = "all"


@dataclass(frozen=True)
class Measured:
    """Errors of the seeds that finished at all of several sizes.

    compute (sizes,): training FLOPs. errors (seeds, sizes).
    """

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

        A draw weights the seeds' deviations, alike at all sizes. The interval of a mean between the quantiles of its
        draws is its t interval, up to the logarithm, which keeps all draws positive.
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
        """Return the errors (laws, points) at `compute` (points,)."""
        powers = (compute / self.unit) ** -self.b[:, None]
        return np.asarray(self.a[:, None] * powers + self.c[:, None])


@dataclass(frozen=True)
class Law:
    """A law error = a C^-b + c, fitted to mean errors.

    fitted: its coefficients. drawn: those of the drawn means, whose c may be below 0. Only so do intervals cover a true
    c of 0.
    """

    measured: Measured
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
        """The number of draws through which no such law goes."""
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


def fit(measured: Measured) -> Law | str:
    """Return the law of a group of arms, or why there is none."""
    if len(np.unique(measured.compute)) < MIN_SIZES or measured.seeds < MIN_SEEDS:
        return f"fewer than {MIN_SEEDS} seeds with {MIN_SIZES} sizes"
    fitted = least_squares(measured.compute, measured.means[None], measured.means, lowest=0.0, rounds=10)
    if not fitted.falls[0]:
        return "the error does not fall with compute as a power"
    return Law(measured, fitted, least_squares(measured.compute, measured.drawn, measured.means))


def least_squares(
    compute: np.ndarray, means: np.ndarray, scale: np.ndarray, lowest: float = -math.inf, rounds: int = 5
) -> Coefficients:
    """Return the laws with the least squares of (error - mean) / scale, one for each row of `means` (laws, sizes).

    scale (sizes,). lowest: bound of c, which is at most the smallest mean too. At a given b, a and c follow from linear
    equations, so only b is sought: on a grid, then `rounds` - 1 times on a finer one around the best. There are no
    starting values, and no local minima (variable projection, as in arXiv 2603.22339).
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
    """Return an arm's training FLOPs, or NaN if unknown: its plan's, else 3 forward passes of all training images."""
    if arm.train_flops:
        return float(arm.train_flops)
    batch = arm.config.get("batch")
    if not (arm.flops and arm.steps and batch):
        return math.nan
    return float(3 * arm.flops * arm.steps * batch)


def group_of(arm: Arm, plan: Plan) -> str:
    """Return the group whose arms have one law: the arm's model family, else its change, at all points of curves."""
    return arm.model_family or plan.change_of(arm)


def error_of(values: np.ndarray, metric: Metric) -> np.ndarray:
    """Return 1 - accuracy, or the values of any other metric."""
    return 1 - values if metric.is_accuracy else values


def usable_arms(arms: Iterable[Arm], samples: Mapping[str, Sample], metric: Metric) -> list[Arm]:
    """Return the arms that have compute, finished trials and a mean error above 0, ascending by compute.

    samples: of each arm.
    """
    usable = []
    for arm in sorted(arms, key=training_flops):
        values = samples[arm.name].numbers
        if math.isfinite(training_flops(arm)) and len(values) and error_of(values, metric).mean() > 0:
            usable.append(arm)
    return usable


def measured_of(arms: Sequence[Arm], samples: Mapping[str, Sample], metric: Metric) -> Measured:
    """Return the errors of arms, in their order. samples: of each arm."""
    seeds = sorted(set.intersection(*(set(samples[arm.name].values) for arm in arms))) if arms else []
    values = np.array([[samples[arm.name].values[seed] for arm in arms] for seed in seeds])
    errors = error_of(values.reshape(len(seeds), len(arms)), metric)
    return Measured(np.array(list(map(training_flops, arms))), errors)


def is_error(metric: Metric) -> bool:
    """Return whether a metric is an error, or an accuracy, which has one."""
    return metric.is_accuracy or not metric.higher_is_better


def laws_of(study: StudyResults) -> dict[str, Law | str]:
    """Return group -> its law, or why there is none."""
    metric = study.plan.primary_metric
    samples = contrast.samples_by_arm(study, metric.name)
    groups: dict[str, list[Arm]] = {}
    for arm in study.plan.arms:
        groups.setdefault(group_of(arm, study.plan), []).append(arm)
    if not is_error(metric):
        return dict.fromkeys(groups, f"{metric.name} is not an error")
    laws = {}
    for group, arms in groups.items():
        laws[group] = fit(measured_of(usable_arms(arms, samples, metric), samples, metric))
    return laws


# -- the best size at each budget -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Profile:
    """The arms of one training budget that differ in one size, and the parabola of their error over its logarithm.

    sizes (arms,). This is approach 2 of arXiv 2203.15556 at one budget.
    """

    arms: Sequence[Arm]
    sizes: np.ndarray
    measured: Measured

    @property
    def compute(self) -> float:
        return float(np.exp(np.log(self.measured.compute).mean()))

    def parabolas(self, errors: np.ndarray) -> np.ndarray:
        """Return the coefficients (3, n) of parabolas through errors (n, arms), over log(size / mean size)."""
        logs = np.log(self.sizes)
        return np.asarray(np.polyfit(logs - logs.mean(), errors.T, 2))

    def lowest(self, errors: np.ndarray) -> np.ndarray:
        """Return the log sizes (n,) at which parabolas through errors (n, arms) are lowest, NaN without a minimum."""
        square, linear, _ = self.parabolas(errors)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(square > 0, np.log(self.sizes).mean() - linear / (2 * square), np.nan)

    @cached_property
    def optimum(self) -> float | None:
        """The size at which the mean error is lowest, or None if the parabola has no minimum among the sizes."""
        best = float(sizes_at(self.lowest(self.measured.means[None])[0]))
        return best if self.sizes.min() <= best <= self.sizes.max() else None

    @property
    def interval(self) -> Interval | None:
        """The 95% interval of the optimum (Fieller), or None if it is unbounded.

        The optimum is a ratio of two means over seeds, since a parabola is linear in the errors.
        """
        square, linear, _ = self.parabolas(self.measured.errors)
        top, bottom = -linear, 2 * square
        ratio = Ratio.of_means(*map(intervals.mean, (top, bottom, top - bottom)))
        ends = ratio.interval() if ratio else None
        if ends is None:
            return None
        low, high = sizes_at(np.log(self.sizes).mean() + np.array(ends))
        return float(low), float(high)

    @property
    def why(self) -> str:
        """Why there is no optimum, or no interval of it, or ""."""
        if self.optimum is not None:
            return "" if self.interval else "the curvature is not resolved, so its interval is unbounded"
        means = self.measured.means
        if means.argmin() in (0, len(means) - 1):
            return f"the best size is at or beyond {self.sizes[means.argmin()]:g}, the end of those trained"
        return "the parabola has no minimum among the sizes trained"


def sizes_at(logs: np.ndarray) -> np.ndarray:
    """Return sizes by their logarithms, which of a nearly flat parabola may be any number."""
    return np.asarray(np.exp(np.clip(logs, -LARGEST_LOG, LARGEST_LOG)))


@dataclass(frozen=True)
class Growth:
    """A power law of the best size over compute: size = k C^p.

    lines (2, 1 + draws): p and log k, of the means and then of the draws with a minimum at every budget. failed: the
    number of other draws.
    """

    budgets: np.ndarray
    lines: np.ndarray
    failed: int

    @property
    def exponent(self) -> float:
        return float(self.lines[0, 0])

    @property
    def why(self) -> str:
        """Why there is no interval, or ""."""
        if self.failed <= FAILED * DRAWS:
            return ""
        return f"no interval: {self.failed} of {DRAWS} draws lack a minimum at some budget"

    @property
    def interval(self) -> Interval | None:
        """The 95% interval of the exponent, or None if too many draws failed."""
        if self.why:
            return None
        low, high = np.quantile(self.lines[0, 1:], TAILS)
        return float(low), float(high)

    def sizes(self, compute: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the best sizes (points,) at `compute` (points,), and both ends of their 95% intervals."""
        found = sizes_at(self.lines[1] + np.log(compute)[:, None] * self.lines[0])  # (points, lines)
        low, high = np.quantile(found[:, 1:], TAILS, axis=1)
        return found[:, 0], low, high


def growth_of(profiles: Sequence[Profile], study: StudyResults) -> Growth | str:
    """Return the law of the best size over budgets, or why there is none."""
    metric = study.plan.primary_metric
    inside = [profile for profile in profiles if profile.optimum is not None]
    arms = list(itertools.chain.from_iterable(profile.arms for profile in inside))
    return power_of(inside, measured_of(arms, contrast.samples_by_arm(study, metric.name), metric))


def power_of(profiles: Sequence[Profile], measured: Measured) -> Growth | str:
    """Return the law of the best size over budgets with an optimum. measured: the errors of all arms together."""
    if len(profiles) < MIN_BUDGETS:
        return f"fewer than {MIN_BUDGETS} budgets with a minimum among their sizes"
    if measured.seeds < MIN_SEEDS:
        return f"fewer than {MIN_SEEDS} seeds finished at all budgets"
    errors = np.vstack([measured.means, measured.drawn])
    ends = np.cumsum([len(profile.sizes) for profile in profiles])[:-1]
    parts = np.split(errors, ends, axis=1)
    best = np.array([profile.lowest(part) for profile, part in zip(profiles, parts, strict=True)])  # (budgets, draws)
    found = np.isfinite(best).all(axis=0)
    if not found[0]:
        return f"the {measured.seeds} seeds of all budgets have no minimum at each"
    budgets = np.array([profile.compute for profile in profiles])
    return Growth(budgets, np.polyfit(np.log(budgets), best[:, found], 1), int((~found).sum()))


def profiles_of(study: StudyResults) -> dict[str, list[Profile]]:
    """Return size -> its profiles, ascending by budget. There is none if the metric is not an error.

    A size is a numeric factor, of arms that change nothing else, or "params of ViT" for the model family ViT.
    """
    plan = study.plan
    metric = plan.primary_metric
    if not is_error(metric):
        return {}
    samples = contrast.samples_by_arm(study, metric.name)
    at = {key: value for key, value in plan.baseline_arm.values.items() if key in plan.curves and key not in DURATIONS}
    arms = [arm for arm in usable_arms(plan.arms, samples, metric) if at.items() <= arm.values.items()]
    groups: dict[str, dict[str, float]] = {}  # size -> arm -> its value
    for arm in arms:
        changed = scaled_dimension(arm, plan)
        for key, value in arm.values.items():
            if key in plan.factors and changed in (BASE, key) and isinstance(value, int | float):
                groups.setdefault(key, {})[arm.name] = value
        if arm.model_family and arm.params:
            groups.setdefault(f"params of {arm.model_family}", {})[arm.name] = arm.params
    profiles = {}
    for key, values in groups.items():
        found = []
        for within in budgets_of([arm for arm in arms if arm.name in values]):
            sizes = np.array([values[arm.name] for arm in within], dtype=float)
            order = np.argsort(sizes, kind="stable")
            measured = measured_of([within[k] for k in order], samples, metric)
            if len(np.unique(sizes)) >= MIN_SIZES and measured.seeds >= MIN_SEEDS and sizes.min() > 0:
                found.append(Profile([within[k] for k in order], sizes[order], measured))
        if found:
            profiles[key] = found
    return profiles


def budgets_of(arms: Sequence[Arm]) -> list[list[Arm]]:
    """Return the arms of each budget, ascending: arms whose training FLOPs are equal within ONE_BUDGET."""
    budgets: list[list[Arm]] = []
    for arm in sorted(arms, key=training_flops):
        if budgets and training_flops(arm) <= ONE_BUDGET * training_flops(budgets[-1][0]):
            budgets[-1].append(arm)
        else:
            budgets.append([arm])
    return budgets


def scaled_dimension(arm: Arm, plan: Plan) -> str:
    """Return the only factor that an arm changes, or else its model family or ALL. A baseline has BASE."""
    if arm.name == arm.baseline:
        return BASE
    change = plan.change_of(arm)
    if "," in change or plan.given_name_of(arm):
        return arm.model_family or ALL
    return change.partition("=")[0]
