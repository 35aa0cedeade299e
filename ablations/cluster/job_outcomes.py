"""The outcomes of jobs that left the queue, including cancellation with scancel.

A share is the list of trials that one task of a job array trains. A share that scancel stops leaves a mark on disk.
SLURM's accounting shows other cancellations. Cancelled trials wait for `ablate submit`. All other trials are submitted
again. SLURM does not record that a single pending task of an array was cancelled, so the trials of such a task are
submitted again too. Without accounting, this holds for every pending job.
"""

from collections.abc import Mapping
from pathlib import Path

from ablations.cluster import submitted_arrays
from ablations.cluster.campaign import Campaign, write_mark
from ablations.cluster.submitted_arrays import SubmittedTask
from results import store
from slurm.queries import queue

SECONDS = 4.0  # to wait for the accounting's answer
MOST_NAMES = 1000  # on one command line
CANCELLED = "CANCELLED"


def job_ends(gone: Mapping[str, SubmittedTask], timeout: float = SECONDS) -> dict[str, str] | None:
    """Return trial id -> how its job ended, as in 'TIMEOUT on node7'; None if the accounting does not answer.

    Trials without a record in the accounting are left out. gone: trial id -> its task, for jobs that left the queue.
    timeout: seconds to wait for the accounting.
    """
    names = sorted({name for each in gone.values() for name in each.names})[-MOST_NAMES:]
    past = queue.accounting(names, timeout=timeout)
    if past is None:
        return None
    jobs = {(job.name, job.index or 0): job for job in past}
    found = {key: job for key, each in gone.items() for name in each.names if (job := jobs.get((name, each.index)))}
    return {key: f"{job.state} on {job.node}" if job.node else job.state for key, job in found.items()}


def marked_cancelled(gone: Mapping[str, SubmittedTask]) -> dict[str, str]:
    """Return trial id -> 'CANCELLED by scancel' for the tasks in `gone` that are marked as cancelled on disk."""
    return {key: f"{CANCELLED} by scancel" for key, each in gone.items() if each.mark.exists()}


def mark_own_share(cancelled: Campaign, share: tuple[str, ...]) -> None:
    """Mark the task of this process, which trains the trials `share`, as cancelled with scancel."""
    own = [each for each in submitted_arrays.tasks_of(cancelled) if each.share == share]
    write_mark(max(own, key=lambda each: each.written).mark)


def cancelled_trials(runs: Path) -> set[str]:
    """Return the ids of trials that are not over and whose newest job was cancelled.

    Cancellations that the accounting shows are also marked on disk, because the accounting forgets them.
    """
    tasks = submitted_arrays.newest_tasks(runs)
    newest = {key: task for key, task in tasks.items() if not store.trial(runs, key).state().over}
    known = set(marked_cancelled(newest))
    ends = job_ends({key: task for key, task in newest.items() if key not in known}) or {}
    fresh = {key for key, end in ends.items() if is_cancelled(end)}
    for path in {newest[key].mark for key in fresh}:
        write_mark(path)
    return known | fresh


def is_cancelled(end: str) -> bool:
    return end.startswith(CANCELLED)
