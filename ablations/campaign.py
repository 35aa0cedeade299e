"""A campaign: the plans handed to SLURM by one `submit`, and making the queue true to what is still missing.

    runs/submissions/<campaign>/campaign.json     plans, profile, plugins: what every later look needs
    runs/submissions/<campaign>/code/             the packages and plugins as they were: what the nodes import
    runs/submissions/<campaign>/arrays/000k/      one array each (slurm.submission)
    runs/submissions/<campaign>/cancelled.json    by `ablate cancel` alone
    runs/submissions/turns/                       one launcher at a time, over all machines

Queued is what the queue has under our tags; finished is what the disk has; the rest is submitted. Any process may be
killed anywhere: the next look starts from the same two facts.
"""

import math
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations import estimate, runner
from ablations.jobs import Job, jobs, read
from ablations.provenance import HOME, PACKAGES
from results import lease, store
from slurm import limits, queue, submission
from slurm import profile as profiles
from slurm.ask import TIMEOUT
from slurm.queue import QueuedJob

Json = dict[str, Any]
PREFIX = "ablate"
TURN_SECONDS = 120.0


@dataclass(frozen=True)
class Campaign:
    """What one `submit` asked for."""

    folder: Path
    plans: tuple[str, ...]
    profile: profiles.Profile
    plugins: tuple[str, ...]  # their files inside of the snapshot
    data_dir: str | None

    @property
    def runs(self) -> Path:
        return self.folder.parent.parent

    @property
    def code(self) -> Path:
        return self.folder / "code"

    @property
    def cancelled(self) -> bool:
        return (self.folder / "cancelled.json").exists()

    def place(self) -> runner.Place:
        digests = tuple(Path(file).stem.rpartition("-")[2] for file in self.plugins)
        data_dir = Path(self.data_dir) if self.data_dir else None
        return runner.Place(self.runs, data_dir, tuple(map(Path, self.plugins)), digests, bool(self.profile.gpus))

    def read_plans(self) -> list[Json]:
        return [plan for name in self.plans if (plan := read(self.runs, name)) is not None]

    def jobs(self) -> list[Job]:
        return jobs(self.read_plans())


@dataclass(frozen=True)
class Look:
    """What one look at disk and queue found and did."""

    over: int
    failed: int
    queued: int
    submitted: int
    arrays: int
    waiting: int  # neither over, failed, queued nor submitted: no slot is free for them
    last_job: str  # "queued", "submitted" or "" where none is needed
    hours: float


# -- making one ------------------------------------------------------------------------------------------------------


def create(
    runs: Path, plans: Sequence[str], profile: profiles.Profile, place: runner.Place, name: str = ""
) -> Campaign:
    """The folder with the code as it is now: edits while jobs wait change nothing."""
    name = name or time.strftime("%Y%m%d-%H%M%S")
    folder = runs / "submissions" / f"{name}-{uuid.uuid4().hex[:8]}"
    staging = folder.with_name(f".{folder.name}")
    for package in PACKAGES:
        shutil.copytree(HOME / package, staging / "code" / package, ignore=shutil.ignore_patterns("__pycache__"))
    plugins = []
    for file, digest in zip(place.plugins, place.plugin_digests, strict=True):
        name = f"{file.stem}-{digest}.py"
        (staging / "code" / "plugins").mkdir(exist_ok=True)
        shutil.copyfile(file, staging / "code" / "plugins" / name)
        plugins.append(str(folder / "code" / "plugins" / name))
    campaign = Campaign(
        folder,
        tuple(plans),
        profile,
        tuple(plugins),
        str(place.data_dir.absolute()) if place.data_dir else None,
    )
    content = {
        "schema": store.SCHEMA,
        "plans": campaign.plans,
        "profile": profile.model_dump(exclude_none=True),
        "plugins": campaign.plugins,
        "data_dir": campaign.data_dir,
    }
    store.write_json(staging / "campaign.json", content)
    staging.rename(folder)
    return campaign


def load(folder: Path) -> Campaign:
    content = store.read_json(folder / "campaign.json")
    profile = profiles.Profile.of(content["profile"], str(folder))
    return Campaign(folder, tuple(content["plans"]), profile, tuple(content["plugins"]), content["data_dir"])


def campaigns(runs: Path) -> list[Campaign]:
    """Oldest first."""
    return [load(path.parent) for path in sorted((runs / "submissions").glob("[0-9]*/campaign.json"))]


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
        return self.function.endswith(":last")


def tag(array: Path) -> str:
    """ablate:<campaign>:<array>"""
    return f"{PREFIX}:{array.parent.parent.name}:{array.name}"


def queued(runs: Path, timeout: float = TIMEOUT) -> list[Queued]:
    """Every task of this run directory that SLURM has. Raises Unreachable: unknown is not empty."""
    known = {
        tag(intent.parent): (campaign, submission.read(intent.parent))
        for campaign in campaigns(runs)
        for intent in (campaign.folder / "arrays").glob("*/intent.json")
    }
    found = []
    for job in queue.jobs(f"{PREFIX}:", timeout):
        if job.tag in known:
            campaign, intent = known[job.tag]
            share = intent["shares"][job.index or 0]
            found.append(Queued(job, campaign, intent["function"], tuple(share)))
    return found


# -- making it true --------------------------------------------------------------------------------------------------


