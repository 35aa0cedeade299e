"""A campaign: the plans of one `submit`, and submitting whatever of them is neither finished nor queued.

    runs/submissions/<campaign>/campaign.json     plans, profile, plug-ins
    runs/submissions/<campaign>/private.json      the parts of the profile that may hold tokens; mode 0600
    runs/submissions/<campaign>/code/             a copy of the packages and plug-ins, which the nodes import
    runs/submissions/<campaign>/arrays/000k/      a job array each (slurm.submission.arrays)
    runs/submissions/<campaign>/arrays/000k/cancelled-<index>.json   this task was ended by scancel
    runs/submissions/<campaign>/cancelled.json    written by `ablate cancel`
    runs/submissions/turns/                       a lock: one launcher at a time, over all machines

The queue says what is queued, under our tags; the disk says what is finished; the rest is submitted. Any process may be
killed at any point: the next reconciliation starts from the same two facts.
"""

import math
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ablations.cluster import bad_nodes
from ablations.execution import retry, runner
from ablations.execution.cleaning import Keep
from ablations.execution.launch import Place
from ablations.execution.provenance import HOME, PACKAGES
from ablations.planning import estimate
from ablations.planning.jobs import Job, jobs, read
from ablations.planning.step_times import Device
from results import store
from results.store import dependencies, lease
from results.store.paths import refuse_links
from results.store.schemas import Private, Schema, Submission
from slurm.profiles import profile as profiles
from slurm.queries import limits, queue
from slurm.queries.ask import TIMEOUT, Refused, Unreachable
from slurm.queries.queue import QueuedJob
from slurm.submission import arrays as submission
from slurm.submission.intent import SETTLE_SECONDS, Intent, acknowledge, is_settled, was_taken
from slurm.submission.intent import read as read_intent

Json = dict[str, Any]
PREFIX = "ablate"
PRIVATE = {"environment", "setup"}  # fields of a profile that may hold tokens
SHARE, LAST = "ablations.cluster.node:share", "ablations.cluster.node:last"
WATCH = "ablations.cluster.node:watch"  # like LAST, but begins after WATCH_SECONDS: LAST waits forever for a held task
WATCH_SECONDS = 1800  # the watching job begins after this time, or after the time limit if that is shorter
TURN_SECONDS = 120.0
PATIENCE_SECONDS = 20.0  # how long a share waits for the lock to submit last jobs
LASTS = 2  # jobs that wait while shares run: the last job and the watching job


@dataclass(frozen=True)
class Campaign:
    """The request of one `submit`."""

    folder: Path
    plans: tuple[str, ...]
    profile: profiles.Profile
    plugins: tuple[str, ...]  # files in the snapshot
    data_dir: str | None
    checkpoints: str | None = None  # scratch space; it may be missing on other nodes
    keep_weights: Keep = "all"

    @property
    def runs(self) -> Path:
        return self.folder.parent.parent

    @property
    def code(self) -> Path:
        return self.folder / "code"

    @property
    def tags(self) -> str:
        """The prefix of the tags of all its jobs."""
        return f"{PREFIX}:{self.folder.name}:"

    @property
    def label(self) -> str:
        """The beginning of its job names in squeue: a study, and how many others were submitted with it."""
        more = len(self.plans) - 1
        return f"{self.plans[0] if self.plans else 'check'}{f'+{more}' if more > 0 else ''}"

    @property
    def device(self) -> Device:
        """The device its trials run on, as far as the profile says."""
        return device(self.profile)

    @property
    def cancelled(self) -> bool:
        return (self.folder / "cancelled.json").exists()

    def place(self) -> Place:
        digests = tuple(Path(file).stem.rpartition("-")[2] for file in self.plugins)
        data_dir = Path(self.data_dir) if self.data_dir else None
        scratch = Path(self.checkpoints).expanduser() if self.checkpoints else None
        return Place(
            self.runs,
            data_dir,
            tuple(map(Path, self.plugins)),
            digests,
            bool(self.profile.gpus),
            scratch,
            self.keep_weights,
            self.profile.trials_per_gpu,
        )

    def read_plans(self) -> list[Json]:
        return [plan for name in self.plans if (plan := read(self.runs, name)) is not None]

    def jobs(self) -> list[Job]:
        return jobs(self.read_plans())


