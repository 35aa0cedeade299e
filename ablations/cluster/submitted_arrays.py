"""The array tasks that were submitted for each trial, read from disk."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import Campaign
from ablations.reporting.logs import end_of
from slurm.profiles import profile as profiles
from slurm.submission.intent import was_taken


@dataclass(frozen=True)
class SubmittedTask:
    """A task of a submitted job array: the array's folder, its index, and the ids of the trials that it trains.

    function: what it calls, as "module:function".
    """

    campaign: Campaign
    function: str
    array: Path
    index: int
    share: tuple[str, ...]
    written: float  # seconds since the epoch

    @property
    def tag(self) -> str:
        return campaigns.tag(self.array)

    @property
    def names(self) -> tuple[str, str]:
        """The job names of the task in this version and in earlier versions."""
        return profiles.job_name(self.campaign.label, self.tag), self.tag

    @property
    def mark(self) -> Path:
        """The file that exists if the task was cancelled with scancel."""
        return self.array / f"cancelled-{self.index}.json"

    @property
    def logs(self) -> list[Path]:
        """The task's log files, oldest first. SLURM writes one at each start of the task."""
        return sorted((self.array / "logs").glob(f"*_{self.index}_*_log.out"), key=lambda path: path.stat().st_mtime)

    def lines(self) -> list[str]:
        """Return the non-empty lines at the ends of all log files."""
        return [line for log in self.logs for line in end_of(log).splitlines() if line.strip()]


def tasks_of(campaign: Campaign) -> Iterator[SubmittedTask]:
    """Yield the tasks of a campaign's arrays, except arrays that SLURM refused."""
    for array, intent in campaigns.read_intents(campaign.folder):
        for index, share in enumerate(intent.shares):
            yield SubmittedTask(campaign, intent.function, array, index, tuple(share), intent.written)


def acknowledged_trials(campaign: Campaign) -> set[str]:
    """Return the ids of the trials in the arrays that SLURM has confirmed."""
    return {key for task in tasks_of(campaign) if was_taken(task.array) for key in task.share}


def submitted_tasks(runs: Path) -> dict[str, list[SubmittedTask]]:
    """Return trial id -> the tasks that were submitted for it, oldest first."""
    tasks = [task for campaign in campaigns.campaigns(runs) for task in tasks_of(campaign)]
    found: dict[str, list[SubmittedTask]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.written):
        for key in task.share:
            found[key].append(task)
    return found


def newest_tasks(runs: Path) -> dict[str, SubmittedTask]:
    """Return trial id -> the task that was submitted for it last."""
    return {key: tasks[-1] for key, tasks in submitted_tasks(runs).items()}