def reconcile(campaign: Campaign, inside: bool = False) -> Look:
    """Submits what is neither over nor queued, and makes sure of a last job; one launcher at a time.

    `inside`: called from a job of the campaign itself, which holds one of the user's slots.
    Raises Unreachable, Refused, TimeoutError (another launcher does not end).
    """
    with lease.turn(campaign.runs / "submissions" / "turns", TURN_SECONDS):
        settle(campaign.runs)
        return look(campaign, inside)


def settle(runs: Path) -> None:
    """A launcher that was killed in sbatch: its array may still turn up, so the queue gets the time to show it."""
    for campaign in campaigns(runs):
        for intent in (campaign.folder / "arrays").glob("*/intent.json"):
            if not (intent.parent / "ack.json").exists():
                age = time.time() - submission.read(intent.parent)["written"]
                time.sleep(max(0.0, min(submission.SETTLE_SECONDS, submission.SETTLE_SECONDS - age)))
                store.write_json(intent.parent / "ack.json", {"job_id": None})


def look(campaign: Campaign, inside: bool) -> Look:
    place, plans = campaign.place(), campaign.read_plans()
    asked = jobs(plans)
    states = {job.id: runner.outcome(place.runs, job, place.code)[0] for job in asked}
    tasks = queued(campaign.runs)
    in_queue = {key for task in tasks for key in task.share}
    todo = [job for job in asked if states[job.id] == "todo" and job.id not in in_queue]
    seconds = estimate.seconds(plans, campaign.runs, bool(campaign.profile.gpus))
    bounds = limits.limits(campaign.profile)
    free = len(todo) if bounds.free is None else max(0, bounds.free - (1 if inside else 2))
    shares = [] if campaign.cancelled else split(todo, seconds, free, 60 * campaign.profile.task_minutes)
    sent = send_arrays(campaign, shares, bounds.max_array_size)
    unfinished = "todo" in states.values() and not campaign.cancelled
    return Look(
        over=list(states.values()).count("over"),
        failed=list(states.values()).count("failed"),
        queued=sum(state == "todo" and key in in_queue for key, state in states.items()),
        submitted=sum(map(len, shares)),
        arrays=len(sent),
        waiting=len(todo) - sum(map(len, shares)),
        last_job=ensure_last(campaign, tasks, sent) if unfinished else "",
        hours=sum(seconds[job.id] for job in todo) / 3600,
    )


def split(todo: Sequence[Job], seconds: Mapping[str, float], free: int, least: float) -> list[list[Job]]:
    """Shares of at least `least` seconds, at most `free` of them, about equal; seed-major, in a seed longest first."""
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


def send_arrays(campaign: Campaign, shares: Sequence[Sequence[Job]], size: int) -> list[int]:
    """One sbatch for each `size` shares; the job ids."""
    for share in shares:
        for job in share:
            create_trial(campaign.runs, job)
    sent = []
    for start in range(0, len(shares), size):
        some = [[job.id for job in share] for share in shares[start : start + size]]
        sent.append(send(campaign, submission.Tasks("ablations.node:share", [str(campaign.folder)], some)))
    return sent


def send(campaign: Campaign, tasks: submission.Tasks, after: Sequence[int] = (), gpus: bool = True) -> int:
    number = len(list((campaign.folder / "arrays").glob("*"))) + 1
    folder = campaign.folder / "arrays" / f"{number:04d}"
    parameters = profiles.submitit_parameters(campaign.profile, tag(folder))
    if not gpus:
        parameters.pop("gres", None)
    if after:
        parameters["dependency"] = "afterany:" + ":".join(map(str, after))
    submission.write(folder, tag(folder), tasks, parameters, campaign.code)
    return submission.send(folder)


def create_trial(runs: Path, job: Job) -> None:
    """config.json, from which the node reads what to train."""
    trial = store.trial(runs, job.id)
    if not (trial.path / "config.json").exists():
        from vitcore.config import Config
        from vitcore.identity import identity

        trial.create({"config": job.config, "identity": identity(Config(**job.config))})


def ensure_last(campaign: Campaign, tasks: Sequence[Queued], sent: Sequence[int]) -> str:
    """A job after all others, that looks again; "queued" where there is one, else "submitted".

    It waits for whatever is in the queue now. If more is submitted meanwhile, it finds that and leaves a successor.
    """
    mine = own_job()
    if any(task.is_last and task.campaign == campaign and task.job.job_id != mine for task in tasks):
        return "queued"
    after = dict.fromkeys([*(task.job.job_id for task in tasks if task.job.job_id != mine), *sent])
    send(campaign, submission.Tasks("ablations.node:last", [str(campaign.folder)], [[]]), list(after), gpus=False)
    return "submitted"


def own_job() -> int:
    """The job that this process runs in; 0 outside of SLURM."""
    return int(os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID") or 0)


def mark_cancelled(campaign: Campaign) -> None:
    store.write_json(campaign.folder / "cancelled.json", {"schema": store.SCHEMA, "when": store.now()})


def make_sure_of_last(campaign: Campaign) -> None:
    """From a share on its way out: whatever happened to the last job, there is one while trials are missing."""
    place = campaign.place()
    if campaign.cancelled or all(runner.outcome(place.runs, job, place.code)[0] != "todo" for job in campaign.jobs()):
        return
    with lease.turn(campaign.runs / "submissions" / "turns", TURN_SECONDS):
        ensure_last(campaign, queued(campaign.runs), [])
