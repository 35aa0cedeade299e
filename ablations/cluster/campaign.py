"""A campaign: the plans handed to SLURM by one `submit`, and making the queue true to what is still missing.

    runs/submissions/<campaign>/campaign.json     plans, profile, plugins: what every later look needs
    runs/submissions/<campaign>/private.json      what of the profile may hold tokens, mode 0600
    runs/submissions/<campaign>/code/             the packages and plugins as they were: what the nodes import
    runs/submissions/<campaign>/arrays/000k/      one array each (slurm.submission.arrays)
    runs/submissions/<campaign>/arrays/000k/cancelled-<index>.json   a task that scancel ended
    runs/submissions/<campaign>/cancelled.json    by `ablate cancel` alone
    runs/submissions/turns/                       one launcher at a time, over all machines

Queued is what the queue has under our tags; finished is what the disk has; the rest is submitted. Any process may be
killed anywhere: the next look starts from the same two facts.
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
PRIVATE = {"environment", "setup"}  # of a profile: may hold tokens
SHARE, LAST = "ablations.cluster.node:share", "ablations.cluster.node:last"
WATCH = "ablations.cluster.node:watch"  # like LAST, but begins after WATCH_SECONDS: LAST waits forever for a held task
WATCH_SECONDS = 1800  # until it wakes, at most; with a shorter time limit, that
TURN_SECONDS = 120.0
PATIENCE_SECONDS = 20.0  # of a share that only makes sure of the last jobs
LASTS = 2  # that wait while shares run: the last job, and the one that watches


@dataclass(frozen=True)
class Campaign:
    """What one `submit` asked for."""

    folder: Path
    plans: tuple[str, ...]
    profile: profiles.Profile
    plugins: tuple[str, ...]  # their files inside of the snapshot
    data_dir: str | None
    checkpoints: str | None = None  # scratch space, which need not be there on other nodes
    keep_weights: Keep = "all"

    @property
    def runs(self) -> Path:
        return self.folder.parent.parent

    @property
    def code(self) -> Path:
        return self.folder / "code"

    @property
    def tags(self) -> str:
        """How the tags of all its jobs begin."""
        return f"{PREFIX}:{self.folder.name}:"

    @property
    def label(self) -> str:
        """What squeue shows of its jobs first: their study, and how many others were submitted with it."""
        more = len(self.plans) - 1
        return f"{self.plans[0] if self.plans else 'check'}{f'+{more}' if more > 0 else ''}"

    @property
    def device(self) -> Device:
        """On what its trials run, as far as the profile says."""
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
class Look:
    """What one look at disk and queue found and did."""

    over: int
    failed: int
    queued: int = 0
    submitted: int = 0
    arrays: int = 0
    waiting: int = 0  # neither over, failed, blocked, queued, submitted nor cancelled: no slot is free for them
    cancelled: int = 0  # their jobs, by scancel: only `ablate submit` takes them up
    last_job: str = ""  # "queued", "submitted" or "" where none is needed
    hours: float = 0.0
    shunned: tuple[str, ...] = ()  # nodes that broke too much to be given more
    blocked: int = 0  # what they start from failed or diverged
    renewed: tuple[str, ...] = ()  # what is trained again, as weights that others start from are gone
    no_last_job: str = ""  # why SLURM took the trials and no last job

    @property
    def settled(self) -> bool:
        """Whether nothing is left to train, but for what failed or was cancelled."""
        return not self.queued and not self.submitted and not self.waiting


def device(profile: profiles.Profile) -> Device:
    """What a job of the profile runs on: its GPU by SLURM's name of it, or any CPU."""
    return Device(bool(profile.gpus), profile.gpu_type or "")


# -- making one ------------------------------------------------------------------------------------------------------


