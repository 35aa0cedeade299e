"""Tuning by cross-fitting: each seed is tested at the value that the arm's other seeds choose from the grid.

Seed s uses the grid point with the best mean validation accuracy over the other seeds. This choice is independent of
the test result of seed s. So no arm gains by picking the best of several noisy points. A point at which a trial
diverged or collapsed is chosen only if there is no other. A grid point is an arm with one combination of the tuned
settings' values. `reached` holds validation accuracies (n, points), NaN for a missing trial.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from results import collapse
from results.statistics import intervals
from results.store.schemas import Arm, Metric, Plan, Tuned
from results.study_results import StudyResults
from results.tables import sentences

LARGEST_RATIO = 10  # of an advised value to the end of the grid, either way

Number = int | float
Trial = Mapping[str, Any]  # column of the study -> value
Trials = Mapping[str, Mapping[int, Trial]]  # arm -> seed -> trial


@dataclass(frozen=True)
class Choice:
    """The grid points that the seeds of one tuned arm use, each chosen by the results of the other seeds.

    points: seed -> index of its grid point, or None while no other seed has ended at every grid point. edge: settings
    for which a chosen value is an end of the grid and beats the best inner value (see `exceeds`). unstable: grid points
    left out of comparisons, because most of their trials diverged or collapsed (see `unstable_points`).
    """

    points: Mapping[int, int | None]
    edge: list[str]
    notes: list[str]
    unstable: frozenset[str] = frozenset()


def with_tuned(study: StudyResults) -> tuple[StudyResults, dict[str, Choice]]:
    """Return (study with its tuned arms first, tuned arm -> choice). A study that tunes nothing is unchanged."""
    entries = study.plan.tuned
    if not entries:
        return study, {}
    arms = {arm.name: arm for arm in study.plan.arms}
    points = {point for entry in entries for point in entry.points}
    by_arm: dict[str, dict[int, Trial]] = defaultdict(dict)
    for at, arm in enumerate(study.columns["arm"]):
        if arm in points:
            by_arm[arm][study.columns["seed"][at]] = {name: values[at] for name, values in study.columns.items()}
    choices = {entry.name: choose_points(entry, by_arm, study.plan, arms) for entry in entries}
    added = [tuned_arm(entry, arms, choices[entry.name]) for entry in entries]
    rows = [trial for entry in entries for trial in tuned_trials(entry, by_arm, choices[entry.name])]
    plan = study.plan.model_copy(update={"arms": [*added, *study.plan.arms]})
    columns = {name: [*(trial[name] for trial in rows), *values] for name, values in study.columns.items()}
    return replace(study, plan=plan, columns=columns), choices


def tuned_arms_only(study: StudyResults) -> StudyResults:
    """Return the study reduced to its tuned arms, or unchanged if it tunes nothing."""
    whole, choices = with_tuned(study)
    if not choices:
        return study
    arms = [arm for arm in whole.plan.arms if arm.name in choices]
    curves = {name: values for name, values in study.plan.curves.items() if name not in study.plan.tune}
    plan = whole.plan.model_copy(update={"arms": arms, "curves": curves, "tune": {}, "tuned": []})
    chosen = [name in choices for name in whole.columns["arm"]]
    columns = {key: list(itertools.compress(values, chosen)) for key, values in whole.columns.items()}
    return replace(whole, plan=plan, columns=columns)


def choose_points(entry: Tuned, by_arm: Trials, plan: Plan, arms: Mapping[str, Arm]) -> Choice:
    """Return the grid points chosen for the seeds of a tuned arm, with notes on the choice."""
    metric, classes = plan.metric_named(plan.selection_metric), arms[entry.points[0]].config.get("classes")
    chance = 1 / classes if classes else 0.0
    seeds = list(by_arm[entry.points[0]])
    trials = [[by_arm[name].get(seed) for name in entry.points] for seed in seeds]
    diverged = np.array([[is_diverged(trial) for trial in row] for row in trials])
    values = np.array([[validation_value(trial, metric) for trial in row] for row in trials])
    fell = collapsed(values, chance) if metric.is_accuracy else np.zeros(values.shape, bool)
    reached = scores(values, diverged, metric, chance)
    shape = [len(values) for values in plan.tune.values()]
    chosen: dict[int, int | None] = dict(zip(seeds, cross_fit(reached, shape, (diverged, fell)), strict=True))
    bad = diverged | fell
    ends = list(chosen_ends(chosen.values(), reached, bad, plan.tune))
    avoided = avoided_notes(chosen, bad, plan.tune)
    notes = [*choice_notes(chosen, plan.tune), *avoided, *(note for _, _, note in ends)]
    if holes := [seed for seed, row in zip(seeds, reached, strict=True) if np.isnan(row).any()]:
        notes.append(f"{sentences.seeds_text(holes)} did not help to choose: some points of the grid are missing")
    resolved = [setting for setting, is_resolved, _ in ends if is_resolved]
    return Choice(chosen, resolved, notes, unstable_points(entry.points, bad))


def usual_points(study: StudyResults) -> dict[str, int]:
    """Return tuned arm -> index of the grid point used by the most seeds, for arms with a chosen point."""
    _, choices = with_tuned(study)
    shape = [len(values) for values in study.plan.tune.values()]
    found = {name: most_used_point(choice, shape) for name, choice in choices.items()}
    return {name: point for name, point in found.items() if point is not None}


def most_used_point(choice: Choice, shape: Sequence[int]) -> int | None:
    """Return the index of the point used by the most seeds (ties: see `cross_fit`), or None if no point was chosen."""
    near = distance_from_middle(shape)
    uses = Counter(point for point in choice.points.values() if point is not None)
    return max(uses, key=lambda point: (uses[point], -near[point], -point), default=None)


def validation_value(trial: Trial | None, metric: Metric) -> float:
    """Return a trial's value of the metric by which points are chosen, or NaN if it has not finished."""
    if trial is None or trial["status"] != "finished":
        return math.nan
    return float(trial.get(metric.name, math.nan))


