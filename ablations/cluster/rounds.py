"""The rounds of a campaign: an array of equal tasks, a last job after them, and a job that watches.

Each task is a pool of workers that takes the next unclaimed trial from disk (ablations.execution.runner.pull). So the
queue is only asked how many tasks are there. A wrong answer costs tasks that end at once, and at most MOST_ARRAYS
arrays an hour.
"""

import math
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ablations.cluster import arrays
from ablations.cluster import campaign as campaigns
from ablations.cluster.arrays import HELPERS, LAST, WATCH, WORK, QueuedTask
from ablations.cluster.campaign import Campaign, device
from ablations.execution import reopen
from ablations.execution.launch import Place
from ablations.execution.race import open_jobs
from ablations.jobs import Job
from ablations.planning import estimate
from results import store
from results.store.standing import Kind, Standing, Standings
from slurm import queue
from slurm.ask import Refused, Unreachable
from slurm.profile import Profile

MOST_ARRAYS, HOUR = 20, 3600.0  # arrays of tasks that one submission may send within an hour
MOST_TASKS = 1000  # in an array
SETTLE_SECONDS = 90.0  # until squeue must show a new job: it may answer from a cache
WATCH_SECONDS = 1800  # the watching job begins after this time, or after the time limit if that is shorter
TOO_MANY = re.compile(f"{queue.FULL.pattern}|Invalid job array specification")  # refusals of the number of tasks


@dataclass(frozen=True)
class Round:
    """What a look at disk and queue found and submitted. Integers count trials, unless a comment says otherwise."""

    over: int
    failed: int
    blocked: int = 0  # the parent failed or diverged
    left: int = 0  # to train, or being trained
    queued: int = 0  # tasks in the queue before
    submitted: int = 0  # tasks
    is_cancelled: bool = False  # whether scancel ended a task of the newest array: only `ablate submit` goes on
    hours: float = 0.0  # GPU- or core-hours of the trials that are left
    avoided: tuple[str, ...] = ()  # names of nodes that are avoided after faults
    renewed: tuple[str, ...] = ()  # names of parents to train again because their weights are gone
    no_last_job: str = ""  # why SLURM accepted the tasks but no last job
    given_up: str = ""  # why the campaign submits no more tasks


def submit_round(campaign: Campaign, inside: bool = False, after: str = "") -> Round:
    """Submit tasks for the trials that are left, unless enough are queued, and helper jobs; return what was done.

    The caller must hold `launcher_lock`. A new campaign is written only if it gets tasks. inside: whether the caller is
    a job of the campaign. after: the name of its array, if it began after all tasks of earlier arrays. Raises Refused
    after MOST_ARRAYS within an hour.
    """
    place = campaign.place
    plans = campaign.read_plans()
    trials = open_jobs(place.runs, plans, campaign.arms)
    renewed = reopen.reopen_lost_parents(place.runs, trials, place.code)
    standings = read_standings(trials, place)
    done = replace(count_trials(standings), renewed=tuple(renewed))
    if not done.left:
        return done

    in_queue = arrays.queued_tasks(place.runs)
    tasks = [task for task in in_queue if counts(task, campaign, after)]
    queue.release(task.job for task in tasks)
    earlier = arrays.earlier_arrays(campaign)
    on = device(campaign.profile)
    left = {trial_id for trial_id, standing in standings.items() if standing.is_pending}
    done = replace(done, queued=len(tasks), hours=estimate.cost(plans, place.runs, on, left).hours)
    was_cancelled = bool(earlier) and earlier[-1].cancel_mark.exists()
    if inside and was_cancelled:
        return replace(done, is_cancelled=True)
    wanted = wanted_tasks(startable(standings), estimate.seconds(plans, place.runs, on), campaign.profile)
    is_recent = bool(earlier) and earlier[-1].age < SETTLE_SECONDS  # squeue may not show it yet
    if wanted <= len(tasks) or (is_recent and not inside and not was_cancelled):
        if not inside:
            ensure_all_helpers(in_queue)
        return done
    if sum(array.age < HOUR for array in earlier) >= MOST_ARRAYS:
        raise Refused(f"{MOST_ARRAYS} arrays were submitted within an hour: look at `ablate logs`, and submit later")
    if inside and arrays.is_stalled(campaign):
        return replace(done, given_up=arrays.give_up(campaign))

    avoided = arrays.nodes_to_avoid(store.trial(place.runs, job.id) for job in trials) + arrays.silent_nodes(earlier)
    if not campaign.folder.exists():
        campaigns.write(campaign)
    when: Mapping[str, str] = {}
    progress: Sequence[int] = ()
    if inside:
        progress = arrays.progress(campaign)
    else:
        when = campaign.profile.start
    try:
        job_id, submitted = send_tasks(campaign, wanted - len(tasks), avoided, when, progress)
    except (Refused, Unreachable) as error:
        if not arrays.submitted_arrays(campaign):
            shutil.rmtree(campaign.folder)
        if tasks and queue.FULL.search(str(error)):  # those that are queued go on
            return done
        raise
    done = replace(done, submitted=submitted, avoided=tuple(avoided))
    before = [*dict.fromkeys(task.job.job_id for task in tasks), job_id]
    try:
        send_helpers(campaign, before, submitted)
    except (Refused, Unreachable) as error:
        return replace(done, no_last_job=str(error))
    return done


