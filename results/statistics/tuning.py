"""Tuning: every arm at the value that suits it, chosen from one grid by the other seeds (cross-fitting).

Seed s uses the point with the best mean validation accuracy over the other seeds, and is tested there: what chooses is
independent of what is tested, so the best of several noisy points is not taken for a better arm.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from results.statistics import grid_edge as edge
from results.statistics.grid_edge import End
from results.study_results import StudyResults
from results.tables import sentences

CHOOSES = "val_accuracy"

Arm = Mapping[str, Any]
Trial = Mapping[str, Any]  # a value of each of the study's columns
Trials = Mapping[str, Mapping[int, Trial]]  # arm -> seed -> its trial


@dataclass(frozen=True)
class Choice:
    """Of one tuned arm: the point of the grid that each seed uses (None: cannot be said), and what to tell of it."""

    points: Mapping[int, int | None]
    edge: list[str]  # settings whose best value is the first or last of the grid, by more than noise
    notes: list[str]
    gone: frozenset[str] = frozenset()  # arms of the grid where trials diverged, which are nobody's best


def with_tuned(study: StudyResults) -> tuple[StudyResults, dict[str, Choice]]:
    """The study with its tuned arms before the others, each with the trials that its seeds choose; the choices.

    The study itself where it tunes nothing.
    """
    entries = study.plan.get("tuned", [])  # plans written before the field existed have none
    if not entries:
        return study, {}
    arms = {arm["name"]: arm for arm in study.plan["arms"]}
    by_arm = trials_of({point for entry in entries for point in entry["points"]}, study.columns)
    choices = {entry["name"]: choice(entry, by_arm, study.plan, arms) for entry in entries}
    virtual = [tuned_arm(entry, arms, choices[entry["name"]]) for entry in entries]
    rows = [trial for entry in entries for trial in tuned_trials(entry, by_arm, choices[entry["name"]])]
    plan = study.plan | {"arms": [*virtual, *study.plan["arms"]]}
    columns = {name: [*(trial[name] for trial in rows), *values] for name, values in study.columns.items()}
    return replace(study, plan=plan, columns=columns), choices


def trials_of(arms: Collection[str], columns: Mapping[str, Sequence[Any]]) -> Trials:
    """The trials of these arms."""
    found: dict[str, dict[int, Trial]] = defaultdict(dict)
    for at, arm in enumerate(columns["arm"]):
        if arm in arms:
            found[arm][columns["seed"][at]] = {name: values[at] for name, values in columns.items()}
    return found


def at_own_values(study: StudyResults) -> StudyResults:
    """The study of its tuned arms alone, as if they had been planned so; the study itself where it tunes nothing."""
    whole, choices = with_tuned(study)
    if not choices:
        return study
    arms = [arm for arm in whole.plan["arms"] if arm["name"] in choices]
    curves = {name: values for name, values in study.plan["curves"].items() if name not in study.plan["tune"]}
    plan = whole.plan | {"arms": arms, "curves": curves, "tune": {}, "tuned": []}
    chosen = [name in choices for name in whole.columns["arm"]]
    return replace(
        whole, plan=plan, columns={key: list(itertools.compress(own, chosen)) for key, own in whole.columns.items()}
    )


def choice(entry: Arm, by_arm: Trials, plan: Arm, arms: Mapping[str, Arm]) -> Choice:
    """What the seeds of a tuned arm use."""
    chance = 1 / arms[entry["points"][0]]["config"]["classes"]
    seeds = list(by_arm[entry["points"][0]])
    reached = np.column_stack([scores(by_arm[name], seeds, chance) for name in entry["points"]])
    shape = [len(values) for values in plan["tune"].values()]
    chosen: dict[int, int | None] = dict(zip(seeds, choose(reached, shape), strict=True))
    ends = list(edge.ends(chosen.values(), reached, plan["tune"]))
    notes = list(told(chosen, ends, reached, seeds, plan["tune"]))
    return Choice(chosen, [end.setting for end in ends if end.resolved], notes, gone(entry["points"], by_arm, reached))


def settled(study: StudyResults) -> dict[str, int]:
    """Tuned arm -> the point of its grid that most of its seeds choose, of several the one nearest to the middle.

    Without those of which no seed can choose; none where the study tunes nothing.
    """
    _, choices = with_tuned(study)
    shape = [len(values) for values in study.plan.get("tune", {}).values()]
    found = {name: usual(choice, shape) for name, choice in choices.items()}
    return {name: point for name, point in found.items() if point is not None}


def usual(choice: Choice, shape: Sequence[int]) -> int | None:
    """The point that most seeds use; None where none uses any."""
    near = from_middle(shape)
    uses = Counter(point for point in choice.points.values() if point is not None)
    return max(uses, key=lambda point: (uses[point], -near[point], -point), default=None)


def scores(trials: Mapping[int, Trial], seeds: Sequence[int], chance: float) -> np.ndarray:
    """What the trials of one point reached in validation, by seed (n,): chance where one diverged, NaN for a hole."""
    return np.array([score(trials[seed], chance) if seed in trials else math.nan for seed in seeds])


def score(trial: Trial, chance: float) -> float:
    if trial["status"] == "diverged":
        return chance
    return float(trial[CHOOSES]) if trial["status"] == "finished" else math.nan


def gone(points: Sequence[str], by_arm: Trials, reached: np.ndarray) -> frozenset[str]:
    """Those where all trials diverged, or some did and, with chance for them, another point has a better mean."""
    means = [column[~np.isnan(column)].mean() if not np.isnan(column).all() else -np.inf for column in reached.T]
    lost = [[trial["status"] == "diverged" for trial in by_arm[name].values()] for name in points]
    found = zip(points, lost, means, strict=True)
    return frozenset(name for name, each, mean in found if all(each) or (any(each) and mean < max(means)))


def choose(reached: np.ndarray, shape: Sequence[int] | None = None) -> list[int | None]:
    """For each seed the point with the best mean over the other seeds; reached: (n, points), NaN for a hole.

    Only seeds that have every point choose: a mean over others would compare points by the luck of their seeds. Of
    points that are equally good the one nearest to the middle of the grid, of `shape`, then the first. None where no
    other seed is whole.
    """
    n, count = reached.shape
    whole = ~np.isnan(reached).any(axis=1)
    order = np.argsort(from_middle(shape or [count]), kind="stable")
    chosen: list[int | None] = []
    for seed in range(n):
        others = whole & (np.arange(n) != seed)
        if not others.any():
            chosen.append(None)
            continue
        means = np.round(reached[others].mean(axis=0), 12)  # equal means may differ by rounding
        chosen.append(int(order[np.argmax(means[order])]))
    return chosen


def from_middle(shape: Sequence[int]) -> np.ndarray:
    """How far each point of a grid of `shape` lies from its middle (points,), in steps along the axes."""
    places = np.indices(shape).reshape(len(shape), -1)
    middle = (np.array(shape)[:, None] - 1) / 2
    distance: np.ndarray = np.abs(places - middle).sum(axis=0)
    return distance


def told(
    chosen: Mapping[int, int | None],
    ends: Iterable[End],
    reached: np.ndarray,
    seeds: Sequence[int],
    tune: Mapping[str, Sequence[Any]],
) -> Iterator[str]:
    """What the notes say of a choice: which points by which seeds, the grid's ends, the seeds that could not choose."""
    grid = [dict(zip(tune, place, strict=True)) for place in itertools.product(*tune.values())]
    uses: dict[int, list[int]] = {}
    for seed, point in chosen.items():
        if point is not None:
            uses.setdefault(point, []).append(seed)
    if uses:
        parts = [f"{assigned(grid[point])} ({sentences.named(who)})" for point, who in sorted(uses.items())]
        yield f"chosen by the other seeds' validation: {', '.join(parts)}"
    yield from (end.told for end in ends)
    holes = [seed for seed, row in zip(seeds, reached, strict=True) if np.isnan(row).any()]
    if holes:
        yield f"{sentences.named(holes)} did not help to choose: some points of the grid are missing"


def assigned(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in point.items())


def tuned_arm(entry: Arm, arms: Mapping[str, Arm], choice: Choice) -> dict[str, Any]:
    """What a plan would say of the tuned arm: the sizes of its grid's arms, and how it differs from its baseline."""
    first = arms[entry["points"][0]]
    return dict(first) | {
        "name": entry["name"],
        "baseline": entry["baseline"],
        "key": "+".join(arms[point]["key"] for point in entry["points"]),
        "published": entry["published"],
        "values": entry["values"],
        "notes": [*choice.notes, *first["notes"]],
    }


def tuned_trials(entry: Arm, by_arm: Trials, choice: Choice) -> Iterator[Trial]:
    """Its trials: of each seed the one at the chosen point, or a hole that says why there is none."""
    for seed, point in choice.points.items():
        trial = {**by_arm[entry["points"][point or 0]][seed], "arm": entry["name"]}
        if point is None:
            trial |= {name: math.nan for name, value in trial.items() if isinstance(value, float)}
            trial |= {"status": "missing", "reason": "no other seed has finished the whole grid"}
        yield trial
