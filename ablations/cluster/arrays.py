"""The job arrays of a campaign: tasks, which pull trials, and two helper jobs.

arrays/000k/intent.json      what each task calls; written before sbatch is called
arrays/000k/refused.json     the renamed intent.json of an array that SLURM refused
arrays/000k/script.sh        the script passed to sbatch
arrays/000k/logs/            output of the tasks
arrays/000k/lease.json       the process of a task on this machine (`--profile local`)
arrays/000k/nodes/<node>     present if a task has begun on the node
arrays/000k/cancelled.json   present if scancel ended a task
"""

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import PREFIX, Campaign
from ablations.execution.retry_rules import failed_node, read_or_none
from ablations.faults import MACHINE
from ablations.output import log_end
from results import store
from results.store import eval_files
from results.store.schemas.submissions import GaveUp, Intent
from results.store.schemas.trials import Environment, Failure, Result
from slurm import arrays as slurm_arrays
from slurm import queue
from slurm.arrays import JobArray, job_name
from slurm.ask import TIMEOUT, Refused

WORK, LAST = "ablations.cluster.node:work", "ablations.cluster.node:last"
HERE = "ablations.cluster.node:here"  # both, on this machine
WATCH = "ablations.cluster.node:watch"  # like LAST, but begins at a time: LAST waits forever for a held task
HELPERS = frozenset({LAST, WATCH})
FAULTS = 2  # of attempts on a node, before the node is avoided
DAY = 24 * 3600.0  # older faults do not count, so that a repaired node is used again
ROUNDS = 5  # without progress, before a campaign gives up
NODE_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class SubmittedArray:
    """A submitted job array: the tasks of a round, or one helper job."""

    campaign: Campaign
    folder: Path
    intent: Intent

    @property
    def is_helper(self) -> bool:
        return self.intent.function in HELPERS

    @property
    def age(self) -> float:
        return time.time() - self.intent.written

    @property
    def job_name(self) -> str:
        return job_name(self.campaign.label, campaigns.tag(self.folder))

    @property
    def cancel_mark(self) -> Path:
        return self.folder / "cancelled.json"


@dataclass(frozen=True)
class QueuedTask:
    array: SubmittedArray
    job: queue.QueuedJob


def log_lines(folder: Path) -> list[str]:
    """Return the non-empty lines in the last MiB of each log of an array, oldest log first. Raises OSError."""
    logs = sorted((folder / "logs").glob("*_log.out"), key=lambda path: path.stat().st_mtime)
    lines = "\n".join(map(log_end, logs)).splitlines()
    return [line for line in lines if line.strip()]


def submitted_arrays(campaign: Campaign) -> list[SubmittedArray]:
    """Return a campaign's arrays in their order, except arrays that SLURM refused."""
    arrays = []
    for folder in store.sorted_paths(campaign.folder / "arrays"):
        with suppress(FileNotFoundError):  # refused just now, or still being written
            arrays.append(SubmittedArray(campaign, folder, campaigns.read_checked(folder / "intent.json", Intent)))
    return arrays


def task_arrays(campaign: Campaign) -> list[SubmittedArray]:
    return [array for array in submitted_arrays(campaign) if not array.is_helper]


def earlier_arrays(campaign: Campaign) -> list[SubmittedArray]:
    """Return the arrays that were submitted to the same cluster for the same arms and plans, oldest first."""
    submitted: list[SubmittedArray] = []
    for other in campaigns.campaigns(campaign.runs):
        has_same_trials = (other.plans, other.arms) == (campaign.plans, campaign.arms)
        if has_same_trials and other.cluster in ("", campaign.cluster) and not other.cancelled:
            submitted += task_arrays(other)
    return sorted(submitted, key=lambda array: array.intent.written)


def queued_tasks(runs: Path, timeout: float = TIMEOUT) -> list[QueuedTask]:
    """Return the tasks and helper jobs of a run directory's campaigns that are in SLURM's queue, whoever owns them."""
    tagged: dict[str, SubmittedArray] = {}
    users: set[int] = set()
    for campaign in campaigns.campaigns(runs):
        users.add(campaign.owner)
        tagged |= {campaigns.tag(array.folder): array for array in submitted_arrays(campaign)}
    if not tagged:
        return []
    queued = queue.jobs(f"{PREFIX}:", timeout=timeout, users=users)
    return [QueuedTask(tagged[job.tag], job) for job in queued if job.tag in tagged]


