"""Reopen trials that `ablate retry` selects, and parents whose weights are gone.

All functions that read trials raise NewerSchema if a newer version wrote a file. Functions that reopen trials also
raise the other errors of `Trial.reopen`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ablations.faults import INPUT, MACHINE, MEMORY
from ablations.jobs import Job
from commonfloor.messages import listed
from results import store
from results.store import eval_files, lease
from results.store.standing import Kind, Standings


def retry(trials: Iterable[store.Trial], *, failed: bool, oom: bool, diverged: bool) -> list[bool]:
    """Reopen the trials that failed, ran out of memory or diverged, as asked, and return whether each could be.

    A trial that is selected only for a failed eval keeps its result. One that a process holds cannot be reopened.
    """
    reopened = []
    for trial in trials:
        state = trial.state()
        is_selected = diverged and state.status == "diverged"
        if state.status == "failed":
            failure = trial.failure()
            is_selected = failed or (oom and failure is not None and failure.kind == MEMORY)
        has_failed_eval = failed and eval_files.first_failure(trial) is not None
        are_cleared = failed and (is_selected or has_failed_eval) and eval_files.clear_failures(trial)
        if is_selected:
            reopened.append(trial.reopen(lease.Watch(), state.result))
        elif has_failed_eval:
            reopened.append(are_cleared)
    return reopened


def lost_parents(runs: Path, jobs: Iterable[Job], code: str | None = None) -> dict[str, str]:
    """Return id -> name of the parents whose weights are gone although an unfinished job starts from them."""
    standings = Standings(runs, code)
    names: dict[str, str] = {}
    for job in jobs:
        standing = job.standing(standings)
        if standing.is_pending and standing.start.kind is Kind.LOST:
            for parent_id in standing.start.lost:
                names[parent_id] = f"{job.parents[parent_id]} seed {job.config['seed']}"
    return names


def trials_to_run(runs: Path, jobs: Sequence[Job], code: str | None = None) -> list[Job]:
    standings = Standings(runs, code)
    again = lost_parents(runs, jobs, code)
    return [job for job in jobs if job.id in again or job.standing(standings).is_pending]


def reopen_lost_parents(runs: Path, jobs: Iterable[Job], code: str | None = None) -> list[str]:
    """Reopen parents whose weights are gone, and return their names. Parents that a process holds are skipped."""
    watch = lease.Watch()
    names: list[str] = []
    for key, name in lost_parents(runs, jobs, code).items():
        trial = store.trial(runs, key)
        state = trial.state()  # read once, so that `reopen` moves aside the result whose weights are gone
        is_lost = state.status == "finished" and not state.weights.exists()
        if is_lost and trial.reopen(watch, state.result):
            names.append(name)
    return names


def renewal_line(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"to train again, as the weights that others start from are gone: {listed(names)}"


ADVICE = {  # kind of failure (ablations.faults), or "broken" for a broken result -> advice; {0}: the study
    "broken": "`ablate run` or `ablate submit` trains it again",
    MEMORY: "not one image fits: free or change the GPU, then: ablate retry {0} --oom",
    INPUT: "put right what it names, then: ablate retry {0}",
    MACHINE: "look at the node, or go to another, then: ablate retry {0}",
}


def advice(kind: str, study: str) -> str:
    other = "look: ablate logs {0} --failed; changed code runs it by itself, the same after: ablate retry {0}"
    return ADVICE.get(kind, other).format(study)
