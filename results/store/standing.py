"""Where a trial stands: whether it is over, and if not, whether it may begin.

Results, leases, failures, the evals that the trial owes, and its parents decide, all as found on disk. A trial begins
once its parent has finished and left weights. If the weights are lost, the parent is trained again.
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
    """A trial that others start from. kind: READY, WAITS, LOST or BLOCKED, as this parent allows."""

    kind: Kind
    clause: str = ""
    running: bool = False


@dataclass(frozen=True)
class Start:
    """What the parents of a trial allow: READY, WAITS, LOST or BLOCKED.

    running: whether a parent is being trained. open: parents to train first, nearest first. lost: the parents among
    them that had finished.
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
    """A reader of where the trials of a run directory stand, which reads each parent once.

    code: the code under which failures count; None for any code.
    """

    def __init__(self, runs: Path, code: str | None = None) -> None:
        self.runs = runs
        self.code = code
        self.parents: dict[str, Parent] = {}

    def of(self, key: str, owed: Sequence[str] = (), parents: Mapping[str, str] = {}) -> Standing:  # never changed
        """Return where a trial stands. owed: the evals that it must have. parents: id -> name, nearest first."""
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
        """Return where a trained trial stands that lacks evals; it needs its own weights and no parent's."""
        which = f"trained; eval {', '.join(missing)} is"
        if state.attempt is not None and lease.seems_alive(state.attempt):
            return Standing(Kind.RUNNING, f"{which} being computed", state)
        if (failure := eval_files.failure(trial, missing)) is not None and self.counts(failure):
            return Standing(Kind.FAILED, failure.cause, state)
        return Standing(Kind.OWES_EVALS, f"{which} still to be computed", state)

    def counts(self, failure: Failure | None) -> bool:
        """Return whether a failure keeps the trial from running, which needs the code of the failure."""
        return failure is not None and self.code in (None, failure.code)

    def parent(self, key: str) -> Parent:
        """Return what a trial allows to the trials that start from it."""
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
    """Decide whether a trial may begin, by its farthest open parent. parents: id -> name, nearest first."""
    start = Start()
    for key, name in parents.items():
        if (parent := look(key)).kind is Kind.READY:
            break
        start = Start(
            kind=max(start.kind, parent.kind, key=(Kind.READY, Kind.WAITS, Kind.LOST, Kind.BLOCKED).index),
            why=f"starts from {name}, {parent.clause}",
            running=start.running or parent.running,
            open=(*start.open, key),
            lost=(*start.lost, key) if parent.kind is Kind.LOST else start.lost,
        )
        if parent.kind is Kind.BLOCKED:
            break
    return start