def job_array(campaign: Campaign, function: str, when: Mapping[str, str], number: int = 0) -> JobArray:
    """Return an array of one task, which calls `function` with its folder. number: in the campaign; 0 for the next."""
    folder = campaign.folder / "arrays"
    folder /= f"{number or len(list(folder.glob('*'))) + 1:04d}"
    tag, code, label = campaigns.tag(folder), campaign.code, campaign.label
    array = JobArray(folder, tag, function, [str(folder)], campaign.profile, code, label, when=when)
    if function in HELPERS:
        return replace(array, profile=campaign.profile.helper_profile, persistent=True)
    return array


def send(array: JobArray, progress: Sequence[int] = ()) -> int:
    """Write the intent of an array, submit it and return its job id. Raises the errors of `slurm.arrays.submit`."""
    slurm_arrays.script(array)  # raises for a wrong name before anything is written
    write_intent(array, progress)
    try:
        return slurm_arrays.submit(array)
    except Refused:
        os.rename(array.folder / "intent.json", array.folder / "refused.json")
        raise


def write_intent(array: JobArray, progress: Sequence[int] = ()) -> None:
    array.folder.mkdir(parents=True)
    content = {"tag": array.tag, "function": array.function, "written": time.time(), "progress": list(progress)}
    store.write_json(array.folder / "intent.json", {"schema": store.SCHEMA, **content})


# -- campaigns that go nowhere -----------------------------------------------------------------------------------------


def progress(campaign: Campaign) -> list[int]:
    """Return three counts: trials that are over, their computed or failed evals, and the steps of all other trials."""
    over = evals = steps = 0
    for job in campaign.jobs():
        trial = store.trial(campaign.runs, job.id, campaign.place.checkpoints)
        if trial.state().is_over:
            over += 1
            evals += len(eval_files.eval_names(trial))
        else:
            steps += trial.latest_step()
    return [over, evals, steps]


def is_stalled(campaign: Campaign) -> bool:
    """Return whether last jobs submitted the newest ROUNDS arrays, and no result, eval or step changed since."""
    newest = task_arrays(campaign)[-ROUNDS:]
    now = progress(campaign)
    return len(newest) == ROUNDS and all(array.intent.progress == now for array in newest)


def give_up(campaign: Campaign) -> str:
    """Record on disk that the campaign gave up, and return the message that `ablate status` will show."""
    message = f"given up after {ROUNDS} rounds without progress"
    for array in reversed(task_arrays(campaign)):
        lines = log_lines(array.folder)
        if lines:
            message += f"; the newest task's log ends with: {lines[-1].strip()}"
            break
    content = {"schema": store.SCHEMA, "when": store.timestamp(), "said": message}
    store.write_json(campaign.folder / "gave-up.json", content)
    return message


def give_up_message(runs: Path, plan_name: str) -> str:
    """Return why the newest uncancelled campaign of a plan gave up; "" if it did not."""
    message = ""
    for campaign in campaigns.campaigns(runs):
        if plan_name in campaign.plans and not campaign.cancelled:
            record = read_or_none(campaign.folder / "gave-up.json", GaveUp)
            message = ""
            if record:
                message = record.said
    return message


# -- nodes to avoid ----------------------------------------------------------------------------------------------------


def nodes_to_avoid(trials: Iterable[store.Trial]) -> list[str]:
    """Return the nodes whose hardware or drivers ended FAULTS attempts within a day.

    A killed worker does not count, because preemption looks like a kill.
    """
    counts: Counter[str] = Counter()
    for trial in trials:
        for attempt in trial.attempts():
            if time.time() - attempt.stat().st_mtime > DAY:
                continue
            failure = read_or_none(attempt / "failure.json", Failure)
            result = read_or_none(attempt / "result.json", Result)
            if (failure and failure.kind == MACHINE) or (result and result.suspect_hardware is not None):
                counts[failed_node(failure, read_or_none(attempt / "env.json", Environment))] += 1
    return sorted(node for node in counts if counts[node] >= FAULTS and NODE_NAME.fullmatch(node))


def silent_nodes(arrays: Sequence[SubmittedArray]) -> list[str]:
    """Return the nodes on which tasks failed within a day, but none began: the run directory may be missing there."""
    names: set[str] = set()
    began: set[str] = set()
    for array in arrays:
        if array.age < DAY:
            names.add(array.job_name)
            began.update(path.name for path in (array.folder / "nodes").glob("*"))
    past = queue.accounting(names) or []
    failed = {job.node for job in past if job.state in ("FAILED", "NODE_FAIL")}
    return sorted(node for node in failed - began if NODE_NAME.fullmatch(node))
