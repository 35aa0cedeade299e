"""Tuning by cross-fitting: each seed is tested at the value that the arm's other seeds choose from the grid.

Seed s uses the grid point with the best mean validation accuracy over the other seeds. This choice is independent of
the test result of seed s. So no arm gains by picking the best of several noisy points. A point at which a trial
diverged or collapsed is chosen only if there is no other. A grid point is an arm with one combination of the tuned
settings' values.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from results.statistics import intervals
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import Tuned
from results.study_results import StudyResults, fallen_seeds

LARGEST_RATIO = 10  # of an advised value to the end of the grid, either way
NOT_CHOSEN = {"status": "missing", "reason": "no other seed has finished the whole grid"}

Number = int | float


@dataclass(frozen=True)
class TuningGrid:
    """The validation results of one tuned arm: a row per seed and a column per grid point.

    points: the arm at each grid point. tune: setting -> values, whose combinations are the points. reached: the
    selection metric, higher is better, NaN where a trial has not ended. diverged, collapsed: which trials did.
    """

    seeds: Sequence[int]
    points: Sequence[str]
    tune: Mapping[str, Sequence[Number]]
    reached: np.ndarray
    diverged: np.ndarray
    collapsed: np.ndarray
    is_paired: bool = True

    @property
    def shape(self) -> list[int]:
        return list(map(len, self.tune.values()))

    @property
    def is_complete(self) -> np.ndarray:
        complete: np.ndarray = ~np.isnan(self.reached).any(axis=1)
        return complete

    @property
    def failed(self) -> np.ndarray:
        return self.diverged | self.collapsed

    @property
    def stable_points(self) -> list[str]:
        """The arms at the grid points where at most half of the seeds' trials diverged or collapsed.

        A comparison with an arm's other points has these, else an arm would differ from an equal one that was unlucky
        once.
        """
        return list(itertools.compress(self.points, self.failed.mean(axis=0) <= 0.5))


@dataclass(frozen=True)
class GridEnd:
    """An end of the grid that a seed chose.

    inner: the best value that is no end. beyond: the value to add to the grid. is_best: whether the end beats `inner`.
    """

    setting: str
    value: Number
    inner: Number
    beyond: Number | None
    is_best: bool


@dataclass(frozen=True)
class PointChoice:
    """The grid points that the seeds of one tuned arm use, each chosen by the results of the other seeds.

    points: seed -> index of its grid point, or None while no other seed has ended everywhere. ends: those chosen.
    """

    grid: TuningGrid
    points: Mapping[int, int | None]
    ends: Sequence[GridEnd]

    @property
    def is_at_edge(self) -> bool:
        """Whether a best value lies at the edge of the grid, so that the arm gets no verdict."""
        return any(end.is_best for end in self.ends)


def with_tuned(study: StudyResults) -> tuple[StudyResults, dict[str, PointChoice]]:
    """Return (study with its tuned arms first, tuned arm -> choice). A study that tunes nothing is unchanged."""
    plan = study.plan
    if not plan.tuned:
        return study, {}
    arms = plan.arms_by_name
    rows = {trial: row for row, trial in enumerate(zip(study.columns["arm"], study.columns["seed"], strict=True))}
    choices = {}
    tuned = []
    columns: dict[str, list[Any]] = {name: [] for name in study.columns}
    for entry in plan.tuned:
        grid = grid_of(entry, study, rows)
        points = cross_fit(grid.reached, grid.shape, (grid.diverged, grid.collapsed))
        choice = PointChoice(grid, dict(zip(grid.seeds, points, strict=True)), chosen_ends(grid, points))
        choices[entry.name] = choice
        same = entry.model_dump(include={"name", "baseline", "published", "values"})
        key = "+".join(arms[point].key for point in entry.points)
        tuned.append(arms[entry.points[0]].model_copy(update={**same, "key": key}))  # with the rest of its first point
        for trial in tuned_trials(entry, study, rows, choice):
            for name, value in trial.items():
                columns[name].append(value)
    for name, values in study.columns.items():
        columns[name] += values
    plan = plan.model_copy(update={"arms": [*tuned, *plan.arms]})
    return replace(study, plan=plan, columns=columns), choices


def tuned_arms_only(study: StudyResults) -> StudyResults:
    """Return the study reduced to its tuned arms, or unchanged if it tunes nothing."""
    whole, choices = with_tuned(study)
    if not choices:
        return study
    arms = [arm for arm in whole.plan.arms if arm.name in choices]
    curves = {name: values for name, values in study.plan.curves.items() if name not in study.plan.tune}
    tuned = {point: entry.name for entry in study.plan.tuned for point in entry.points}
    baseline = tuned.get(study.plan.baseline, study.plan.baseline)
    changed = {"arms": arms, "curves": curves, "baseline": baseline, "tune": {}, "tuned": []}
    plan = whole.plan.model_copy(update=changed)
    columns = {}
    for name, values in whole.columns.items():
        columns[name] = list(itertools.compress(values, map(choices.__contains__, whole.columns["arm"])))
    return replace(whole, plan=plan, columns=columns)


def tuned_trials(
    entry: Tuned, study: StudyResults, rows: Mapping[tuple[str, int], int], choice: PointChoice
) -> Iterator[dict[str, Any]]:
    """Yield each seed's trial at its chosen point under the tuned arm's name, or a missing trial with the reason."""
    for seed, point in choice.points.items():
        row = rows[entry.points[point or 0], seed]
        trial = {name: values[row] for name, values in study.columns.items()}
        if point is None:
            for name, value in trial.items():
                if isinstance(value, float):
                    trial[name] = math.nan
            trial |= NOT_CHOSEN
        yield trial | {"arm": entry.name}


def grid_of(entry: Tuned, study: StudyResults, rows: Mapping[tuple[str, int], int]) -> TuningGrid:
    plan = study.plan
    metric = plan.metric_named(plan.selection_metric)
    status = study.columns["status"]
    reached = study.columns.get(metric.name, [math.nan] * len(status))
    seeds = [seed for arm, seed in rows if arm == entry.points[0]]
    values = np.full((len(seeds), len(entry.points)), math.nan)
    diverged = np.zeros(values.shape, bool)
    for number, seed in enumerate(seeds):
        for point, arm in enumerate(entry.points):
            row = rows.get((arm, seed))
            if row is None:
                continue
            diverged[number, point] = status[row] == "diverged"
            if status[row] == "finished":
                values[number, point] = reached[row]
    chance = plan.chance_of(plan.arms_by_name[entry.points[0]])
    collapsed = np.zeros(values.shape, bool)
    if metric.is_accuracy:
        for point, column in enumerate(values.T):
            by_row = {row: float(value) for row, value in enumerate(column) if not math.isnan(value)}
            collapsed[fallen_seeds(by_row, chance), point] = True
    signed = scores(values, diverged, metric, chance)
    return TuningGrid(seeds, entry.points, plan.tune, signed, diverged, collapsed, plan.is_paired)


def scores(values: np.ndarray, diverged: np.ndarray, metric: Metric, chance: float) -> np.ndarray:
    """Return the values (seeds, points) with the sign by which higher is better.

    A trial that diverged scores `chance` in an accuracy, and the worst of all scores in another metric.
    """
    if metric.is_accuracy:
        return np.where(diverged, chance, values)
    signed = values if metric.higher_is_better else -values
    worst = 0.0
    if np.isfinite(signed).any():
        worst = float(np.nanmin(signed))
    return np.where(diverged, worst, signed)


def usual_points(study: StudyResults) -> dict[str, int]:
    """Return tuned arm -> index of the grid point used by the most seeds, for arms with a chosen point."""
    _, choices = with_tuned(study)
    usual = {}
    for name, choice in choices.items():
        point = most_used_point(choice.points.values(), choice.grid.shape)
        if point is not None:
            usual[name] = point
    return usual


def most_used_point(points: Iterable[int | None], shape: Sequence[int]) -> int | None:
    """Return the index of the point used by the most seeds (ties: see `cross_fit`), or None if no point was chosen."""
    near = distance_from_middle(shape)
    uses = Counter(point for point in points if point is not None)
    return max(uses, key=lambda point: (uses[point], -near[point], -point), default=None)


def cross_fit(
    reached: np.ndarray, shape: Sequence[int] | None = None, avoided: Sequence[np.ndarray] = ()
) -> list[int | None]:
    """Return per seed the index of the point with the best mean over other seeds, or None if no other seed counts.

    reached: validation scores (seeds, points), NaN if missing; such a seed does not count. Ties go to the point nearest
    the middle of the grid. shape: number of values per tuned setting. avoided: which trials ended badly, the worst kind
    first: only the points with the fewest can be chosen.
    """
    n, count = reached.shape
    is_complete = ~np.isnan(reached).any(axis=1)
    from_middle = np.argsort(distance_from_middle(shape or [count]), kind="stable")
    is_allowed = points_with_fewest(avoided, count)
    chosen: list[int | None] = []
    for seed in range(n):
        others = reached[is_complete & (np.arange(n) != seed)]
        if len(others) == 0:
            chosen.append(None)
            continue
        means = np.round(others.mean(axis=0), 12)  # equal means may differ by rounding
        allowed = np.where(is_allowed, means, -np.inf)
        chosen.append(int(from_middle[np.argmax(allowed[from_middle])]))
    return chosen


def points_with_fewest(avoided: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Return which of `count` points have the fewest trials of the first kind, and of these the fewest of the next."""
    among = np.ones(count, bool)
    for trials in avoided:
        times = trials.sum(axis=0)
        among &= times == times[among].min()
    return among


