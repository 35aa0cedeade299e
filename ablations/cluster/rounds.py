"""The rounds of a campaign: an array of equal tasks, a last job after them, and a job that watches.

Each task is a pool of workers that takes the next unclaimed trial from disk (ablations.execution.runner.pull). So the
queue is only asked how many tasks are there. A wrong answer costs tasks that end at once, and at most MOST_ARRAYS
arrays an hour.

Functions that ask SLURM raise NoSlurm, Refused or Unreachable. Functions that read campaigns raise ValueError if a file
of a campaign is not valid.
"""

import math
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablations.cluster import bad_nodes
from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import LAST, PREFIX, WATCH, WORK, Campaign
from ablations.execution import retry
from ablations.jobs import Job, jobs
from ablations.output import log_end
from ablations.planning import estimate
from results import store
from results.store.standing import OVER, Kind, Standing, Standings
from slurm import arrays as submission
from slurm import profile as profiles
from slurm import queue
from slurm.ask import TIMEOUT, Refused, Unreachable
from slurm.intent import Intent, was_taken
from slurm.limits import FULL
from slurm.profile import Profile

MOST_ARRAYS, HOUR = 20, 3600.0  # arrays of tasks that one submission may send within an hour
MOST_TASKS = 1000  # in an array
SETTLE_SECONDS = 90.0  # until squeue must show a new job: it may answer from a cache
WATCH_SECONDS = 1800  # the watching job begins after this time, or after the time limit if that is shorter
TOO_MANY = re.compile(f"{FULL.pattern}|Invalid job array specification")  # refusals of the number of tasks


@dataclass(frozen=True)
class Array:
    """A submitted job array: the tasks of a round, or one helper job."""

    campaign: Campaign
    folder: Path
    intent: Intent

    @property
    def is_helper(self) -> bool:
        return self.intent.function in (LAST, WATCH)

    @property
    def age(self) -> float:
        return time.time() - self.intent.written

    @property
    def job_name(self) -> str:
        return profiles.job_name(self.campaign.label, campaigns.tag(self.folder))

    @property
    def cancel_mark(self) -> Path:
        """The file that exists if scancel ended a task of the array."""
        return self.folder / "cancelled.json"

    def log_lines(self) -> list[str]:
        """Return the non-empty lines in the last MiB of each task's log, oldest log first. Raises OSError."""
        logs = sorted((self.folder / "logs").glob("*_log.out"), key=lambda path: path.stat().st_mtime)
        return [line for log in logs for line in log_end(log).splitlines() if line.strip()]


@dataclass(frozen=True)
class QueuedTask:
    """A task in SLURM's queue."""

    array: Array
    job: queue.QueuedJob


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


def arrays(campaign: Campaign) -> list[Array]:
    """Return a campaign's arrays in their order, except arrays that SLURM refused."""
    found = sorted(campaigns.read_intents(campaign.folder), key=lambda pair: pair[0])
    return [Array(campaign, folder, intent) for folder, intent in found]


def task_arrays(campaign: Campaign) -> list[Array]:
    return [array for array in arrays(campaign) if not array.is_helper]


def queued_tasks(runs: Path, timeout: float = TIMEOUT) -> list[QueuedTask]:
    """Return the tasks and helper jobs of a run directory's campaigns that are in SLURM's queue, whoever owns them."""
    known = campaigns.campaigns(runs)
    tagged = {campaigns.tag(array.folder): array for one in known for array in arrays(one)}
    users = {one.owner for one in known}
    found = queue.jobs(f"{PREFIX}:", timeout=timeout, users=users) if tagged else []
    return [QueuedTask(tagged[job.tag], job) for job in found if job.tag in tagged]


