"""What was handed to SLURM: for every trial the newest array that it is in, as the disk has it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ablations import campaign as campaigns
from ablations.campaign import Campaign
from slurm import submission


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
    def logs(self) -> list[Path]:
        """What the element's task printed, oldest first: a file each time SLURM started it under another id."""
        return sorted((self.array / "logs").glob(f"*_{self.index}_*_log.out"), key=lambda path: path.stat().st_mtime)


def elements(runs: Path) -> Iterator[Handed]:
    """Everything that was handed over from this run directory and that SLURM did not refuse."""
    for campaign in campaigns.campaigns(runs):
        for array in (campaign.folder / "arrays").glob("*"):
            try:
                intent = submission.read(array)
            except FileNotFoundError:  # refused, or still being written
                continue
            for index, share in enumerate(intent["shares"]):
                yield Handed(campaign, array, index, tuple(share), intent["written"])


def newest(runs: Path) -> dict[str, Handed]:
    """Trial id -> where it was handed over last."""
    return {key: each for each in sorted(elements(runs), key=lambda each: each.written) for key in each.share}
