"""SLURM's answers about the trials of a run directory: which wait in its queue, and how the jobs of others ended."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ablations.cluster import arrays
from ablations.cluster.campaign import LOCAL, Campaign, campaigns
from results.store.standing import Kind, Standings
from slurm import queue
from slurm.ask import NoSlurm, Unreachable, cluster_name

QUEUE_SECONDS = 5.0  # timeout of the queue; queue and accounting together take at most 15 s
ACCOUNTING_SECONDS = 4.0  # to wait for the accounting's answer
ASK_SECONDS = 60.0  # the shortest time between queries of SLURM
MOST_ENDS = 3  # of tasks that are named one by one
CANCELLED = "cancelled by `ablate cancel`"
NOT_QUEUED = "no task is queued or runs"
SILENT_ACCOUNTING = "accounting unknown: sacct does not answer"
EXIT_CODES = {
    "0:53": "the node could not start it, perhaps because the run directory is not there",
    "126:0": "Python may not be executed there",
    "127:0": "there is no Python at this path",
    "0:9": "killed",
    "2:0": "refused: see `ablate logs`",
}


@dataclass(frozen=True)
class SlurmAnswers:
    """What SLURM says about trials and plans, or why SLURM did not answer."""

    queued: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # id of a queued trial -> state and reason
    unknown: Collection[str] = ()  # ids of submitted trials that may be queued or not
    ended: Mapping[str, str] = field(default_factory=dict)  # id of a trial no longer queued -> how its job ended
    resubmitted: Collection[str] = ()  # ids of trials that a last job in the queue will submit again
    plans: Collection[str] = ()  # names of plans that were submitted and not canceled since
    awaited_plans: Collection[str] = ()  # names of plans with a last job in the queue
    queue_unknown: str = ""  # why the queue is unknown; "" if it is known
    accounting_unknown: str = ""  # why the accounting is unknown; "" if it is known


@dataclass
class RateLimitedAsker:
    """A callable that returns SLURM's answers, and queries SLURM at most once in ASK_SECONDS."""

    runs: Path
    clock: Callable[[], float] = time.monotonic
    asked_at: float = -ASK_SECONDS
    silent_since: str = ""
    answers: SlurmAnswers = field(default_factory=SlurmAnswers)

    def __call__(self) -> SlurmAnswers:
        if self.clock() - self.asked_at < ASK_SECONDS:
            return self.answers
        self.asked_at = self.clock()
        self.answers = ask_slurm(self.runs)
        if not self.answers.queue_unknown:
            self.silent_since = ""
        else:
            self.silent_since = self.silent_since or time.strftime("%H:%M")
            why = f"{self.answers.queue_unknown} (since {self.silent_since})"
            self.answers = replace(self.answers, queue_unknown=why)
        return self.answers


def ask_slurm(runs: Path) -> SlurmAnswers:
    newest = newest_campaigns(campaign for campaign in campaigns(runs) if campaign.cluster != LOCAL)
    if not newest:
        return SlurmAnswers()
    submitted: set[str] = set()
    plans: set[str] = set()
    for trial_id, campaign in newest.items():
        if not campaign.cancelled:
            submitted.add(trial_id)
            plans.update(campaign.plans)
    try:
        tasks = arrays.queued_tasks(runs, QUEUE_SECONDS)
        this_cluster = ""
        if any(campaign.cluster for campaign in newest.values()):
            this_cluster = cluster_name(QUEUE_SECONDS)
    except (NoSlurm, Unreachable) as error:
        reason = "no SLURM on this machine" if isinstance(error, NoSlurm) else error
        why = f"{reason}: what is queued is unknown"
        return SlurmAnswers(unknown=submitted, plans=plans, queue_unknown=why)
    states = queue_states(tasks)
    last_jobs = [task.array.campaign for task in tasks if task.array.is_helper]
    continued = {campaign.folder for campaign in last_jobs}
    queued: dict[str, tuple[str, str]] = {}
    ended: dict[str, str] = {}
    unknown: set[str] = set()
    resubmitted: set[str] = set()
    endings: dict[Path, str | None] = {}
    standings = Standings(runs)
    for trial_id, campaign in newest.items():
        folder = campaign.folder
        is_elsewhere = trial_id in submitted and campaign.cluster not in ("", this_cluster)
        if is_elsewhere:
            unknown.add(trial_id)
        if folder in states:
            queued[trial_id] = states[folder]
        elif not is_elsewhere and standings.read(trial_id).kind is Kind.READY:  # its task left the queue
            if folder not in endings:
                endings[folder] = how_tasks_ended(campaign)
            ended[trial_id] = endings[folder] or NOT_QUEUED
            if trial_id in submitted and folder in continued:
                resubmitted.add(trial_id)
    queue_unknown = ""
    if unknown:
        names = sorted({newest[trial_id].cluster for trial_id in unknown})
        queue_unknown = f"submitted on cluster {', '.join(names)}: what is queued there is unknown here"
    return SlurmAnswers(
        queued=queued,
        unknown=unknown,
        ended=ended,
        resubmitted=resubmitted,
        plans=plans,
        awaited_plans={name for campaign in last_jobs for name in campaign.plans},
        queue_unknown=queue_unknown,
        accounting_unknown=SILENT_ACCOUNTING if None in endings.values() else "",
    )


def newest_campaigns(oldest_first: Iterable[Campaign]) -> dict[str, Campaign]:
    newest: dict[str, Campaign] = {}
    for campaign in oldest_first:
        if arrays.task_arrays(campaign):
            newest |= {job.id: campaign for job in campaign.jobs()}
    return newest


def queue_states(tasks: Iterable[arrays.QueuedTask]) -> dict[Path, tuple[str, str]]:
    """Return campaign's folder -> (state, reason) of its tasks: a waiting task's, or else a running one's."""
    states: dict[Path, tuple[str, str]] = {}
    for task in tasks:
        folder = task.array.campaign.folder
        if not task.array.is_helper and (task.job.is_pending or folder not in states):
            states[folder] = (task.job.state, task.job.reason)
    return states


def how_tasks_ended(campaign: Campaign) -> str | None:
    """Return how a campaign's newest tasks ended, such as 'FAILED on node7'; None if the accounting is silent."""
    if campaign.cancelled:
        return CANCELLED
    newest = arrays.task_arrays(campaign)[-1]
    if newest.cancel_mark.exists():
        return "CANCELLED by scancel"
    past = queue.accounting([newest.job_name], timeout=ACCOUNTING_SECONDS)
    if past is None:
        return None
    ends = [*dict.fromkeys(map(end_text, past))]
    more = len(ends) - MOST_ENDS
    if more > 0:
        ends = [*ends[:MOST_ENDS], f"and {more} more"]
    return "; ".join(ends) or NOT_QUEUED


def end_text(job: queue.PastJob) -> str:
    """Return how a task ended, such as 'FAILED on node7 (exit code 0:53: the node could not start it), job 12_3'."""
    text = job.state
    if job.node:
        text += f" on {job.node}"
    if job.state != "FAILED":
        return text
    code = job.exit_code
    if code in EXIT_CODES:
        code += f": {EXIT_CODES[code]}"
    return f"{text} (exit code {code}), job {queue.task_name(job)}"