def submit_round(campaign: Campaign, inside: bool = False, after: str = "") -> Round:
    """Submit tasks for the trials that are left, unless enough are queued, and helper jobs; return what was done.

    Parents whose weights are gone are reopened, and jobs that SLURM holds are released. The caller must hold
    `launcher_lock`. inside: whether the caller is a job of the campaign. after: the name of its array, if it began
    after all tasks of earlier arrays. Raises Refused after MOST_ARRAYS within an hour. If tasks were submitted but no
    last job, the result says why.
    """
    place, plans = campaign.place, campaign.read_plans()
    asked = jobs(plans, campaign.arms)
    renewed = [] if campaign.cancelled else retry.reopen_lost_parents(place.runs, asked, place.code)
    standings = Standings(place.runs, place.code)
    found = {job.id: job.standing(standings) for job in asked}
    left = [job for job in asked if found[job.id].is_pending]
    done = replace(count_ended(found.values()), left=len(left), renewed=tuple(renewed))
    if not left or campaign.cancelled:
        return done
    tasks = [task for task in queued_tasks(campaign.runs) if counts(task, campaign, after)]
    queue.release(task.job for task in tasks)
    own, where = task_arrays(campaign), campaigns.device(campaign.profile)
    is_cancelled = bool(own) and own[-1].cancel_mark.exists()
    hours = estimate.cost(plans, campaign.runs, where, {job.id for job in left}).hours
    done = replace(done, queued=len(tasks), hours=hours, is_cancelled=inside and is_cancelled)
    if done.is_cancelled or (not inside and not is_cancelled and own and is_recent(own[-1])):
        return done
    wanted = wanted_tasks(startable(left, found), estimate.seconds(plans, campaign.runs, where), campaign.profile)
    if wanted <= len(tasks):
        if not inside:
            ensure_helpers(campaign)
        return done
    if sum(array.age < HOUR for array in own) >= MOST_ARRAYS:
        raise Refused(f"{MOST_ARRAYS} arrays were submitted within an hour: look at `ablate logs`, and submit later")
    avoided = bad_nodes.nodes_to_avoid(store.trial(campaign.runs, job.id) for job in asked) + silent_nodes(own)
    when = {} if inside else campaign.profile.start
    try:
        job_id, submitted = send_tasks(campaign, wanted - len(tasks), avoided, when)
    except Refused as refusal:
        if tasks and FULL.search(str(refusal)):  # those that are queued go on
            return done
        raise
    done = replace(done, submitted=submitted, avoided=tuple(avoided))
    try:
        send_helpers(campaign, [*dict.fromkeys(task.job.job_id for task in tasks), job_id], (job_id, submitted))
    except (Refused, Unreachable) as error:
        return replace(done, no_last_job=str(error))
    return done


def is_recent(array: Array) -> bool:
    """Return whether squeue may not show an array yet."""
    return array.age < SETTLE_SECONDS and was_taken(array.folder)


def counts(task: QueuedTask, campaign: Campaign, after: str) -> bool:
    """Return whether a job in the queue trains the campaign's trials. squeue may show jobs that have ended.

    after: as for `submit_round`.
    """
    other = task.array.campaign
    has_ended = other == campaign and task.array.folder.name < after
    shares_plans = bool({*other.plans} & {*campaign.plans})
    return shares_plans and not task.array.is_helper and not other.cancelled and not has_ended


def count_ended(found: Iterable[Standing]) -> Round:
    count = Counter(one.kind for one in found)
    return Round(sum(count[kind] for kind in OVER), failed=count[Kind.FAILED], blocked=count[Kind.BLOCKED])


def startable(left: Sequence[Job], found: Mapping[str, Standing]) -> list[Job]:
    """Return the trials without those whose parent is being trained: the task that trains it goes on with them."""
    return [job for job in left if found[job.id].kind is Kind.RUNNING or not found[job.id].start.running]


def wanted_tasks(left: Sequence[Job], seconds: Mapping[str, float], profile: Profile) -> int:
    """Return the number of tasks for some trials. seconds: trial id -> estimated time."""
    total = sum(seconds[job.id] for job in left)
    enough = math.ceil(total / (60 * profile.task_minutes))
    return min(len(left), enough, MOST_TASKS, profile.parallel or MOST_TASKS)


