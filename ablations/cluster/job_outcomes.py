"""Find out how jobs that left the queue ended, and which were cancelled with scancel.

A cancelled share leaves a mark on disk; otherwise SLURM's accounting says so. Cancelled trials stay cancelled until
`ablate submit` submits them again. All others are resubmitted, also after cancellations that SLURM does not record: of
one pending task of an array and, without accounting, of any pending job.
"""

from collections.abc import Mapping
from pathlib import Path

from ablations.cluster import submitted_arrays
from ablations.cluster.campaign import Campaign
from ablations.cluster.submitted_arrays import SubmittedTask
from results import store
from slurm.queries import queue

SECONDS = 4.0  # to wait for the accounting's answer
MOST_NAMES = 1000  # on one command line
CANCELLED = "CANCELLED"


def job_ends(gone: Mapping[str, SubmittedTask], timeout: float = SECONDS) -> dict[str, str] | None:
    """Return trial id -> how its job ended, as in 'TIMEOUT on node7'; None if there is no accounting."""
    names = sorted({name for each in gone.values() for name in each.names})[-MOST_NAMES:]
    past = queue.accounting(names, timeout=timeout)
    if past is None:
        return None
    jobs = {(job.name, job.index or 0): job for job in past}
    found = {key: job for key, each in gone.items() for name in each.names if (job := jobs.get((name, each.index)))}
    return {key: f"{job.state} on {job.node}" if job.node else job.state for key, job in found.items()}


def marked_cancelled(gone: Mapping[str, SubmittedTask]) -> dict[str, str]:
    """Return trial id -> 'CANCELLED by scancel' for the shares that left a mark."""
    return {key: f"{CANCELLED} by scancel" for key, each in gone.items() if each.mark.exists()}


def write_mark(path: Path) -> None:
    store.write_json(path, {"schema": store.SCHEMA, "when": store.now()})


def mark_own_share(cancelled: Campaign, share: tuple[str, ...]) -> None:
    """Mark the cancelled share that this process runs."""
    own = [each for each in submitted_arrays.tasks_of(cancelled) if each.share == share]
    write_mark(max(own, key=lambda each: each.written).mark)


def cancelled_trials(runs: Path) -> set[str]:
    """Return the ids of trials whose newest job was cancelled.

    Cancellations known from the accounting are marked on disk, because the accounting forgets them.
    """
    newest = {
        key: each
        for key, each in submitted_arrays.newest_tasks(runs).items()
        if not store.trial(runs, key).state().over
    }
    known = set(marked_cancelled(newest))
    said = job_ends({key: each for key, each in newest.items() if key not in known}) or {}
    fresh = {key for key, fate in said.items() if is_cancelled(fate)}
    for path in {newest[key].mark for key in fresh}:
        write_mark(path)
    return known | fresh


def is_cancelled(fate: str) -> bool:
    return fate.startswith(CANCELLED)
