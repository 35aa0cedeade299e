"""The array tasks that were submitted for each trial: on disk, in SLURM's queue, and after they left it.

A share is the list of trials that one task of a job array trains. A task that scancel stops leaves a mark on disk.
SLURM's accounting shows other cancellations. Cancelled trials wait for `ablate submit`. All other unfinished trials are
submitted again. SLURM does not record the cancellation of a single pending task of an array. The trials of such
a task are submitted again too. Without accounting, so are the trials of every cancelled pending job.

Functions that read campaigns raise ValueError if a file of a campaign is not valid.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import LAST, PREFIX, WATCH, Campaign, write_mark
from ablations.reporting.output import log_end
from results import store
from slurm.profiles import profile as profiles
from slurm.queries import queue
from slurm.queries.ask import TIMEOUT
from slurm.submission.intent import was_taken

ACCOUNTING_SECONDS = 4.0  # to wait for the accounting's answer
MOST_NAMES = 1000  # maximum job names on one command line
CANCELLED = "CANCELLED"


@dataclass(frozen=True)
class SubmittedTask:
    """A task of a submitted job array."""

    campaign: Campaign
    function: str  # the function that the task calls, as "module:function"
    array: Path  # the array's folder
    index: int
    share: tuple[str, ...]  # ids of the trials that the task trains; () for last jobs
    written: float  # time of submission, in seconds since the epoch

    @property
    def tag(self) -> str:
        return campaigns.tag(self.array)

    @property
    def job_name(self) -> str:
        return profiles.job_name(self.campaign.label, self.tag)

    @property
    def cancel_mark(self) -> Path:
        """The file that exists if the task was cancelled with scancel."""
        return self.array / f"cancelled-{self.index}.json"

    @property
    def is_last(self) -> bool:
        return self.function in (LAST, WATCH)

    def log_lines(self) -> list[str]:
        """Return the non-empty lines in the last MiB of each log of the task, oldest log first. Raises OSError."""
        logs = sorted((self.array / "logs").glob(f"*_{self.index}_*_log.out"), key=lambda path: path.stat().st_mtime)
        return [line for log in logs for line in log_end(log).splitlines() if line.strip()]


@dataclass(frozen=True)
class QueuedTask(SubmittedTask):
    job: queue.QueuedJob


def campaign_tasks(campaign: Campaign) -> Iterator[SubmittedTask]:
    """Yield the tasks of a campaign's arrays, except arrays that SLURM refused."""
    for array, intent in campaigns.read_intents(campaign.folder):
        for index, share in enumerate(intent.shares):
            yield SubmittedTask(campaign, intent.function, array, index, tuple(share), intent.written)


def acknowledged_trials(campaign: Campaign) -> set[str]:
    """Return the ids of the trials in the arrays that SLURM has confirmed."""
    return {key for task in campaign_tasks(campaign) if was_taken(task.array) for key in task.share}


def submitted_tasks(runs: Path) -> dict[str, list[SubmittedTask]]:
    """Return trial id -> the tasks submitted for the trial, oldest first."""
    tasks = [task for campaign in campaigns.campaigns(runs) for task in campaign_tasks(campaign)]
    found: dict[str, list[SubmittedTask]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.written):
        for key in task.share:
            found[key].append(task)
    return found


def newest_tasks(runs: Path) -> dict[str, SubmittedTask]:
    """Return trial id -> the newest task submitted for the trial."""
    return {key: tasks[-1] for key, tasks in submitted_tasks(runs).items()}


def queued_tasks(runs: Path, timeout: float = TIMEOUT) -> list[QueuedTask]:
    """Return the tasks of this run directory that are in SLURM's queue. Raises the errors of queue.jobs."""
    tasks = {
        (task.tag, task.index): task for campaign in campaigns.campaigns(runs) for task in campaign_tasks(campaign)
    }
    queued = [(job, tasks.get((job.tag, job.index or 0))) for job in queue.jobs(f"{PREFIX}:", timeout=timeout)]
    return [QueuedTask(**vars(task), job=job) for job, task in queued if task]


def job_ends(gone: Mapping[str, SubmittedTask]) -> dict[str, str] | None:
    """Return trial id -> how its job ended, such as 'TIMEOUT on node7'. Jobs without a record are left out.

    gone: trial id -> its task, for jobs that left the queue. Returns None if the accounting does not answer.
    """
    names = sorted({each.job_name for each in gone.values()})[-MOST_NAMES:]
    if (past := queue.accounting(names, timeout=ACCOUNTING_SECONDS)) is None:
        return None
    jobs = {(job.name, job.index or 0): job for job in past}
    found = {key: job for key, each in gone.items() if (job := jobs.get((each.job_name, each.index)))}
    return {key: f"{job.state} on {job.node}" if job.node else job.state for key, job in found.items()}


def marked_cancelled(gone: Mapping[str, SubmittedTask]) -> dict[str, str]:
    """Return trial id -> 'CANCELLED by scancel' for the tasks in `gone` that are marked as cancelled on disk."""
    return {key: f"{CANCELLED} by scancel" for key, each in gone.items() if each.cancel_mark.exists()}


def cancelled_trials(runs: Path) -> set[str]:
    """Return the ids of trials that are not over and whose newest job was cancelled.

    Cancellations that the accounting shows are also marked on disk, because the accounting forgets them.
    """
    tasks = newest_tasks(runs)
    newest = {key: task for key, task in tasks.items() if not store.trial(runs, key).state().is_over}
    known = set(marked_cancelled(newest))
    ends = job_ends({key: task for key, task in newest.items() if key not in known}) or {}
    fresh = {key for key, end in ends.items() if is_cancellation(end)}
    for path in {newest[key].cancel_mark for key in fresh}:
        write_mark(path)
    return known | fresh


def is_cancellation(end: str) -> bool:
    return end.startswith(CANCELLED)