@dataclass(frozen=True)
class Reconciliation:
    """The outcome of one reconciliation of disk and queue: numbers of trials unless stated otherwise."""

    over: int
    failed: int
    queued: int = 0
    submitted: int = 0
    arrays: int = 0
    waiting: int = 0  # to be submitted once slots of the queue are free
    cancelled: int = 0  # by scancel: only `ablate submit` submits them again
    last_job: str = ""  # "queued", "submitted"; "" if none is needed
    hours: float = 0.0
    shunned: tuple[str, ...] = ()  # nodes that are avoided after faults
    blocked: int = 0  # their parent failed or diverged
    renewed: tuple[str, ...] = ()  # names of parents to train again: their weights are gone
    no_last_job: str = ""  # why SLURM took the trials but no last job

    @property
    def settled(self) -> bool:
        """Whether nothing is left to train, except failed and cancelled trials."""
        return not self.queued and not self.submitted and not self.waiting


def device(profile: profiles.Profile) -> Device:
    """The device of a job: its GPU by SLURM's name, or any CPU."""
    return Device(bool(profile.gpus), profile.gpu_type or "")


# -- making one ------------------------------------------------------------------------------------------------------


def create(runs: Path, plans: Sequence[str], profile: profiles.Profile, place: Place, name: str = "") -> Campaign:
    """Create a campaign's folder with a copy of the code: edits while jobs wait change nothing."""
    name = name or time.strftime("%Y%m%d-%H%M%S")
    folder = runs / "submissions" / f"{name}-{uuid.uuid4().hex[:8]}"
    refuse_links(runs, folder)
    staging = folder.with_name(f".{folder.name}")
    for package in PACKAGES:
        shutil.copytree(HOME / package, staging / "code" / package, ignore=shutil.ignore_patterns("__pycache__"))
    plugins = []
    for file, digest in zip(place.plugins, place.plugin_digests, strict=True):
        copy = f"{file.stem}-{digest}.py"
        (staging / "code" / "plugins").mkdir(exist_ok=True)
        shutil.copyfile(file, staging / "code" / "plugins" / copy)
        plugins.append(str(folder / "code" / "plugins" / copy))
    campaign = Campaign(
        folder,
        tuple(plans),
        profile,
        tuple(plugins),
        str(place.data_dir.absolute()) if place.data_dir else None,
        str(place.checkpoints) if place.checkpoints else None,
        place.keep_weights,
    )
    content = {
        "schema": store.SCHEMA,
        "plans": campaign.plans,
        "profile": profile.model_dump(exclude_none=True, exclude=PRIVATE),
        "plugins": campaign.plugins,
        "data_dir": campaign.data_dir,
        "checkpoints": campaign.checkpoints,
        "keep_weights": campaign.keep_weights,
    }
    store.write_json(staging / "campaign.json", content)
    store.write_json(staging / "private.json", profile.model_dump(include=PRIVATE), mode=0o600)
    staging.rename(folder)
    return campaign


def load(folder: Path) -> Campaign:
    """Raises FileNotFoundError; Broken, with the file, where it is not as `create` writes it."""
    content = checked(folder / "campaign.json", Submission)
    profile = profiles.Profile.of(content["profile"] | read_private(folder), str(folder))
    return Campaign(
        folder,
        tuple(content["plans"]),
        profile,
        tuple(content["plugins"]),
        content["data_dir"],
        content.get("checkpoints"),
        content.get("keep_weights", "all"),
    )


def read_private(folder: Path) -> Json:
    """The private fields of the profile; empty for other users and for campaigns of earlier versions."""
    try:
        return checked(folder / "private.json", Private)
    except (FileNotFoundError, PermissionError):
        return {}


def checked(path: Path, schema: type[Schema]) -> Json:
    try:
        return store.read_json(path, schema)
    except store.Broken as error:  # which begins with the file's name
        raise store.Broken(f"{path.parent}/{error}") from None


def campaigns(runs: Path) -> list[Campaign]:
    """All campaigns of a run directory, oldest first."""
    folders = [folder for folder in store.listed(runs / "submissions") if folder.name[0].isdigit()]
    return [load(folder) for folder in folders if (folder / "campaign.json").exists()]


def read_intents(campaign: Path) -> Iterator[tuple[Path, Intent]]:
    """The arrays in a campaign's folder that SLURM did not refuse, and what each was to hold."""
    for array in (campaign / "arrays").glob("*"):
        with suppress(FileNotFoundError):  # refused just now, or still being written
            yield array, read_intent(array)


def acknowledged_trials(campaign: Campaign) -> set[str]:
    """The ids of the trials in arrays that SLURM is known to have accepted."""
    return {
        key
        for array, intent in read_intents(campaign.folder)
        if was_taken(array)
        for share in intent.shares
        for key in share
    }


