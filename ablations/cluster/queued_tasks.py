"""The tasks of a run directory that are in SLURM's queue."""

from dataclasses import dataclass
from pathlib import Path

from ablations.cluster.campaign import LAST, PREFIX, WATCH, Campaign, campaigns, read_intents, tag
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
    known = {
        tag(array): (campaign, intent)
        for campaign in campaigns(runs)
        for array, intent in read_intents(campaign.folder)
    }
    found = []
    for job in queue.jobs(f"{PREFIX}:", timeout=timeout):
        if job.tag in known:
            campaign, intent = known[job.tag]
            share = intent.shares[job.index or 0]
            found.append(QueuedTask(job, campaign, intent.function, tuple(share)))
    return found
