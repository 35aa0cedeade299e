"""What was handed to SLURM: for every trial the newest array that it is in, as the disk has it."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import Campaign
from ablations.execution.logs import end_of
from slurm.profiles import profile as profiles


@dataclass(frozen=True)
class Handed:
    """An element of an array, and the trials that are its share."""

    campaign: Campaign
    array: Path
    index: int
    share: tuple[str, ...]
    written: float  # when, in seconds since the epoch

    @property
    def tag(self) -> str:
        return campaigns.tag(self.array)

    @property
    def names(self) -> tuple[str, str]:
        """What its job may be called: now, and by an earlier version."""
        return profiles.job_name(self.campaign.label, self.tag), self.tag

    @property
    def mark(self) -> Path:
        """A file that says that somebody cancelled it with scancel."""
        return self.array / f"cancelled-{self.index}.json"

    @property
    def logs(self) -> list[Path]:
        """What the element's task printed, oldest first: a file each time SLURM started it under another id."""
        return sorted((self.array / "logs").glob(f"*_{self.index}_*_log.out"), key=lambda path: path.stat().st_mtime)

    def lines(self) -> list[str]:
        """What the task printed each time that it was started."""
        return [line for log in self.logs for line in end_of(log).splitlines() if line.strip()]


def of_campaign(campaign: Campaign) -> Iterator[Handed]:
    """Everything of it that was handed over and that SLURM did not refuse."""
    for array, intent in campaigns.intents(campaign.folder):
        for index, share in enumerate(intent.shares):
            yield Handed(campaign, array, index, tuple(share), intent.written)


def all_of(runs: Path) -> dict[str, list[Handed]]:
    """Trial id -> where it was handed over, oldest first."""
    elements = [each for campaign in campaigns.campaigns(runs) for each in of_campaign(campaign)]
    found: dict[str, list[Handed]] = defaultdict(list)
    for each in sorted(elements, key=lambda each: each.written):
        for key in each.share:
            found[key].append(each)
    return found


def newest(runs: Path) -> dict[str, Handed]:
    """Trial id -> where it was handed over last."""
    return {key: each[-1] for key, each in all_of(runs).items()}
