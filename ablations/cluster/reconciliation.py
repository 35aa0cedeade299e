"""Reconcile queue and disk: submit the trials that are still to train and not queued."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablations.cluster import bad_nodes
from ablations.cluster.array_tasks import QueuedTask, queued_tasks
from ablations.cluster.campaign import Campaign, campaigns, device, read_intents
from ablations.cluster.last_jobs import ensure_last_job, waiting_last_jobs
from ablations.cluster.shares import send_shares, split_into_shares, start_condition
from ablations.execution import retry
from ablations.planning import estimate
from ablations.planning.jobs import Job, jobs
from results import store
from results.store.standing import OVER, Kind, Standing, Standings
from slurm.queries import limits, queue
from slurm.queries.ask import Refused, Unreachable
from slurm.submission.intent import SETTLE_SECONDS, acknowledge, is_settled

LASTS = 2  # jobs that wait while shares run: the last job and the watching job


@dataclass(frozen=True)
class Reconciliation:
    """The findings and actions of one reconciliation. Integers count trials, unless a comment says otherwise."""

    over: int
    failed: int
    queued: int = 0
    submitted: int = 0
    arrays: int = 0  # job arrays
    waiting: int = 0  # to be submitted once the queue has free slots
    cancelled: int = 0  # by scancel: only `ablate submit` submits them again
    last_job: str = ""  # "queued" or "submitted"; "" if none is needed or SLURM accepted none
    hours: float = 0.0  # GPU- or core-hours of the trials to submit
    avoided: tuple[str, ...] = ()  # names of nodes that are avoided after faults
    blocked: int = 0  # the parent failed or diverged
    renewed: tuple[str, ...] = ()  # names of parents to train again because their weights are gone
    no_last_job: str = ""  # why SLURM accepted the trials but no last job

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to train, except failed, blocked and cancelled trials."""
        return not self.queued and not self.submitted and not self.waiting


def reconcile(campaign: Campaign, inside: bool = False, withheld: Collection[str] = ()) -> Reconciliation:
    """Submit the trials that are still to train and not queued, and a last job; return the findings.

    Trials for which the queue has no free slot wait. Parents whose weights are gone are reopened, and jobs that SLURM
    holds are released. The caller must hold `launcher_lock`. inside: whether the caller is a job of the campaign, which
    takes one of the user's slots. withheld: ids of trials not to submit. Raises NoSlurm, Refused or Unreachable, or
    ValueError if a file is damaged. If shares were submitted and `inside` is false, a last job that SLURM refuses sets
    `no_last_job` instead.
    """
    settle(campaign.runs)
    place, plans = campaign.place, campaign.read_plans()
    asked = jobs(plans, campaign.arms)
    renewed = [] if campaign.cancelled else retry.reopen_lost_parents(place.runs, asked, place.code)
    standings = Standings(place.runs, place.code)
    found = {job.id: job.standing(standings) for job in asked}
    tasks = queued_tasks(campaign.runs)
    queue.release(task.job for task in tasks)
    queued = {key for task in tasks for key in task.share}
    missing = [job for job in asked if found[job.id].is_pending and job.id not in queued]
    todo = [job for job in missing if job.id not in withheld]
    where = device(campaign.profile)
    seconds = estimate.seconds(plans, campaign.runs, where)
    taken, avoided = dict[str, int](), list[str]()
    if todo and not campaign.cancelled:
        avoided = bad_nodes.nodes_to_avoid(store.trial(campaign.runs, job.id) for job in asked)
        taken = submit_generations(campaign, generations(todo, standings), tasks, seconds, avoided, inside)
    sent = list(dict.fromkeys(taken.values()))
    last_job = no_last_job = ""
    cancelled = len(missing) - len(todo)
    if sum(one.is_pending for one in found.values()) > cancelled and not campaign.cancelled:
        try:
            last_job = ensure_last_job(campaign, tasks, sent)
        except (Refused, Unreachable) as error:
            if inside or not sent:
                raise
            no_last_job = str(error)  # the shares submit one when they begin
    return replace(
        count_ended(found.values()),
        queued=sum(one.is_pending and key in queued for key, one in found.items()),
        submitted=len(taken),
        arrays=len(sent),
        waiting=len(todo) - len(taken),
        cancelled=cancelled,
        last_job=last_job,
        hours=estimate.cost(plans, campaign.runs, where, {job.id for job in todo}).hours,
        avoided=tuple(avoided) if taken else (),
        renewed=tuple(renewed),
        no_last_job=no_last_job,
    )


