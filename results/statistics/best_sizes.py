"""The best size at each training budget, and its growth; no interval says how well a parabola fits."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from results.statistics import intervals, scaling
from results.statistics.intervals import Interval, Ratio
from results.statistics.scaling import SeedErrors, training_flops
from results.store.schemas.plans import Arm, Plan
from results.study_results import StudyResults

MIN_BUDGETS = 3  # fewest budgets for a fit of two parameters
ONE_BUDGET = 1.04  # largest ratio of training FLOPs within a budget: 2% to either side of the baseline's
FAILED = 0.025  # share of draws without a minimum that no interval allows
DURATIONS = ("steps", "epochs")
LARGEST_LOG = 700.0  # of a size; exp of more than 709 overflows
BASE = "baseline"
ALL = "all"


@dataclass(frozen=True)
class Profile:
    """The arms of one training budget, by size, and the parabola of their error over log size (arXiv 2203.15556)."""

    arms: Sequence[Arm]
    sizes: np.ndarray
    measured: SeedErrors

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
        numbers = (-linear, 2 * square, -linear - 2 * square)  # of the top, the bottom, and their difference
        ratio = Ratio.of_means(*map(intervals.mean, numbers))
        ends = ratio.interval() if ratio else None
        if ends is None:
            return None
        low, high = sizes_at(np.log(self.sizes).mean() + np.array(ends))
        return float(low), float(high)

    @property
    def why(self) -> str:
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

    lines (2, 1 + draws): p and log k, of the means and of the draws with a minimum at every budget. failed: other
    draws.
    """

    budgets: np.ndarray
    lines: np.ndarray
    failed: int

    @property
    def exponent(self) -> float:
        return float(self.lines[0, 0])

    @property
    def why(self) -> str:
        if self.failed <= FAILED * scaling.DRAWS:
            return ""
        return f"no interval: {self.failed} of {scaling.DRAWS} draws lack a minimum at some budget"

    @property
    def interval(self) -> Interval | None:
        """The 95% interval of the exponent, or None if too many draws failed."""
        if self.why:
            return None
        low, high = np.quantile(self.lines[0, 1:], scaling.TAILS)
        return float(low), float(high)

    def sizes(self, compute: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the best sizes (points,) at `compute` (points,), and both ends of their 95% intervals."""
        sizes = sizes_at(self.lines[1] + np.log(compute)[:, None] * self.lines[0])  # (points, lines)
        low, high = np.quantile(sizes[:, 1:], scaling.TAILS, axis=1)
        return sizes[:, 0], low, high


def growth_of(profiles: Sequence[Profile], study: StudyResults) -> Growth | str:
    inside = [profile for profile in profiles if profile.optimum is not None]
    arms = list(itertools.chain.from_iterable(profile.arms for profile in inside))
    return power_of(inside, scaling.measured_of(arms, scaling.errors_by_arm(study)))


def power_of(profiles: Sequence[Profile], measured: SeedErrors) -> Growth | str:
    """Return the law of the best size over budgets with an optimum. measured: the errors of all arms together."""
    if len(profiles) < MIN_BUDGETS:
        return f"fewer than {MIN_BUDGETS} budgets with a minimum among their sizes"
    if measured.seeds < scaling.MIN_SEEDS:
        return f"fewer than {scaling.MIN_SEEDS} seeds finished at all budgets"
    if not (measured.means > 0).all():
        return scaling.NO_LOGARITHM
    errors = np.vstack([measured.means, measured.drawn])
    ends = np.cumsum([len(profile.sizes) for profile in profiles])[:-1]
    parts = np.split(errors, ends, axis=1)
    best = np.array([profile.lowest(part) for profile, part in zip(profiles, parts, strict=True)])  # (budgets, draws)
    has_minima = np.isfinite(best).all(axis=0)
    if not has_minima[0]:
        return f"the {measured.seeds} seeds of all budgets have no minimum at each"
    budgets = np.array([profile.compute for profile in profiles])
    return Growth(budgets, np.polyfit(np.log(budgets), best[:, has_minima], 1), int((~has_minima).sum()))


def profiles_of(study: StudyResults) -> dict[str, list[Profile]]:
    """Return size -> its profiles, ascending by budget. There is none if the metric is not an error.

    A size is a numeric factor, of arms that change nothing else, or "params of ViT" for the model family ViT.
    """
    plan = study.plan
    if not scaling.is_error(plan.primary_metric):
        return {}
    errors = scaling.errors_by_arm(study)
    at = {key: value for key, value in plan.baseline_arm.values.items() if key in plan.curves and key not in DURATIONS}
    arms = [arm for arm in scaling.usable_arms(plan.arms, errors) if at.items() <= arm.values.items()]
    groups: dict[str, dict[str, float]] = {}  # size -> arm -> its value
    for arm in arms:
        changed = scaled_dimension(arm, plan)
        for key, value in arm.values.items():
            if key in plan.factors and changed in (BASE, key) and isinstance(value, int | float):
                groups.setdefault(key, {})[arm.name] = value
        if arm.model_family and arm.params:
            groups.setdefault(f"params of {arm.model_family}", {})[arm.name] = arm.params
    profiles: dict[str, list[Profile]] = {}
    for key, values in groups.items():
        for budget in budgets_of([arm for arm in arms if arm.name in values]):
            ascending = sorted(budget, key=lambda arm: values[arm.name])
            sizes = np.array([values[arm.name] for arm in ascending], dtype=float)
            measured = scaling.measured_of(ascending, errors)
            if len(np.unique(sizes)) >= scaling.MIN_SIZES and measured.seeds >= scaling.MIN_SEEDS and sizes[0] > 0:
                profiles.setdefault(key, []).append(Profile(ascending, sizes, measured))
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
