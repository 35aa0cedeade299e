"""The logs that `ablate logs` shows: the end of each trial's newest log, with the traceback of a failure.

For a trial that never began or was interrupted, the log of its SLURM task says what killed the task.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ablations.cluster.arrays import task_arrays
from ablations.cluster.campaign import Campaign, campaigns
from ablations.jobs import jobs
from ablations.output import log_end
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
        task = ", its task:" if self.of == "task" else ""
        which = f" (newer tasks that printed nothing: {self.silent_after})" if self.silent_after else ""
        return "\n".join([f"== {self.trial}  {name}  {self.status}{task}  {self.path}{which}", *self.lines])


def tails(runs: Path, ids: Sequence[str], lines: int, only_failed: bool) -> Iterator[Tail]:
    """Yield the last `lines` lines of each trial's logs. The log of a submission's tasks is yielded once.

    only_failed: whether to leave out trials that did not fail. Raises ValueError if a submission is damaged or a trial
    too new, and OSError if a log is unreadable.
    """
    names = {job.id: (job.arm, int(job.config["seed"])) for job in jobs(store.read_plans(runs).readable)}
    arrays = [array for one in campaigns(runs) for array in task_arrays(one)]
    of = {job.id: array.campaign for array in arrays for job in array.campaign.jobs()}  # the newest campaign of each
    told: set[Path] = set()
    for key in ids:
        trial = store.trial(runs, key)
        state = trial.state()
        stopped = state.status in ("missing", "interrupted") and key in of
        if only_failed and state.status != "failed" and not (stopped and died_early(of[key])):
            continue
        arm, seed = names.get(key, (None, None))
        if state.attempt is not None:
            failure = trial.failure()
            text = log_end(state.attempt / "log") + (failure.traceback if failure else "")
            yield Tail(key, arm, seed, state.status, str(state.attempt), text.splitlines()[-lines:])
        if stopped:
            own = [array for array in arrays if array.campaign == of[key]]
            later = next((after for after, array in enumerate(reversed(own)) if array.log_lines()), 0)
            array = own[-1 - later]  # the newest whose tasks printed anything, else the newest
            if array.folder not in told:
                told.add(array.folder)
                printed = (array.log_lines() or [NO_LOG])[-lines:]
                yield Tail(key, arm, seed, state.status, str(array.folder), printed, "task", later)


def died_early(campaign: Campaign) -> bool:
    """Return whether tasks of a campaign's newest array printed something and ended before they looked for a trial."""
    newest = task_arrays(campaign)[-1]
    return bool(newest.log_lines()) and not (newest.folder / "nodes").exists()