def scores(values: np.ndarray, diverged: np.ndarray, metric: Metric, chance: float) -> np.ndarray:
    """Return the values (n, points) with the sign by which higher is better.

    A trial that diverged scores `chance` (1 / classes) in an accuracy, and the worst of all scores in another metric.
    """
    signed = values if metric.higher_is_better else -values
    worst = chance
    if not metric.is_accuracy:
        worst = float(np.nanmin(signed)) if np.isfinite(signed).any() else 0.0
    return np.where(diverged, worst, signed)


def is_diverged(trial: Trial | None) -> bool:
    return trial is not None and trial["status"] == "diverged"


def collapsed(reached: np.ndarray, chance: float) -> np.ndarray:
    """Return which trials (n, points) reach no more than chance, or less than half of the median of their point."""
    found = np.zeros(reached.shape, bool)
    for point, column in enumerate(reached.T):
        known = {row: float(score) for row, score in enumerate(column) if not math.isnan(score)}
        found[collapse.fallen_seeds(known, chance), point] = True
    return found


def unstable_points(points: Sequence[str], bad: np.ndarray) -> frozenset[str]:
    """Return the grid points at which more than half of the seeds' trials are bad.

    A comparison with an arm's other points includes the points with fewer bad trials, over the seeds that finished.
    Otherwise an arm would differ from an equal one whose best point was unlucky once.
    """
    return frozenset(name for name, share in zip(points, bad.mean(axis=0), strict=True) if share > 0.5)


def cross_fit(
    reached: np.ndarray, shape: Sequence[int] | None = None, avoided: Sequence[np.ndarray] = ()
) -> list[int | None]:
    """Return per seed the index of the point with the best mean over other seeds, or None if no other seed counts.

    reached: validation scores (seeds, points), NaN if missing. A seed with a missing score does not count. Ties go to
    the point nearest the middle of the grid, then to the first. shape: number of values per tuned setting. avoided:
    which trials (seeds, points) ended badly, the worst kind first. Only the points with the fewest can be chosen.
    """
    n, count = reached.shape
    whole = ~np.isnan(reached).any(axis=1)
    order = np.argsort(distance_from_middle(shape or [count]), kind="stable")
    allowed = points_with_fewest(avoided, count)
    chosen: list[int | None] = []
    for seed in range(n):
        others = reached[whole & (np.arange(n) != seed)]
        means = np.round(others.mean(axis=0), 12) if len(others) else None  # equal means may differ by rounding
        chosen.append(None if means is None else int(order[np.argmax(np.where(allowed, means, -np.inf)[order])]))
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
    places = np.indices(shape).reshape(len(shape), -1)
    middle = (np.array(shape)[:, None] - 1) / 2
    distance: np.ndarray = np.abs(places - middle).sum(axis=0)
    return distance


def choice_notes(chosen: Mapping[int, int | None], tune: Mapping[str, Sequence[Number]]) -> list[str]:
    """Return a note on the grid points chosen for the seeds, or [] if no point was chosen."""
    texts = []
    for place, settings in enumerate(point_texts(tune)):
        if seeds := [seed for seed, point in chosen.items() if point == place]:
            texts.append(f"{settings} ({sentences.seeds_text(seeds)})")
    return [f"chosen by the other seeds' validation: {', '.join(texts)}"] if texts else []


