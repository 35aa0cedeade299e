"""What became of the jobs of trials that left the queue, and which of them somebody cancelled with scancel.

The mark that a cancelled share leaves on disk tells it, else SLURM's accounting. Cancelled trials stay so until `ablate
submit` hands them over again. Every other end is continued, and so is a cancellation of which SLURM keeps nothing: of a
task that waits in an array beside others, and, without accounting, of all that wait.
"""

from collections.abc import Mapping
from pathlib import Path

from ablations.cluster import submitted_arrays
from ablations.cluster.campaign import Campaign
from ablations.cluster.submitted_arrays import Handed
from results import store
from slurm.queries import queue

SECONDS = 4.0  # for the accounting's answer
MOST_NAMES = 1000  # on one command line
CANCELLED = "CANCELLED"


def fates(gone: Mapping[str, Handed], timeout: float = SECONDS) -> dict[str, str] | None:
    """Trial id -> SLURM's word of its job, as in 'TIMEOUT on node7'; None where the accounting does not tell."""
    names = sorted({name for each in gone.values() for name in each.names})[-MOST_NAMES:]
    past = queue.accounting(names, timeout=timeout)
    if past is None:
        return None
    jobs = {(job.name, job.index or 0): job for job in past}
    found = {key: job for key, each in gone.items() for name in each.names if (job := jobs.get((name, each.index)))}
    return {key: f"{job.state} on {job.node}" if job.node else job.state for key, job in found.items()}


def marked(gone: Mapping[str, Handed]) -> dict[str, str]:
    """The same of those whose share knew that it was cancelled."""
    return {key: f"{CANCELLED} by scancel" for key, each in gone.items() if each.mark.exists()}


def mark(path: Path) -> None:
    store.write_json(path, {"schema": store.SCHEMA, "when": store.now()})


def mark_own(cancelled: Campaign, share: tuple[str, ...]) -> None:
    """By a share that was cancelled; no other job has its trials while it runs."""
    own = [each for each in submitted_arrays.of_campaign(cancelled) if each.share == share]
    mark(max(own, key=lambda each: each.written).mark)


def cancelled(runs: Path) -> set[str]:
    """The trials whose newest job was cancelled. What the accounting says is marked: it forgets."""
    newest = {
        key: each for key, each in submitted_arrays.newest(runs).items() if not store.trial(runs, key).state().over
    }
    known = set(marked(newest))
    said = fates({key: each for key, each in newest.items() if key not in known}) or {}
    fresh = {key for key, fate in said.items() if is_cancelled(fate)}
    for path in {newest[key].mark for key in fresh}:
        mark(path)
    return known | fresh


def is_cancelled(fate: str) -> bool:
    return fate.startswith(CANCELLED)
