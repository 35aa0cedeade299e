"""The last jobs of a campaign, which submit missing trials or write the report.

The last job starts once all shares (ablations.cluster.shares) have ended. The watching job does the same work after a
delay, even if shares still run.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter

from ablations.cluster.array_tasks import QueuedTask, queued_tasks
from ablations.cluster.campaign import LAST, SHARE, WATCH, Campaign, launcher_lock, read_intents
from ablations.cluster.shares import send, start_condition
from ablations.execution.retry import trials_to_run
from slurm.queries import queue
from slurm.queries.ask import Refused, Unreachable
from slurm.submission import arrays as submission
from slurm.submission.intent import was_taken

WATCH_SECONDS = 1800  # the watching job begins after this time, or after the time limit if that is shorter
PATIENCE_SECONDS = 20.0  # how long a share waits for the lock to submit last jobs


def waiting_last_jobs(campaign: Campaign, tasks: Sequence[QueuedTask]) -> list[QueuedTask]:
    """Return the pending last and watching jobs of a campaign.

    Running jobs are left out, because they miss trials that appear after their search for unfinished trials.
    """
    return [task for task in tasks if task.is_last and task.campaign == campaign and task.job.is_pending]


def ensure_last_job(
    campaign: Campaign, tasks: Sequence[QueuedTask], sent: Sequence[int] = (), both: bool = False
) -> str:
    """Make a last job wait for all other jobs, and submit one if no last or watching job is pending.

    Returns "queued" if a last or watching job was pending, else "submitted". tasks: the tasks in the queue. sent: job
    ids of arrays that were submitted just now. both: submit whichever of the last and the watching job is missing. Both
    are needed because the last job may be killed, or wait for a held task. Raises NoSlurm, Refused or Unreachable.
    """
    before = [*dict.fromkeys([*(task.job.job_id for task in tasks if not task.is_last), *sent])]
    waiting = waiting_last_jobs(campaign, tasks)
    watched = any(task.function == WATCH for task in waiting)
    mine = [task.job.job_id for task in waiting if task.function == LAST]
    there = any([not before or queue.postpone(job_id, before) for job_id in mine])
    if not there and (both or not watched):
        submit_one(campaign, LAST, start_condition(before))
    if both and not watched:
        submit_one(campaign, WATCH, {"begin": f"now+{min(campaign.profile.seconds, WATCH_SECONDS)}"})
    return "queued" if there or watched else "submitted"


def submit_one(campaign: Campaign, function: str, when: Mapping[str, str]) -> None:
    send(campaign, task(campaign, function), gpus=False, when=when)


def task(campaign: Campaign, function: str) -> submission.Tasks:
    return submission.Tasks(function, [str(campaign.folder)], [[]], persistent=True)


def ensure_last_jobs_from_share(campaign: Campaign, begins: bool = False) -> None:
    """Submit whichever of the last and the watching job is missing, if trials are left. Called by a share.

    Jobs that SLURM holds are released. begins: whether the share has just begun. If so, does nothing if last jobs on
    disk are newer than the newest shares. Does nothing for a cancelled campaign. Raises NoSlurm, Refused, Unreachable,
    or TimeoutError if the lock for submitting is not free within PATIENCE_SECONDS.
    """
    if campaign.cancelled or (begins and has_newer_last_jobs(campaign)):
        return
    tasks = queued_tasks(campaign.runs)
    queue.release(task.job for task in tasks)
    if {task.function for task in waiting_last_jobs(campaign, tasks)} == {LAST, WATCH}:
        return
    if not trials_to_run(campaign.runs, campaign.jobs(), campaign.place.code):
        return
    with launcher_lock(campaign.runs, PATIENCE_SECONDS):
        ensure_last_job(campaign, queued_tasks(campaign.runs), both=True)


def has_newer_last_jobs(campaign: Campaign) -> bool:
    """Return whether, by the records on disk, a last and a watching job were submitted after the newest shares."""
    arrays = sorted(read_intents(campaign.folder), key=itemgetter(0))
    functions = [intent.function for array, intent in arrays if was_taken(array)]
    newest = max((number for number, function in enumerate(functions) if function == SHARE), default=-1)
    return {LAST, WATCH} <= {*functions[newest + 1 :]}


def has_queued_shares(campaign: Campaign) -> bool:
    return any(task.share for task in queued_tasks(campaign.runs) if task.campaign == campaign)


def cancel_last_jobs(campaign: Campaign) -> None:
    """Try to cancel the pending last and watching jobs. A job that remains finds nothing to do. Raises NoSlurm."""
    with suppress(Unreachable, Refused):
        for task in waiting_last_jobs(campaign, queued_tasks(campaign.runs)):
            queue.cancel(task.job.tag)