# -- what the queue has ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueuedTask:
    """A task in the queue and the trials it was given."""

    job: QueuedJob
    campaign: Campaign
    function: str
    share: tuple[str, ...]

    @property
    def is_last(self) -> bool:
        return self.function in (LAST, WATCH)


def tag(array: Path) -> str:
    """The tag of an array: ablate:<campaign>:<array>."""
    return f"{PREFIX}:{array.parent.parent.name}:{array.name}"


def queued_tasks(runs: Path, timeout: float = TIMEOUT) -> list[QueuedTask]:
    """The tasks of this run directory in the queue. Raises Unreachable: unknown is not empty."""
    known = {
        tag(array): (campaign, intent)
        for campaign in campaigns(runs)
        for array, intent in read_intents(campaign.folder)
    }
    found = []
    for job in queue.jobs(f"{PREFIX}:", timeout=timeout):
        if job.tag in known:
            campaign, intent = known[job.tag]
            share = intent.shares[job.index or 0]
            found.append(QueuedTask(job, campaign, intent.function, tuple(share)))
    return found


# -- making it true --------------------------------------------------------------------------------------------------


def launcher_lock(runs: Path, seconds: float = TURN_SECONDS) -> AbstractContextManager[object]:
    """Lock: one launcher at a time, over all machines. Raises TimeoutError if another does not end."""
    refuse_links(runs, runs / "submissions" / "turns")
    return lease.turn(runs / "submissions" / "turns", seconds)


def reconcile(campaign: Campaign, inside: bool = False, withheld: Collection[str] = ()) -> Reconciliation:
    """Submit the trials that are neither over nor queued, and a last job. The caller holds the launcher's lock.

    inside: called from a job of the campaign, which takes one of the user's slots. withheld: ids not to submit.
    Raises Unreachable, Refused.
    """
    settle(campaign.runs)
    return submit_missing(campaign, inside, withheld)


def settle(runs: Path) -> None:
    """Wait for arrays whose launcher was killed in sbatch: they may still turn up in the queue."""
    for campaign in campaigns(runs):
        for array, intent in read_intents(campaign.folder):
            if not is_settled(array):
                age = time.time() - intent.written
                time.sleep(max(0.0, min(SETTLE_SECONDS, SETTLE_SECONDS - age)))
                acknowledge(array, None)


def submit_missing(campaign: Campaign, inside: bool, withheld: Collection[str]) -> Reconciliation:
    place, plans = campaign.place(), campaign.read_plans()
    asked = jobs(plans)
    renewed = [] if campaign.cancelled else retry.reopen_lost_parents(place.runs, asked, place.code)
    starting = dependencies.on_disk(place.runs, place.code)
    states = {job.id: runner.trial_outcome(place.runs, job, place.code, starting)[0] for job in asked}
    tasks = queued_tasks(campaign.runs)
    queue.release(task.job for task in tasks)
    there = {key: task.job.job_id for task in tasks for key in task.share}  # trial id -> job id of its array
    missing = [job for job in asked if states[job.id] == "todo" and job.id not in there]
    todo = [job for job in missing if job.id not in withheld]
    seconds = estimate.seconds(plans, campaign.runs, campaign.device)
    bounds = limits.limits(campaign.profile)
    free = (
        len(todo)
        if bounds.bound is None
        else free_slots(bounds.bound, len(waiting_last_jobs(campaign, tasks)) + inside)
    )
    shunned = bad_nodes.nodes_to_avoid(store.trial(campaign.runs, job.id) for job in asked) if todo and free else []
    taken: dict[str, int] = {}
    if not campaign.cancelled:
        live = {task.job.job_id for task in tasks if task.share and task.campaign == campaign}
        start = {} if inside else campaign.profile.start
        apart = generations(place.runs, todo, starting)
        taken = hand_over(campaign, apart, there, live, seconds, free, bounds.max_array_size, shunned, start)
    sent = list(dict.fromkeys(taken.values()))
    count = Counter(states.values())
    last_job = no_last_job = ""
    cancelled = len(missing) - len(todo)
    if count["todo"] > cancelled and not campaign.cancelled:
        try:
            last_job = ensure_last_job(campaign, tasks, sent)
        except (Refused, Unreachable) as error:
            if inside or not sent:
                raise
            no_last_job = str(error)  # the shares submit one when they begin
    return Reconciliation(
        over=count["over"],
        failed=count["failed"],
        queued=sum(state == "todo" and key in there for key, state in states.items()),
        submitted=len(taken),
        arrays=len(sent),
        waiting=len(todo) - len(taken),
        cancelled=cancelled,
        last_job=last_job,
        hours=sum(seconds[job.id] * job.ranks for job in todo) / 3600,
        shunned=tuple(shunned),
        blocked=count["blocked"],
        renewed=tuple(renewed),
        no_last_job=no_last_job,
    )