def create(runs: Path, plans: Sequence[str], profile: profiles.Profile, place: Place, name: str = "") -> Campaign:
    """The folder with the code as it is now: edits while jobs wait change nothing."""
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
    profile = profiles.Profile.of(content["profile"] | private(folder), str(folder))
    return Campaign(
        folder,
        tuple(content["plans"]),
        profile,
        tuple(content["plugins"]),
        content["data_dir"],
        content.get("checkpoints"),
        content.get("keep_weights", "all"),
    )


def private(folder: Path) -> Json:
    """What of a campaign's profile only its user may read; nothing for others, and of a campaign of before."""
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
    """Oldest first."""
    folders = [folder for folder in store.listed(runs / "submissions") if folder.name[0].isdigit()]
    return [load(folder) for folder in folders if (folder / "campaign.json").exists()]


def intents(campaign: Path) -> Iterator[tuple[Path, Intent]]:
    """The arrays in a campaign's folder that SLURM did not refuse, and what each was to hold."""
    for array in (campaign / "arrays").glob("*"):
        with suppress(FileNotFoundError):  # refused, perhaps this moment, or still being written
            yield array, read_intent(array)


def acknowledged(campaign: Campaign) -> set[str]:
    """The trials that SLURM took, as far as is known."""
    return {
        key
        for array, intent in intents(campaign.folder)
        if was_taken(array)
        for share in intent.shares
        for key in share
    }


# -- what the queue has ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Queued:
    """One task in the queue, and what it was given."""

    job: QueuedJob
    campaign: Campaign
    function: str
    share: tuple[str, ...]

    @property
    def is_last(self) -> bool:
        return self.function in (LAST, WATCH)


def tag(array: Path) -> str:
    """ablate:<campaign>:<array>"""
    return f"{PREFIX}:{array.parent.parent.name}:{array.name}"


def queued(runs: Path, timeout: float = TIMEOUT) -> list[Queued]:
    """Every task of this run directory that SLURM has. Raises Unreachable: unknown is not empty."""
    known = {
        tag(array): (campaign, intent) for campaign in campaigns(runs) for array, intent in intents(campaign.folder)
    }
    found = []
    for job in queue.jobs(f"{PREFIX}:", timeout=timeout):
        if job.tag in known:
            campaign, intent = known[job.tag]
            share = intent.shares[job.index or 0]
            found.append(Queued(job, campaign, intent.function, tuple(share)))
    return found


# -- making it true --------------------------------------------------------------------------------------------------


def turn(runs: Path, seconds: float = TURN_SECONDS) -> AbstractContextManager[object]:
    """One launcher at a time, over all machines. Raises TimeoutError where another does not end."""
    refuse_links(runs, runs / "submissions" / "turns")
    return lease.turn(runs / "submissions" / "turns", seconds)


def reconcile(campaign: Campaign, inside: bool = False, withheld: Collection[str] = ()) -> Look:
    """Submits what is neither over nor queued, and makes sure of a last job; in the launcher's turn.

    `inside`: called from a job of the campaign itself, which holds one of the user's slots. `withheld`: trials that
    are not submitted. Raises Unreachable, Refused.
    """
    settle(campaign.runs)
    return look(campaign, inside, withheld)


def settle(runs: Path) -> None:
    """A launcher that was killed in sbatch: its array may still turn up, so the queue gets the time to show it."""
    for campaign in campaigns(runs):
        for array, intent in intents(campaign.folder):
            if not is_settled(array):
                age = time.time() - intent.written
                time.sleep(max(0.0, min(SETTLE_SECONDS, SETTLE_SECONDS - age)))
                acknowledge(array, None)