def counts(task: QueuedTask, campaign: Campaign, after: str) -> bool:
    """Return whether a job in the queue trains the campaign's trials. squeue may show jobs that have ended."""
    other = task.array.campaign
    has_ended = other.folder == campaign.folder and task.array.folder.name < after
    shares_plans = bool({*other.plans} & {*campaign.plans})
    return shares_plans and not task.array.is_helper and not other.cancelled and not has_ended


def read_standings(trials: Iterable[Job], place: Place) -> dict[str, Standing]:
    reader = Standings(place.runs, place.code)
    return {job.id: job.standing(reader) for job in trials}


def count_trials(standings: Mapping[str, Standing]) -> Round:
    count = Counter(standing.kind for standing in standings.values())
    over, failed, blocked = count[Kind.FINISHED] + count[Kind.DIVERGED], count[Kind.FAILED], count[Kind.BLOCKED]
    return Round(over, failed, blocked, left=count.total() - over - failed - blocked)


def startable(standings: Mapping[str, Standing]) -> list[str]:
    """Return the ids of the trials that are left, except those that the task of a running parent goes on with."""
    trial_ids = []
    for trial_id, standing in standings.items():
        awaits_parent = standing.start.running and standing.kind is not Kind.RUNNING
        if standing.is_pending and not awaits_parent:
            trial_ids.append(trial_id)
    return trial_ids


def wanted_tasks(trial_ids: Sequence[str], seconds: Mapping[str, float], profile: Profile) -> int:
    """Return the number of tasks for some trials. seconds: trial id -> estimated time."""
    total = sum(map(seconds.__getitem__, trial_ids))
    enough = math.ceil(total / (60 * profile.task_minutes))
    return min(len(trial_ids), enough, MOST_TASKS, profile.parallel or MOST_TASKS)


def send_tasks(
    campaign: Campaign, count: int, avoided: Sequence[str], when: Mapping[str, str], progress: Sequence[int]
) -> tuple[int, int]:
    """Submit an array of equal tasks, and return its job id and the number of its tasks.

    If SLURM refuses the number, half of it is tried. If it refuses all nodes but the avoided ones, none is avoided.
    """
    while True:
        array = replace(arrays.job_array(campaign, WORK, when), count=count, avoided=avoided)
        try:
            return arrays.send(array, progress), count
        except Refused as refusal:
            if TOO_MANY.search(str(refusal)) and count > 1:
                count //= 2
            elif avoided:
                avoided = ()
            else:
                raise


# -- helper jobs -------------------------------------------------------------------------------------------------------


def helper_starts(profile: Profile, before: Iterable[object]) -> dict[str, dict[str, str]]:
    """Return function -> options of sbatch for the start of both helper jobs. before: ids of the jobs to wait for."""
    if profile.helper == "none":
        return {}
    seconds = min(profile.seconds, WATCH_SECONDS)
    return {LAST: {"dependency": ":".join(["afterany", *map(str, before)])}, WATCH: {"begin": f"now+{seconds}"}}


def send_helpers(campaign: Campaign, before: Sequence[int], tasks: int = 1, functions: Set[str] = HELPERS) -> None:
    """Submit the helper jobs `functions`, the last one after the jobs `before`.

    tasks: number of tasks of the newest job. Its last task is given up if the queue is full.
    """
    starts = helper_starts(campaign.profile, before)
    for function in sorted(functions & starts.keys()):
        try:
            arrays.send(arrays.job_array(campaign, function, starts[function]))
        except Refused as refusal:
            if not queue.FULL.search(str(refusal)) or tasks == 1:
                raise
            tasks -= 1
            queue.cancel_task(before[-1], tasks)
            arrays.send(arrays.job_array(campaign, function, starts[function]))


def ensure_all_helpers(in_queue: Sequence[QueuedTask]) -> None:
    by_folder = {task.array.campaign.folder: task.array.campaign for task in in_queue}
    for campaign in by_folder.values():
        if campaign.is_own:
            ensure_helpers(campaign, in_queue)


def ensure_helpers(campaign: Campaign, in_queue: Sequence[QueuedTask]) -> None:
    """Submit the last job and the job that watches if tasks are queued and these neither wait nor are recent."""
    before: dict[int, None] = {}
    present: set[str] = set()
    for task in own_tasks(campaign, in_queue):
        if not task.array.is_helper:
            before[task.job.job_id] = None
        elif task.job.is_pending:
            present.add(task.array.intent.function)
    for array in arrays.submitted_arrays(campaign):
        if array.age < SETTLE_SECONDS:
            present.add(array.intent.function)
    if before:
        send_helpers(campaign, list(before), functions=HELPERS - present)


def own_tasks(campaign: Campaign, in_queue: Iterable[QueuedTask]) -> list[QueuedTask]:
    return [task for task in in_queue if task.array.campaign.folder == campaign.folder]
