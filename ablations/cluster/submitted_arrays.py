"""The array tasks that were submitted for each trial, read from the disk."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import Campaign
from ablations.reporting.logs import end_of
from slurm.profiles import profile as profiles


@dataclass(frozen=True)
class SubmittedTask:
    """A task of an array, with the ids of the trials in its share."""

    campaign: Campaign
    array: Path
    index: int
    share: tuple[str, ...]
    written: float  # seconds since the epoch

    @property
    def tag(self) -> str:
        return campaigns.tag(self.array)

    @property
    def names(self) -> tuple[str, str]:
        """The job names that this version and earlier ones give to the task."""
        return profiles.job_name(self.campaign.label, self.tag), self.tag

    @property
    def mark(self) -> Path:
        """The file that marks the task as cancelled with scancel."""
        return self.array / f"cancelled-{self.index}.json"

    @property
    def logs(self) -> list[Path]:
        """The task's logs, oldest first, one for each start by SLURM."""
        return sorted((self.array / "logs").glob(f"*_{self.index}_*_log.out"), key=lambda path: path.stat().st_mtime)

    def lines(self) -> list[str]:
        """Return the non-empty lines of all logs."""
        return [line for log in self.logs for line in end_of(log).splitlines() if line.strip()]


def tasks_of(campaign: Campaign) -> Iterator[SubmittedTask]:
    """Yield the tasks of a campaign that SLURM did not refuse."""
    for array, intent in campaigns.read_intents(campaign.folder):
        for index, share in enumerate(intent.shares):
            yield SubmittedTask(campaign, array, index, tuple(share), intent.written)


def submitted_tasks(runs: Path) -> dict[str, list[SubmittedTask]]:
    """Return trial id -> its tasks, oldest first."""
    tasks = [task for campaign in campaigns.campaigns(runs) for task in tasks_of(campaign)]
    found: dict[str, list[SubmittedTask]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.written):
        for key in task.share:
            found[key].append(task)
    return found


def newest_tasks(runs: Path) -> dict[str, SubmittedTask]:
    """Return trial id -> its newest task."""
    return {key: tasks[-1] for key, tasks in submitted_tasks(runs).items()}