def look(campaign: Campaign, inside: bool, withheld: Collection[str]) -> Look:
    place, plans = campaign.place(), campaign.read_plans()
    asked = jobs(plans)
    renewed = [] if campaign.cancelled else retry.reopen_lost_parents(place.runs, asked, place.code)
    starting = dependencies.on_disk(place.runs, place.code)
    states = {job.id: runner.trial_outcome(place.runs, job, place.code, starting)[0] for job in asked}
    tasks = queued(campaign.runs)
    queue.release(task.job for task in tasks)
    there = {key: task.job.job_id for task in tasks for key in task.share}  # trial -> the array that holds it
    missing = [job for job in asked if states[job.id] == "todo" and job.id not in there]
    todo = [job for job in missing if job.id not in withheld]
    seconds = estimate.seconds(plans, campaign.runs, campaign.device)
    bounds = limits.limits(campaign.profile)
    free = len(todo) if bounds.bound is None else slots(bounds.bound, len(lasts(campaign, tasks)) + inside)
    shunned = bad_nodes.shunned(store.trial(campaign.runs, job.id) for job in asked) if todo and free else []
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
            last_job = ensure_last(campaign, tasks, sent)
        except (Refused, Unreachable) as error:
            if inside or not sent:
                raise
            no_last_job = str(error)  # the shares see to one when they begin
    return Look(
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


def ended(place: Place, asked: Iterable[Job]) -> Look:
    """What a look says of trials of which none is left to do, without asking SLURM."""
    starting = dependencies.on_disk(place.runs, place.code)
    count = Counter(runner.trial_outcome(place.runs, job, place.code, starting)[0] for job in asked)
    return Look(over=count["over"], failed=count["failed"], blocked=count["blocked"])


def generations(runs: Path, todo: Sequence[Job], look: dependencies.Look) -> list[list[Job]]:
    """What may begin, then what starts from that, and so on: each is handed over to begin when those before have ended.

    Whether they ended well a share looks at when it comes to a trial: of a whole array SLURM could not say it.
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
    """Hands over as many shares as are `free`, in arrays of `size`; trial -> the array that it went with.

    `there`: the same of what is queued. What starts from a trial that is in neither waits for the next look.
    `live`: the campaign's arrays in the queue. A profile's `parallel` binds them together: SLURM limits the tasks of
    one array, so each array begins when those before it have ended.
    """
    found: dict[str, int] = {}
    for depth, some in enumerate(generations):
        where = {**there, **found}
        takable = [job for job in some if not depth or parent(job) in where]
        shares = split(takable, seconds, free, 60 * campaign.profile.task_minutes)
        before = {where[parent(job)] for job in takable if depth}
        for chunk in chunks(shares, size):
            if campaign.profile.parallel:
                before |= {*live, *found.values()}
            array = send_shares(campaign, chunk, shunned, when(sorted(before), start))
            if array is None:
                return found
            free -= len(chunk)
            found |= {job.id: array for share in chunk for job in share}
    return found


def chunks(shares: Sequence[Sequence[Job]], size: int) -> Iterator[Sequence[Sequence[Job]]]:
    return (shares[start : start + size] for start in range(0, len(shares), size))


def parent(job: Job) -> str:
    """The id of the trial that it starts from; "" where there is none."""
    return next(iter(job.parents), "")


def slots(bound: limits.Bound, lasts_there: int) -> int:
    """How many shares may be handed over now, so that there stays room for the last jobs.

    Raises Refused where the limit leaves no room for a share beside them at all.
    """
    if bound.most <= LASTS:
        raise Refused(f"{bound.name} is {bound.most}: a submission needs at least {LASTS + 1} jobs at once")
    return max(0, bound.free - max(0, LASTS - lasts_there))


def split(todo: Sequence[Job], seconds: Mapping[str, float], free: int, least: float) -> list[list[Job]]:
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
    """Hands them over as one array; its job id, None where the queue is full.

    Where SLURM has no other nodes than those shunned, they are good enough.
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
    when: Mapping[str, str] = MappingProxyType({}),  # by sbatch's own words
) -> int:
    """Hands the tasks over as one array; its job id. Raises as `submission.send`."""

    def parameters(tag: str) -> dict[str, Any]:
        chosen = profiles.submitit_parameters(campaign.profile, tag, campaign.label, shunned)
        chosen["additional_parameters"] |= when
        return chosen if gpus else {key: value for key, value in chosen.items() if key not in ("gres", "nodes")}

    prefix, most = f"{PREFIX}:{campaign.folder.name}", len(tasks.shares)
    (job_id,) = submission.send_all(campaign.folder / "arrays", prefix, tasks, parameters, campaign.code, most)
    return job_id


