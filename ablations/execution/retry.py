"""Reopens trials: those that `ablate retry` selects, and parents whose weights are gone."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ablations.execution.attempts import read_or_none
from ablations.planning.jobs import Job
from results import store
from results.store import eval_files, lease
from results.store.schemas import Failure
from results.store.standing import Kind, Standings

Wanted = Callable[[store.Trial, store.TrialState], bool]


def make_selection(*, failed: bool, oom: bool, diverged: bool) -> Wanted:
    """Return a predicate for the trials to retry. oom: of the failed ones, those that ran out of memory."""

    def is_wanted(trial: store.Trial, state: store.TrialState) -> bool:
        if state.status == "failed":
            return failed or (oom and failure_kind(trial) == "memory")
        return diverged and state.status == "diverged"

    return is_wanted


def failure_kind(trial: store.Trial) -> str:
    """Return the kind of the newest failure (ablations.execution.faults); "" if unknown."""
    newest = trial.attempts()[-1:]
    failure = read_or_none(newest[0] / "failure.json", Failure) if newest else None
    return failure.kind if failure else ""


def retry(trials: Iterable[store.Trial], wanted: Wanted, evals_too: bool) -> list[bool]:
    """Reopen the selected trials and those with failed evals; return for each whether no process held it."""
    seen = ((trial, trial.state()) for trial in trials)
    asked = ((trial, state if wanted(trial, state) else None) for trial, state in seen)
    return [reopen(trial, state, evals_too) for trial, state in asked if state or has_failed_evals(trial, evals_too)]


def has_failed_evals(trial: store.Trial, evals_too: bool) -> bool:
    return evals_too and eval_files.failure(trial) is not None


def reopen(trial: store.Trial, wanted: store.TrialState | None, evals_too: bool) -> bool:
    """Reopen a trial, unless it has ended anew since.

    wanted: its state when selected; None: forgive its evals alone.
    """
    forgiven = evals_too and eval_files.forgive(trial)
    return forgiven if wanted is None else trial.reopen(lease.Watch(), wanted.result)


def lost_parents(runs: Path, jobs: Iterable[Job], code: str | None = None) -> dict[str, str]:
    """Find the parents to train again: their weights are gone, and a job has still to start from them. Id -> name.

    code: count only failures under this code; None: under any.
    """
    standings, found = Standings(runs, code), dict[str, str]()
    for job in jobs:
        standing = job.standing(standings)
        if standing.to_do and standing.start.kind is Kind.LOST:
            found |= {key: f"{job.parents[key]} seed {job.config['seed']}" for key in standing.start.lost}
    return found


def trials_to_run(runs: Path, jobs: Sequence[Job], code: str | None = None) -> list[Job]:
    """List the jobs that a run would train, lost parents included."""
    standings, again = Standings(runs, code), lost_parents(runs, jobs, code)
    return [job for job in jobs if job.id in again or job.standing(standings).to_do]


def reopen_lost_parents(runs: Path, jobs: Iterable[Job], code: str | None = None) -> list[str]:
    """Reopen the lost parents; return their names. Parents that are held, or already reopened, are left."""
    watch = lease.Watch()
    return [
        name for key, name in lost_parents(runs, jobs, code).items() if reopen_if_lost(store.trial(runs, key), watch)
    ]


def reopen_if_lost(trial: store.Trial, watch: lease.Watch) -> bool:
    """Reopen a trial that finished but has no weights; return whether it was."""
    state = trial.state()  # once: the result whose weights are gone is the one to move aside
    is_lost = state.status == "finished" and not state.weights.exists()
    return is_lost and trial.reopen(watch, state.result)


def renewal_line(names: Sequence[str]) -> str:
    """Say which parents will be trained again; "" if none."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    listed = ", ".join(names[:3]) + more
    return f"to train again, as the weights that others start from are gone: {listed}" if names else ""


def retry_line(asked: int, reopened: Sequence[bool], *, oom: bool, diverged: bool) -> str:
    """Say how many trials were reopened."""
    how = " or ".join([*(["ran out of memory"] if oom else []), *(["diverged"] if diverged else [])]) or "failed"
    if not reopened:
        return f"none of {asked} trials {how}: there is nothing to retry"
    held = f"; {reopened.count(False)} are held by a worker right now" if not all(reopened) else ""
    return f"{sum(reopened)} trials may be run again{held}"


ADVICE = {  # kind of a failure (ablations.execution.faults): what helps, with {0} for the study
    "memory": "not one image fits: free or change the GPU, then: ablate retry {0} --oom",
    "input": "put right what it names, then: ablate retry {0}",
    "machine": "look at the node, or go to another, then: ablate retry {0}",
}


def advice(kind: str, study: str) -> str:
    """Suggest what to do about a failure of this kind."""
    other = "look: ablate logs {0} --failed; changed code runs it by itself, the same after: ablate retry {0}"
    return ADVICE.get(kind, other).format(study)