def distance_from_middle(shape: Sequence[int]) -> np.ndarray:
    """Return the distance (points,) of each grid point from the grid's middle, in steps along the axes."""
    indices = np.indices(shape).reshape(len(shape), -1)
    middle = (np.array(shape)[:, None] - 1) / 2
    distance: np.ndarray = np.abs(indices - middle).sum(axis=0)
    return distance


# -- best values at the edge of the grid -------------------------------------------------------------------------------


def chosen_ends(grid: TuningGrid, chosen: Sequence[int | None]) -> list[GridEnd]:
    points = [point for point in chosen if point is not None]
    indices = np.indices(grid.shape).reshape(len(grid.shape), -1)  # of the value of each setting at each point
    ends = []
    for setting, at in zip(grid.tune, indices, strict=True):
        for end in sorted({0, len(grid.tune[setting]) - 1}):
            if end in at[points]:
                ends.append(grid_end(grid, setting, at, end))
    return ends


def grid_end(grid: TuningGrid, setting: str, at: np.ndarray, end: int) -> GridEnd:
    """Return the end of the grid with index `end` of a setting, whose value at each point has the index at (points,).

    A value beyond the end is advised only if no trial at the end diverged or collapsed.
    """
    values = grid.tune[setting]
    scores = grid.reached[grid.is_complete]
    means = scores.mean(axis=0)
    is_inner = (at > 0) & (at < len(values) - 1)
    outer = int(np.argmax(np.where(at == end, means, -np.inf)))
    inner = int(np.argmax(np.where(is_inner, means, -np.inf)))
    is_best = exceeds(scores[:, outer], scores[:, inner], grid.is_paired)
    beyond = None
    if not grid.failed[:, at == end].any():
        beyond = next_value(values if end else values[::-1])
    return GridEnd(setting, values[end], values[at[inner]], beyond, is_best)


def exceeds(a: np.ndarray, b: np.ndarray, is_paired: bool = True) -> bool:
    """Return whether the 95% interval of the mean of a - b (n,) lies above 0. Without an interval, the mean decides."""
    difference = intervals.mean(a - b) if is_paired else intervals.welch(b, a)
    interval = difference.interval()
    low = interval[0] if interval else difference.value
    return low is not None and low > 0


def next_value(values: Sequence[Number]) -> Number | None:
    """Return the value that continues a sequence, rounded to a whole number or to 2 significant digits.

    It continues the last ratio, up to LARGEST_RATIO, if all values are positive, and otherwise the last step. It is
    None where it would leave 0 to 1 (probabilities and decays end there), fall below 0, or equal the last after
    rounding.
    """
    before, last = values[-2:]
    lowest = min(values)
    highest = max(values)
    if lowest > 0:
        ratio = min(max(last / before, 1 / LARGEST_RATIO), LARGEST_RATIO)
        following = last * ratio
    else:
        following = last + (last - before)
    if lowest >= 0 and (following < 0 or highest < 1 <= following):
        return None
    rounded = round(following) if isinstance(last, int) else float(f"{following:.2g}")
    if rounded == last or (rounded == 0 and lowest > 0):
        return None
    return rounded