def lasts(campaign: Campaign, tasks: Sequence[Queued]) -> list[Queued]:
    """The campaign's last jobs that wait: one that runs may have looked already."""
    return [task for task in tasks if task.is_last and task.campaign == campaign and task.job.waits]


def ensure_last(campaign: Campaign, tasks: Sequence[Queued], sent: Sequence[int] = (), both: bool = False) -> str:
    """A job that looks again once all others have ended, also those that it did not know of; "queued" or "submitted".

    One that watches will do, unless `both` are asked for: the last job may be killed, or wait for what SLURM holds.
    """
    before = [*dict.fromkeys([*(task.job.job_id for task in tasks if not task.is_last), *sent])]
    waiting = lasts(campaign, tasks)
    watched = any(task.function == WATCH for task in waiting)
    mine = [task.job.job_id for task in waiting if task.function == LAST]
    there = any([not before or queue.postpone(job_id, before) for job_id in mine])
    if not there and (both or not watched):
        submit_one(campaign, LAST, when(before))
    if both and not watched:
        submit_one(campaign, WATCH, {"begin": f"now+{min(campaign.profile.seconds, WATCH_SECONDS)}"})
    return "queued" if there or watched else "submitted"


def when(after: Sequence[int], start: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """For `send`: once these jobs have ended, however, and not before `start`, in sbatch's own words, allows it."""
    dependency = ",".join(filter(None, [queue.ends(after) if after else "", start.get("dependency")]))
    return {**start, "dependency": dependency} if dependency else dict(start)


def submit_one(campaign: Campaign, function: str, when: Mapping[str, str]) -> None:
    alone = submission.Tasks(function, [str(campaign.folder)], [[]], persistent=True)
    send(campaign, alone, gpus=False, when=when)


def mark_cancelled(campaign: Campaign) -> None:
    store.write_json(campaign.folder / "cancelled.json", {"schema": store.SCHEMA, "when": store.now()})


def make_sure_of_last(campaign: Campaign, begins: bool = False) -> None:
    """From a share, as it begins and ends: last jobs wait while trials are missing, whatever happened to the others.

    As it `begins` the disk will do: SLURM is asked only where no last jobs were handed over since the newest shares.
    """
    if campaign.cancelled or (begins and has_later_lasts(campaign)):
        return
    place, tasks = campaign.place(), queued(campaign.runs)
    queue.release(task.job for task in tasks)
    if {task.function for task in lasts(campaign, tasks)} == {LAST, WATCH}:
        return
    if all(runner.trial_outcome(place.runs, job, place.code)[0] != "todo" for job in campaign.jobs()):
        return
    with turn(campaign.runs, PATIENCE_SECONDS):
        ensure_last(campaign, queued(campaign.runs), both=True)


def has_later_lasts(campaign: Campaign) -> bool:
    """Whether both last jobs were handed over after the newest shares, as the disk has it."""
    arrays = sorted(intents(campaign.folder), key=itemgetter(0))
    functions = [intent.function for array, intent in arrays if was_taken(array)]
    newest = max((number for number, function in enumerate(functions) if function == SHARE), default=-1)
    return {LAST, WATCH} <= {*functions[newest + 1 :]}


def has_shares(campaign: Campaign) -> bool:
    """Whether trials of it are in the queue."""
    return any(task.share for task in queued(campaign.runs) if task.campaign == campaign)


def dismiss_lasts(campaign: Campaign) -> None:
    """The last jobs that still wait when everything is over; one that cannot be told finds nothing to do."""
    with suppress(Unreachable, Refused):
        for task in lasts(campaign, queued(campaign.runs)):
            queue.cancel(task.job.tag)


def share_arrays(campaign: Campaign) -> int:
    """How many arrays of trials were handed over."""
    return sum(intent.function == SHARE for _, intent in intents(campaign.folder))
