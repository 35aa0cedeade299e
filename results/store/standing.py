"""Decides where a trial stands: whether it is over, and if not, whether it may begin.

The answer comes from the disk alone: results, leases, failures, the evals that the trial owes, and its parents.
A trial begins once its parent has finished and left its weights. If the weights were lost, the parent is trained again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from results import store
from results.store import Trial, TrialState, eval_files, lease
from results.store.schemas import Failure

WEIGHTS_GONE = "whose weights are gone: `ablate run` or `ablate submit` trains it again"


class Kind(StrEnum):
    """Where a trial stands."""

    FINISHED = "finished"
    DIVERGED = "diverged"
    FAILED = "failed"  # under this code
    RUNNING = "running"  # a living process holds it
    OWES_EVALS = "owes evals"  # it is trained
    BLOCKED = "blocked"  # a parent failed or diverged
    LOST = "lost"  # a parent is to be trained again: its weights are gone
    WAITS = "waits"  # a parent has not finished
    READY = "ready"  # not started, interrupted, or with a broken result


OVER = (Kind.FINISHED, Kind.DIVERGED)
ENDED = (*OVER, Kind.FAILED, Kind.BLOCKED)


@dataclass(frozen=True)
class Parent:
    """A trial that others start from. kind: READY, WAITS, LOST or BLOCKED, as far as this parent is concerned."""

    kind: Kind
    clause: str = ""
    running: bool = False


@dataclass(frozen=True)
class Start:
    """What the parents of a trial allow: READY, WAITS, LOST or BLOCKED.

    running: a parent is being trained. open: parents to train first, nearest first. lost: those that had finished.
    """

    kind: Kind = Kind.READY
    why: str = ""
    running: bool = False
    open: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Standing:
    """Where a trial stands, and why. state: on disk, without its evals; start: what its parents allow."""

    kind: Kind
    why: str
    state: TrialState
    start: Start = Start()

    @property
    def over(self) -> bool:
        return self.kind in OVER

    @property
    def to_do(self) -> bool:
        return self.kind not in ENDED


class Standings:
    """Reads where the trials of a run directory stand, and each parent once.

    code: only failures under this code count; None: failures under any.
    """

    def __init__(self, runs: Path, code: str | None = None) -> None:
        self.runs = runs
        self.code = code
        self.parents: dict[str, Parent] = {}

    def of(self, key: str, owed: Sequence[str] = (), parents: Mapping[str, str] = {}) -> Standing:  # never changed
        """Decide for one trial. owed: the evals it is to have; parents: nearest first, id -> name."""
        trial = store.trial(self.runs, key)
        state = trial.state()
        if missing := eval_files.left(trial, owed, state.result):
            return self.of_trained(trial, state, missing)
        if state.over:
            return Standing(Kind(state.status), state.status, state)
        if state.status == "failed" and self.counts(trial.failure()):
            return Standing(Kind.FAILED, state.reason, state)
        start = start_of(parents, self.parent)
        if state.status == "running":
            return Standing(Kind.RUNNING, state.reason, state, start)
        return Standing(start.kind, start.why or state.reason, state, start)

    def of_trained(self, trial: Trial, state: TrialState, missing: Sequence[str]) -> Standing:
        """Decide for a trained trial without the evals `missing`. It needs its own weights, no parent's."""
        which = f"trained; eval {', '.join(missing)} is"
        if state.attempt is not None and lease.seems_alive(state.attempt):
            return Standing(Kind.RUNNING, f"{which} being computed", state)
        if (failure := eval_files.failure(trial, missing)) is not None and self.counts(failure):
            return Standing(Kind.FAILED, failure.cause, state)
        return Standing(Kind.OWES_EVALS, f"{which} still to be computed", state)

    def counts(self, failure: Failure | None) -> bool:
        """Return whether a failure keeps a trial from running: only under the code that it happened under."""
        return failure is not None and self.code in (None, failure.code)

    def parent(self, key: str) -> Parent:
        """Return what a trial means for those that start from it."""
        if key not in self.parents:
            self.parents[key] = as_parent(self.of(key))
        return self.parents[key]


def as_parent(found: Standing) -> Parent:
    match found.kind:
        case Kind.FINISHED:
            return Parent(Kind.READY) if found.state.weights.exists() else Parent(Kind.LOST, WEIGHTS_GONE)
        case Kind.DIVERGED:
            return Parent(Kind.BLOCKED, "which diverged")
        case Kind.FAILED:
            return Parent(Kind.BLOCKED, f"which failed: {found.why}")
        case Kind.RUNNING:
            return Parent(Kind.WAITS, "which is being trained", running=True)
        case _:
            return Parent(Kind.WAITS, "which has not finished")


def start_of(parents: Mapping[str, str], look: Callable[[str], Parent]) -> Start:
    """Decide whether a trial may begin, by its farthest open parent. parents: nearest first, id -> name."""
    found: dict[str, Parent] = {}
    for key in parents:
        if (parent := look(key)).kind is Kind.READY:
            break
        found[key] = parent
        if parent.kind is Kind.BLOCKED:
            break
    if not found:
        return Start()
    kinds = [parent.kind for parent in found.values()]
    farthest = list(found)[-1]
    return Start(
        kind=next(kind for kind in (Kind.BLOCKED, Kind.LOST, Kind.WAITS) if kind in kinds),
        why=f"starts from {parents[farthest]}, {found[farthest].clause}",
        running=any(parent.running for parent in found.values()),
        open=tuple(found),
        lost=tuple(key for key, parent in found.items() if parent.kind is Kind.LOST),
    )