def reconciliation_of_ended(place: Place, asked: Iterable[Job]) -> Reconciliation:
    """Count trials of which none is left to submit, without asking SLURM."""
    starting = dependencies.on_disk(place.runs, place.code)
    count = Counter(runner.trial_outcome(place.runs, job, place.code, starting)[0] for job in asked)
    return Reconciliation(over=count["over"], failed=count["failed"], blocked=count["blocked"])


def generations(runs: Path, todo: Sequence[Job], look: dependencies.Look) -> list[list[Job]]:
    """Group trials by their depth in the chain of parents. Each group is submitted to begin after the one before.

    Whether a parent ended well is checked by the share: SLURM cannot tell for single trials of an array.
    """
    depths = [len(dependencies.begin(runs, job.id, job.parents, look).open) for job in todo]
    levels = range(max(depths, default=-1) + 1)
    return [[job for job, depth in zip(todo, depths, strict=True) if depth == level] for level in levels]


def hand_over(
    campaign: Campaign,
    generations: Sequence[Sequence[Job]],
    there: Mapping[str, int],
    live: Collection[int],
    seconds: Mapping[str, float],
    free: int,
    size: int,
    shunned: Sequence[str],
    start: Mapping[str, str],
) -> dict[str, int]:
    """Submit at most `free` shares in arrays of at most `size` tasks; return trial id -> job id of its array.

    there: trial id -> job id of what is queued. Trials whose parent is neither there nor submitted wait.
    live: the campaign's arrays in the queue. SLURM limits the concurrent tasks of one array only, so with a profile's
    `parallel` each array begins after those before it.
    """
    found: dict[str, int] = {}
    for depth, some in enumerate(generations):
        where = {**there, **found}
        takable = [job for job in some if not depth or parent_id(job) in where]
        shares = split_into_shares(takable, seconds, free, 60 * campaign.profile.task_minutes)
        before = {where[parent_id(job)] for job in takable if depth}
        for chunk in chunks(shares, size):
            if campaign.profile.parallel:
                before |= {*live, *found.values()}
            array = send_shares(campaign, chunk, shunned, start_condition(sorted(before), start))
            if array is None:
                return found
            free -= len(chunk)
            found |= {job.id: array for share in chunk for job in share}
    return found


def chunks(shares: Sequence[Sequence[Job]], size: int) -> Iterator[Sequence[Sequence[Job]]]:
    return (shares[start : start + size] for start in range(0, len(shares), size))


def parent_id(job: Job) -> str:
    """The id of the trial that a job starts from; "" if none."""
    return next(iter(job.parents), "")


def free_slots(bound: limits.Bound, lasts_there: int) -> int:
    """How many shares may be submitted now while leaving room for the last jobs.

    Raises Refused if the limit never leaves room for a share beside them.
    """
    if bound.most <= LASTS:
        raise Refused(f"{bound.name} is {bound.most}: a submission needs at least {LASTS + 1} jobs at once")
    return max(0, bound.free - max(0, LASTS - lasts_there))


def split_into_shares(todo: Sequence[Job], seconds: Mapping[str, float], free: int, least: float) -> list[list[Job]]:
    """Split trials into at most `free` shares of at least `least` seconds, about equal.

    Trials are taken seed by seed, within a seed longest first.
    """
    if not todo or not free:
        return []
    total = sum(seconds[job.id] for job in todo)
    count = min(len(todo), free, max(1, math.ceil(total / least)))
    shares: list[list[Job]] = [[] for _ in range(count)]
    lengths = [0.0] * count
    for job in sorted(todo, key=lambda job: (job.config["seed"], -seconds[job.id])):
        shortest = lengths.index(min(lengths))
        shares[shortest].append(job)
        lengths[shortest] += seconds[job.id]
    return shares


def send_shares(
    campaign: Campaign, shares: Sequence[Sequence[Job]], shunned: Sequence[str], when: Mapping[str, str]
) -> int | None:
    """Submit shares as one array; return its job id, None if the queue is full.

    If SLURM has no nodes but those to avoid, they are used.
    """
    try:
        return send(campaign, share_tasks(campaign, shares), shunned=shunned, when=when)
    except Refused as refusal:
        if limits.FULL.search(str(refusal)):
            return None
        if not shunned:
            raise
        return send_shares(campaign, shares, (), when)


