"""The tasks of a run directory that are in SLURM's queue."""

from dataclasses import dataclass
from pathlib import Path

from ablations.cluster.campaign import LAST, PREFIX, WATCH, Campaign, campaigns
from ablations.cluster.submitted_arrays import tasks_of
from slurm.queries import queue
from slurm.queries.ask import TIMEOUT
from slurm.queries.queue import QueuedJob


@dataclass(frozen=True)
class QueuedTask:
    """A task of an array in SLURM's queue.

    function: what it calls, as "module:function". share: the ids of the trials that it trains.
    """

    job: QueuedJob
    campaign: Campaign
    function: str
    share: tuple[str, ...]

    @property
    def is_last(self) -> bool:
        return self.function in (LAST, WATCH)


def queued_tasks(runs: Path, timeout: float = TIMEOUT) -> list[QueuedTask]:
    """Return the tasks of this run directory that are in SLURM's queue.

    timeout: seconds to wait for SLURM. Raises Unreachable if SLURM does not answer, NoSlurm if it is not installed.
    """
    tasks = {(task.tag, task.index): task for campaign in campaigns(runs) for task in tasks_of(campaign)}
    queued = [(job, tasks.get((job.tag, job.index or 0))) for job in queue.jobs(f"{PREFIX}:", timeout=timeout)]
    return [QueuedTask(job, task.campaign, task.function, task.share) for job, task in queued if task]
