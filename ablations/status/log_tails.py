"""The logs that `ablate logs` shows: the end of each trial's newest log, with the traceback of a failure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ablations.cluster.arrays import SubmittedArray, task_arrays
from ablations.cluster.campaign import Campaign, campaigns
from ablations.jobs import jobs
from ablations.output import log_end
from ablations.status.slurm_answers import newest_campaigns
from results import store

NO_LOG = "no log yet: its job has not started, or ended before it could write (`ablate status`)"


@dataclass(frozen=True)
class Tail:
    """The last lines of the log of an attempt or of a SLURM task."""

    trial: str
    arm: str | None  # None if the trial is in no plan
    seed: int | None
    status: str
    path: str  # the folder of the attempt or the array
    lines: list[str]
    of: Literal["attempt", "task"] = "attempt"
    silent_after: int = 0  # the number of newer tasks that printed nothing

    def __str__(self) -> str:
        name = "" if self.arm is None else f"{self.arm} seed {self.seed}"
        heading = f"== {self.trial}  {name}  {self.status}"
        if self.of == "task":
            heading += ", its task:"
        heading += f"  {self.path}"
        if self.silent_after:
            heading += f" (newer tasks that printed nothing: {self.silent_after})"
        return "\n".join([heading, *self.lines])


def tails(runs: Path, trial_ids: Sequence[str], lines: int, only_failed: bool) -> Iterator[Tail]:
    """Yield the last `lines` lines of each trial's logs. The log of a submission's tasks is yielded once."""
    planned = {job.id: job for job in jobs(store.read_plans(runs).readable)}
    campaign_of = newest_campaigns(campaigns(runs))
    shown_arrays: set[Path] = set()
    for trial_id in trial_ids:
        trial = store.trial(runs, trial_id)
        state = trial.state()
        campaign = campaign_of.get(trial_id)
        if state.status not in ("missing", "interrupted"):
            campaign = None  # the trial's own log says what happened
        if only_failed and state.status != "failed" and not (campaign and died_early(campaign)):
            continue
        arm = seed = None
        if trial_id in planned:
            arm = planned[trial_id].arm
            seed = int(planned[trial_id].config["seed"])
        if state.attempt is not None:
            text = log_end(state.attempt / "log")
            failure = trial.failure()
            if failure:
                text += failure.traceback
            yield Tail(trial_id, arm, seed, state.status, str(state.attempt), text.splitlines()[-lines:])
        if campaign:
            array, silent = newest_array_with_output(campaign)
            if array.folder not in shown_arrays:
                shown_arrays.add(array.folder)
                printed = (array.log_lines() or [NO_LOG])[-lines:]
                yield Tail(trial_id, arm, seed, state.status, str(array.folder), printed, "task", silent)


def newest_array_with_output(campaign: Campaign) -> tuple[SubmittedArray, int]:
    """Return (the newest array whose tasks printed anything, else the newest; the number of newer arrays)."""
    newest_first = task_arrays(campaign)[::-1]
    for newer, array in enumerate(newest_first):
        if array.log_lines():
            return array, newer
    return newest_first[0], 0


def died_early(campaign: Campaign) -> bool:
    newest = task_arrays(campaign)[-1]
    return bool(newest.log_lines()) and not (newest.folder / "nodes").exists()