def silent_nodes(own: Sequence[Array]) -> list[str]:
    """Return the nodes on which tasks failed within a day, but none began: the run directory may be missing there."""
    recent = [array for array in own if array.age < bad_nodes.SECONDS]
    began = {path.name for array in recent for path in (array.folder / "nodes").glob("*")}
    past = queue.accounting({array.job_name for array in recent}) or []
    failed = {job.node for job in past if job.state in ("FAILED", "NODE_FAIL") and job.node}
    return sorted(node for node in failed - began if bad_nodes.is_name(node))


def send_tasks(campaign: Campaign, count: int, avoided: Sequence[str], when: Mapping[str, str]) -> tuple[int, int]:
    """Submit an array of equal tasks, and return its job id and the number of its tasks.

    If SLURM refuses the number, half of it is tried. If it refuses all nodes but the avoided ones, none is avoided.
    """
    while True:
        tasks = submission.Tasks(WORK, [str(campaign.folder)], [[]] * count, container=campaign.profile.prefix)
        try:
            return send(campaign, tasks, campaign.profile, when, avoided), count
        except Refused as refusal:
            if TOO_MANY.search(str(refusal)) and count > 1:
                count //= 2
            elif avoided:
                avoided = ()
            else:
                raise


def ensure_helpers(campaign: Campaign) -> None:
    """Submit the last job and the job that watches if tasks are queued and these do not wait."""
    found = [task for task in queued_tasks(campaign.runs) if task.array.campaign == campaign]
    before = list(dict.fromkeys(task.job.job_id for task in found if not task.array.is_helper))
    waiting = {task.array.intent.function for task in found if task.array.is_helper and task.job.is_pending}
    if before:
        send_helpers(campaign, before, (before[-1], 1), {LAST, WATCH} - waiting)


def send_helpers(
    campaign: Campaign, before: Sequence[int], newest: tuple[int, int], functions: Collection[str] = (LAST, WATCH)
) -> None:
    """Submit a last job that begins after the jobs `before`, and a job that watches.

    newest: job id and number of tasks of the array whose last task is given up if the queue is full. functions: which
    of the two to submit.
    """
    if campaign.profile.helper == "none":
        return
    job_id, tasks = newest
    later = {"begin": f"now+{min(campaign.profile.seconds, WATCH_SECONDS)}"}
    for function, when in ((LAST, {"dependency": queue.dependency(before)}), (WATCH, later)):
        if function not in functions:
            continue
        try:
            send_helper(campaign, function, when)
        except Refused as refusal:
            if not FULL.search(str(refusal)) or tasks == 1:
                raise
            tasks -= 1
            queue.cancel_task(job_id, tasks)
            send_helper(campaign, function, when)


def send_helper(campaign: Campaign, function: str, when: Mapping[str, str]) -> None:
    send(campaign, helper_task(campaign, function), campaign.profile.helper_profile, when)


def helper_task(campaign: Campaign, function: str) -> submission.Tasks:
    return submission.Tasks(function, [str(campaign.folder)], [[]], persistent=True)


def send(
    campaign: Campaign,
    tasks: submission.Tasks,
    profile: Profile,
    when: Mapping[str, str] = {},  # never changed
    avoided: Sequence[str] = (),
) -> int:
    """Submit tasks as one array, in a new folder of the campaign, and return its job id. when: sbatch options.

    Raises the errors of `arrays.send` and `submitit_parameters`.
    """
    folder = submission.next_folder(campaign.folder / "arrays")
    parameters = profiles.submitit_parameters(profile, campaigns.tag(folder), campaign.label, avoided, when)
    return submission.send(folder, campaigns.tag(folder), tasks, parameters, campaign.code)


def waiting_helpers(campaign: Campaign) -> list[QueuedTask]:
    """Return the pending helper jobs of a campaign."""
    tasks = queued_tasks(campaign.runs)
    return [task for task in tasks if task.array.is_helper and task.array.campaign == campaign and task.job.is_pending]
