"""The standing of a trial: whether it is over or may start, judged by its own files and its parents' files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from results import store
from results.store import Trial, TrialState, eval_files, lease
from results.store.schemas.trials import Failure

WEIGHTS_GONE = "whose weights are gone: `ablate run` or `ablate submit` trains it again"


class Kind(StrEnum):
    FINISHED = "finished"
    DIVERGED = "diverged"
    FAILED = "failed"  # with the current code
    RUNNING = "running"  # held by a living process
    OWES_EVALS = "owes evals"  # trained, but evals are missing
    BLOCKED = "blocked"  # a parent failed or diverged
    LOST = "lost"  # the weights of a finished parent are gone
    WAITS = "waits"  # for a parent to finish
    READY = "ready"  # not started, interrupted, or with a broken result


OVER = (Kind.FINISHED, Kind.DIVERGED)
ENDED = (*OVER, Kind.FAILED, Kind.BLOCKED)


@dataclass(frozen=True)
class Start:
    """Whether the parents of a trial let it start: READY, WAITS, LOST or BLOCKED.

    running: whether a parent is being trained. open: ids of parents that keep it from starting, nearest first. lost:
    ids of finished parents without weights.
    """

    kind: Kind = Kind.READY
    why: str = ""
    running: bool = False
    open: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Standing:
    """The standing of a trial, its state on disk regardless of evals, and whether its parents let it start."""

    kind: Kind
    why: str
    state: TrialState
    start: Start = Start()

    @property
    def is_over(self) -> bool:
        return self.kind in OVER

    @property
    def is_pending(self) -> bool:
        return self.kind not in ENDED


class Standings:
    """A reader of the standings of trials, which reads each parent only once.

    code: digest of the code whose failures count, or None for all failures.
    """

    def __init__(self, runs: Path, code: str | None = None) -> None:
        self.runs = runs
        self.code = code
        self.parents: dict[str, Start] = {}

    def read(self, trial_id: str, owed: Sequence[str] = (), parents: Mapping[str, str] = {}) -> Standing:
        """Return the standing of a trial. owed: the evals that it needs. parents: id -> name, nearest first."""
        trial = store.trial(self.runs, trial_id)
        state = trial.state()
        missing = eval_files.missing_evals(trial, owed, state.result)
        if missing:
            return self.read_trained(trial, state, missing)
        if state.is_over:
            return Standing(Kind(state.status), state.status, state)
        if state.status == "failed" and self.is_current(trial.failure()):
            return Standing(Kind.FAILED, state.reason, state)
        start = self.read_start(parents)
        if state.status == "running":
            return Standing(Kind.RUNNING, state.reason, state, start)
        return Standing(start.kind, start.why or state.reason, state, start)

    def read_trained(self, trial: Trial, state: TrialState, missing: Sequence[str]) -> Standing:
        which = f"trained; eval {', '.join(missing)} is"
        if state.attempt is not None and lease.seems_alive(state.attempt):
            return Standing(Kind.RUNNING, f"{which} being computed", state)
        failure = eval_files.first_failure(trial, missing)
        if failure is not None and self.is_current(failure):
            return Standing(Kind.FAILED, failure.cause, state)
        return Standing(Kind.OWES_EVALS, f"{which} still to be computed", state)

    def is_current(self, failure: Failure | None) -> bool:
        return failure is not None and self.code in (None, failure.code)

    def read_start(self, parents: Mapping[str, str]) -> Start:
        """Return whether the parents, nearest first, let a trial start. The reason names the farthest that does not."""
        start = Start()
        for trial_id, name in parents.items():
            if trial_id not in self.parents:
                self.parents[trial_id] = child_start(self.read(trial_id))
            parent = self.parents[trial_id]
            if parent.kind is Kind.READY:
                break
            start = Start(
                kind=max(start.kind, parent.kind, key=(Kind.READY, Kind.WAITS, Kind.LOST, Kind.BLOCKED).index),
                why=f"starts from {name}, {parent.why}",
                running=start.running or parent.running,
                open=(*start.open, trial_id),
                lost=(*start.lost, trial_id) if parent.kind is Kind.LOST else start.lost,
            )
            if parent.kind is Kind.BLOCKED:
                break
        return start


def child_start(parent: Standing) -> Start:
    match parent.kind:
        case Kind.FINISHED:
            return Start() if parent.state.weights.exists() else Start(Kind.LOST, WEIGHTS_GONE)
        case Kind.DIVERGED:
            return Start(Kind.BLOCKED, "which diverged")
        case Kind.FAILED:
            return Start(Kind.BLOCKED, f"which failed: {parent.why}")
        case Kind.RUNNING:
            return Start(Kind.WAITS, "which is being trained", running=True)
        case _:
            return Start(Kind.WAITS, "which has not finished")