def avoided_notes(chosen: Mapping[int, int | None], bad: np.ndarray, tune: Mapping[str, Sequence[Number]]) -> list[str]:
    """Return a note on the points where trials diverged or collapsed, or []. bad: which trials did (seeds, points)."""
    times = bad.sum(axis=0)
    texts = [f"{point} ({times[place]} of {len(bad)})" for place, point in enumerate(point_texts(tune)) if times[place]]
    if not texts:
        return []
    none_left = any(point is not None and times[point] for point in chosen.values())
    then = "no other point is left to choose" if none_left else "not chosen"
    return [f"trials diverged or collapsed at {', '.join(texts)}: {then}"]


def point_texts(tune: Mapping[str, Sequence[Number]]) -> list[str]:
    """Return the settings of each grid point, such as "lr 0.001"."""
    points = itertools.product(*tune.values())
    return [", ".join(f"{name} {value}" for name, value in zip(tune, values, strict=True)) for values in points]


def tuned_arm(entry: Tuned, arms: Mapping[str, Arm], choice: Choice) -> Arm:
    """Return the plan's entry for a tuned arm, built from the first arm of its grid."""
    first = arms[entry.points[0]]
    same = entry.model_dump(include={"name", "baseline", "published", "values"})
    key = "+".join(arms[point].key for point in entry.points)
    return first.model_copy(update={**same, "key": key, "notes": [*choice.notes, *first.notes]})


def tuned_trials(entry: Tuned, by_arm: Trials, choice: Choice) -> Iterator[Trial]:
    """Yield each seed's trial at its chosen point under the tuned arm's name, or a missing trial with the reason."""
    for seed, point in choice.points.items():
        trial = {**by_arm[entry.points[point or 0]][seed], "arm": entry.name}
        if point is None:
            trial |= {name: math.nan for name, value in trial.items() if isinstance(value, float)}
            trial |= {"status": "missing", "reason": "no other seed has finished the whole grid"}
        yield trial


# -- best values at the edge of the grid -------------------------------------------------------------------------------


def chosen_ends(
    chosen: Collection[int | None], reached: np.ndarray, bad: np.ndarray, tune: Mapping[str, Sequence[Number]]
) -> Iterator[tuple[str, bool, str]]:
    """Yield (setting, whether the end beats the best inner value, note) for each end of the grid that a seed chose.

    A value beyond an end is advised only if no trial at the end diverged or collapsed. bad: which did (seeds, points).
    """
    whole = reached[~np.isnan(reached).any(axis=1)]
    shape = [len(values) for values in tune.values()]
    points = [point for point in chosen if point is not None]
    for (setting, values), places in zip(tune.items(), np.indices(shape).reshape(len(shape), -1), strict=True):
        last = len(values) - 1
        for place in sorted({0, last} & {int(places[point]) for point in points}):
            means = whole.mean(axis=0)  # (points,)
            end, inner = (
                int(np.argmax(np.where(among, means, -np.inf)))
                for among in (places == place, (places > 0) & (places < last))
            )
            beyond = None if bad[:, places == place].any() else next_value(values if place else values[::-1])
            add = "" if beyond is None else f"; add {setting} {beyond} to the grid"
            note = f"{setting} {values[place]}, at the edge of the grid, ties with {values[places[inner]]}{add}"
            if resolved := exceeds(whole[:, end], whole[:, inner]):
                note = f"its best {setting} lies at the edge of the grid, {values[place]}: no verdict{add}"
            yield setting, resolved, note


def exceeds(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether the 95% interval of the mean of a - b (n,) lies above 0. Without an interval, the mean decides."""
    difference = intervals.mean(a - b)
    low = interval[0] if (interval := difference.interval()) else difference.value
    return low is not None and low > 0


def next_value(values: Sequence[Number]) -> Number | None:
    """Return the value that continues a sequence, rounded to a whole number or to 2 significant digits.

    The value continues the last ratio, up to LARGEST_RATIO, if all values are positive, and otherwise the last step.
    Returns None if a sequence within 0 to 1 would reach 1 (probabilities and decays end there), if one without negative
    values would fall below 0, or if rounding leaves no new value above 0.
    """
    before, last = values[-2:]
    if min(values) > 0:
        found = last * min(max(last / before, 1 / LARGEST_RATIO), LARGEST_RATIO)
    else:
        found = last + (last - before)
    if min(values) >= 0 > found or (min(values) >= 0 and max(values) < 1 <= found):
        return None
    rounded = round(found) if isinstance(last, int) else float(f"{found:.2g}")
    return None if rounded == last or (rounded == 0 and min(values) > 0) else rounded
