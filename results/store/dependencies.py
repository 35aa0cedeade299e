"""Find which trials start from which, as plan.json says, and whether a trial may begin.

A trial begins once its parent has finished and left its weights. If the weights were lost, the parent is trained again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from results import store
from results.store import evals, planned
from results.store.schemas import Entry, Failure, Metrics, Plan, Settings, Stage

READY, WAITS, LOST, BLOCKED = "ready", "waits", "lost", "blocked"
AGAIN = "whose weights are gone: `ablate run` or `ablate submit` trains it again"


@dataclass(frozen=True)
class Parent:
    """A trial that others start from. kind: whether they may begin, as far as this parent is concerned."""

    kind: str
    word: str = ""
    running: bool = False


@dataclass(frozen=True)
class Start:
    """Whether a trial may begin, and why not.

    kind: READY; WAITS for a training; LOST: a parent's weights are gone, so it must be trained again; BLOCKED: a parent
    failed or diverged. running: a parent is being trained. open: parents to train first, nearest first. lost: those of
    them that had finished.
    """

    kind: str = READY
    why: str = ""
    running: bool = False
    open: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


Look = Callable[[str], Parent]


def start(parents: Mapping[str, str], look: Look) -> Start:
    """Decide by a trial's farthest open parent whether it may begin. parents: id -> name, nearest first."""
    found: dict[str, Parent] = {}
    for key in parents:
        if (parent := look(key)).kind == READY:
            break
        found[key] = parent
        if parent.kind == BLOCKED:
            break
    if not found:
        return Start()
    kinds = [parent.kind for parent in found.values()]
    nearest, farthest = (ends := list(found))[0], ends[-1]
    return Start(
        kind=next(kind for kind in (BLOCKED, LOST, WAITS) if kind in kinds),
        why=f"starts from {parents[farthest]}, {found[farthest].word}",
        running=found[nearest].running,
        open=tuple(found),
        lost=tuple(key for key, parent in found.items() if parent.kind == LOST),
    )


def begin(runs: Path, key: str, parents: Mapping[str, str], look: Look) -> Start:
    """Decide whether the trial `key` may begin. A trained trial needs only its own weights, for the evals it owes."""
    found = start(parents, look)
    return Start() if found.kind != READY and store.trial(runs, key).state().over else found


def on_disk(runs: Path, code: str | None = None) -> Look:
    """Return a function that looks up each trial once.

    code: count only failures under it; None: under any.
    """

    @cache
    def look(key: str) -> Parent:
        trial = store.trial(runs, key)
        state = trial.state()
        if state.status == "finished":
            return Parent(READY) if state.weights.exists() else Parent(LOST, AGAIN)
        if state.status == "diverged":
            return Parent(BLOCKED, "which diverged")
        if state.status == "failed" and counts(trial.failure(), code):
            return Parent(BLOCKED, f"which failed: {state.reason}")
        if state.status == "running":
            return Parent(WAITS, "which is being trained", running=True)
        return Parent(WAITS, "which has not finished")

    return look


def counts(failure: Failure | None, code: str | None) -> bool:
    """Return whether a failure keeps a trial from running: only under the code that it happened under."""
    return failure is not None and code in (None, failure.code)


# -- of a plan ---------------------------------------------------------------------------------------------------------


def starts(runs: Path, plan: Plan) -> dict[str, Start]:
    """Return trial id -> whether it may begin, for all trials with parents; failures count under any code."""
    look = on_disk(runs)
    return {key: begin(runs, key, parents, look) for key, parents in starting(plan)}


def starting(plan: Plan) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield trial id and its parents, for all trials with parents."""
    stages = by_name(plan)
    for entry in planned.trained(plan):
        for seed, key in entry.ids.items() if entry.parent else ():
            yield key, parents(entry, stages, seed)


def probed(runs: Path, plan: Plan) -> dict[str, Metrics]:
    """Return trial id -> metrics of its parent's evals, as start_<metric>."""

    @cache
    def metrics(key: str) -> Metrics:
        trial = store.trial(runs, key)
        result = trial.state().result
        known = evals.summary(trial, result) if result else {}
        return {f"start_{name}": value for one in known.values() for name, value in one.metrics.items()}

    return {key: metrics(next(iter(before))) for key, before in starting(plan)}


def by_name(plan: Plan) -> dict[str, Stage]:
    return {stage.name: stage for stage in plan.stages}


def lineage(entry: Entry, stages: Mapping[str, Stage]) -> Iterator[Stage]:
    """Yield the stages that an arm or stage starts from, nearest first."""
    while parent := stages.get(entry.parent):
        yield parent
        entry = parent


def link(config: Settings) -> str:
    """Return the setting that names a trial's nearest parent, which a plan leaves out of the config."""
    return "teacher" if "init_from" in config else "init_from"


def parents(entry: Entry, stages: Mapping[str, Stage], seed: int) -> dict[str, str]:
    """Return the parents with this seed, nearest first: id -> name."""
    return {one.ids[seed]: one.name for one in lineage(entry, stages)}