def settle(runs: Path) -> None:
    """Wait until no further array can appear in the queue from a process that was killed while it ran sbatch."""
    for campaign in campaigns(runs):
        for array, intent in read_intents(campaign.folder):
            if not is_settled(array):
                age = time.time() - intent.written
                time.sleep(max(0.0, min(SETTLE_SECONDS, SETTLE_SECONDS - age)))
                acknowledge(array, None)


def count_ended(found: Iterable[Standing]) -> Reconciliation:
    count = Counter(one.kind for one in found)
    over = sum(count[kind] for kind in OVER)
    return Reconciliation(over, failed=count[Kind.FAILED], blocked=count[Kind.BLOCKED])


def generations(todo: Sequence[Job], standings: Standings) -> list[list[Job]]:
    """Return the trials by their number of unfinished ancestors, in groups that run in turn. A group may be empty.

    Each share checks whether parents have finished, because SLURM cannot report the end of single trials of an array.
    """
    depths = [len(job.standing(standings).start.open) for job in todo]
    levels = range(max(depths, default=-1) + 1)
    return [[job for job, depth in zip(todo, depths, strict=True) if depth == level] for level in levels]


def submit_generations(
    campaign: Campaign,
    generations: Sequence[Sequence[Job]],
    tasks: Sequence[QueuedTask],
    seconds: Mapping[str, float],
    avoided: Sequence[str],
    inside: bool,
) -> dict[str, int]:
    """Submit shares in job arrays while the queue has free slots; return trial id -> array's job id.

    A trial of a later generation is submitted only once its parent is queued or submitted. tasks: the tasks in the
    queue. seconds: trial id -> estimated time. avoided: nodes to avoid. inside: as for `reconcile`.

    SLURM limits concurrent tasks only within one array. With `parallel` in the profile, each array therefore starts
    after all earlier arrays.
    """
    profile, bounds = campaign.profile, limits.limits(campaign.profile)
    free, size = sum(map(len, generations)), bounds.max_array_size
    if bounds.bound is not None:
        free = free_slots(bounds.bound, len(waiting_last_jobs(campaign, tasks)) + inside)
    start = {} if inside else profile.start
    queued = {key: task.job.job_id for task in tasks for key in task.share}  # trial id -> job id of its array
    live = {task.job.job_id for task in tasks if task.share and task.campaign == campaign}
    found: dict[str, int] = {}
    for depth, generation in enumerate(generations):
        arrays = queued | found
        ready = [job for job in generation if not depth or parent_id(job) in arrays]
        shares = split_into_shares(ready, seconds, free, 60 * profile.task_minutes)
        before = {arrays[parent_id(job)] for job in ready if depth}
        for chunk in (shares[first : first + size] for first in range(0, len(shares), size)):
            if profile.parallel:
                before |= {*live, *found.values()}
            array = send_shares(campaign, chunk, avoided, start_condition(sorted(before), start))
            if array is None:
                return found
            free -= len(chunk)
            found |= {job.id: array for share in chunk for job in share}
    return found


def parent_id(job: Job) -> str:
    return next(iter(job.parents), "")


def free_slots(bound: limits.Bound, lasts_there: int) -> int:
    """Return how many shares may be submitted without taking the slots of the last jobs.

    lasts_there: the number of last jobs with a slot. Raises Refused if a share and the last jobs exceed the limit.
    """
    if bound.most <= LASTS:
        raise Refused(f"{bound.name} is {bound.most}: a submission needs at least {LASTS + 1} jobs at once")
    return max(0, bound.free - max(0, LASTS - lasts_there))