def share_tasks(campaign: Campaign, shares: Sequence[Sequence[Job]]) -> submission.Tasks:
    ids = [[job.id for job in share] for share in shares]
    return submission.Tasks(SHARE, [str(campaign.folder)], ids, container=campaign.profile.prefix)


def send(
    campaign: Campaign,
    tasks: submission.Tasks,
    gpus: bool = True,
    shunned: Sequence[str] = (),
    when: Mapping[str, str] = MappingProxyType({}),  # sbatch options
) -> int:
    """Submit tasks as one array; return its job id. Raises what slurm.submission.arrays.send raises."""

    def parameters(tag: str) -> dict[str, Any]:
        chosen = profiles.submitit_parameters(campaign.profile, tag, campaign.label, shunned)
        chosen["additional_parameters"] |= when
        return chosen if gpus else {key: value for key, value in chosen.items() if key not in ("gres", "nodes")}

    prefix, most = f"{PREFIX}:{campaign.folder.name}", len(tasks.shares)
    (job_id,) = submission.send_all(campaign.folder / "arrays", prefix, tasks, parameters, campaign.code, most)
    return job_id


def waiting_last_jobs(campaign: Campaign, tasks: Sequence[QueuedTask]) -> list[QueuedTask]:
    """The campaign's last jobs that are pending: a running one may have looked already."""
    return [task for task in tasks if task.is_last and task.campaign == campaign and task.job.waits]


def ensure_last_job(
    campaign: Campaign, tasks: Sequence[QueuedTask], sent: Sequence[int] = (), both: bool = False
) -> str:
    """Ensure that a last job will reconcile after all others have ended; return "queued" or "submitted".

    A watching job is enough unless `both` are asked for: the last job may be killed, or wait for a held task.
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


def start_condition(after: Sequence[int], start: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """sbatch options: begin once the jobs `after` have ended in any way, and not before `start` allows it."""
    dependency = ",".join(filter(None, [queue.ends(after) if after else "", start.get("dependency")]))
    return {**start, "dependency": dependency} if dependency else dict(start)


def submit_one(campaign: Campaign, function: str, when: Mapping[str, str]) -> None:
    alone = submission.Tasks(function, [str(campaign.folder)], [[]], persistent=True)
    send(campaign, alone, gpus=False, when=when)


def mark_cancelled(campaign: Campaign) -> None:
    store.write_json(campaign.folder / "cancelled.json", {"schema": store.SCHEMA, "when": store.now()})


def ensure_last_jobs_from_share(campaign: Campaign, begins: bool = False) -> None:
    """Ensure, from a share as it begins and ends, that last jobs wait while trials are missing.

    begins: SLURM is asked only if no last jobs were submitted after the newest shares.
    """
    if campaign.cancelled or (begins and has_newer_last_jobs(campaign)):
        return
    place, tasks = campaign.place(), queued_tasks(campaign.runs)
    queue.release(task.job for task in tasks)
    if {task.function for task in waiting_last_jobs(campaign, tasks)} == {LAST, WATCH}:
        return
    if all(runner.trial_outcome(place.runs, job, place.code)[0] != "todo" for job in campaign.jobs()):
        return
    with launcher_lock(campaign.runs, PATIENCE_SECONDS):
        ensure_last_job(campaign, queued_tasks(campaign.runs), both=True)


def has_newer_last_jobs(campaign: Campaign) -> bool:
    """Whether both last jobs were handed over after the newest shares, as the disk has it."""
    arrays = sorted(read_intents(campaign.folder), key=itemgetter(0))
    functions = [intent.function for array, intent in arrays if was_taken(array)]
    newest = max((number for number, function in enumerate(functions) if function == SHARE), default=-1)
    return {LAST, WATCH} <= {*functions[newest + 1 :]}


def has_shares(campaign: Campaign) -> bool:
    """Whether shares of the campaign are in the queue."""
    return any(task.share for task in queued_tasks(campaign.runs) if task.campaign == campaign)


def cancel_last_jobs(campaign: Campaign) -> None:
    """Cancel last jobs that are pending when everything is over; one that remains finds nothing to do."""
    with suppress(Unreachable, Refused):
        for task in waiting_last_jobs(campaign, queued_tasks(campaign.runs)):
            queue.cancel(task.job.tag)


def count_share_arrays(campaign: Campaign) -> int:
    """How many arrays of trials were handed over."""
    return sum(intent.function == SHARE for _, intent in read_intents(campaign.folder))
