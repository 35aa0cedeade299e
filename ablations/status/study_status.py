"""The status of planned trials, read from the run directory and from SLURM without changing anything.

Results and leases on disk take precedence. SLURM's queue tells which trials wait and why. SLURM's accounting tells how
jobs ended. Functions raise ValueError if a file of a submission is not valid, or a newer version wrote a trial's file.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ablations.cluster import arrays
from ablations.cluster.campaign import LOCAL, Campaign, awaits_reports, campaigns
from ablations.jobs import jobs
from results import store
from results.store import lease
from results.store.schemas import Entry, Plan, PlannedTrial
from results.store.standing import Kind, Standing, Standings
from slurm import queue
from slurm.ask import NoSlurm, Unreachable, cluster_name

TRIAL_KINDS = (
    "finished",
    "diverged",
    "running",
    "queued",
    "unknown",
    "interrupted",
    "failed",
    "blocked",
    "broken",
    "missing",
)
OVER = ("finished", "diverged", "failed", "blocked")
QUEUE_SECONDS = 5.0  # timeout of the queue; queue and accounting together take at most 15 s
ACCOUNTING_SECONDS = 4.0  # to wait for the accounting's answer
ASK_SECONDS = 60.0  # the shortest time between queries of SLURM
CANCELLED = "cancelled by `ablate cancel`"
NOT_QUEUED = "no task is queued or runs"
EXIT_CODES = {
    "0:53": "the node could not start it, perhaps because the run directory is not there",
    "126:0": "Python may not be executed there",
    "127:0": "there is no Python at this path",
    "0:9": "killed",
    "2:0": "refused: see `ablate logs`",
}


@dataclass(frozen=True)
class SlurmState:
    """SLURM's answers about trials and plans, or why SLURM did not answer."""

    queued: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # id of a queued trial -> state and reason
    handed: Collection[str] = ()  # ids of trials that were submitted and not canceled since
    ended: Mapping[str, str] = field(default_factory=dict)  # id of a trial no longer queued -> how its job ended
    followed: Collection[str] = ()  # ids of trials that a last job in the queue will submit again
    plans: Collection[str] = ()  # names of plans that were submitted and not canceled since
    lasts: Collection[str] = ()  # names of plans with a last job in the queue
    answer: str = ""  # why the queue is unknown; "" if it is known
    accounting: str = ""  # why the accounting is unknown; "" if it is known


@dataclass
class RateLimitedAsker:
    """A callable that returns SLURM's answers, and queries SLURM at most once in ASK_SECONDS."""

    runs: Path
    clock: Callable[[], float] = time.monotonic
    asked: float = -ASK_SECONDS
    silent_since: str = ""
    seen: SlurmState = field(default_factory=SlurmState)

    def __call__(self) -> SlurmState:
        if self.clock() - self.asked >= ASK_SECONDS:
            self.asked = self.clock()
            seen = ask_slurm(self.runs)
            self.silent_since = (self.silent_since or time.strftime("%H:%M")) if seen.answer else ""
            self.seen = replace(seen, answer=f"{seen.answer} (since {self.silent_since})") if seen.answer else seen
        return self.seen


def ask_slurm(runs: Path) -> SlurmState:
    """Return SLURM's answers about the trials of a run directory, or why SLURM did not answer."""
    known = [one for one in campaigns(runs) if one.cluster != LOCAL and arrays.task_arrays(one)]
    newest = {job.id: one for one in known for job in one.jobs()}
    if not newest:
        return SlurmState()
    current = {key for key, one in newest.items() if not one.cancelled}
    plans = {name for key in current for name in newest[key].plans}
    try:
        tasks = arrays.queued_tasks(runs, QUEUE_SECONDS)
        clusters = {one.cluster for one in newest.values()} - {""}
        here = cluster_name(QUEUE_SECONDS) if clusters else ""
    except (NoSlurm, Unreachable) as error:
        why = "no SLURM on this machine" if isinstance(error, NoSlurm) else error
        return SlurmState(handed=current, plans=plans, answer=f"{why}: what is queued is unknown")
    waits = queue_states(tasks)
    queued = {key: waits[one.folder] for key, one in newest.items() if one.folder in waits}
    standings = Standings(runs)
    elsewhere = {key for key in current if newest[key].cluster not in ("", here)}
    unknown = f"submitted on {joined_clusters(newest[key] for key in elsewhere)}" if elsewhere else ""
    gone = {key for key in newest if key not in {*queued, *elsewhere} and standings.read(key).kind is Kind.READY}
    fates = {folder: fate(one) for folder, one in {newest[key].folder: newest[key] for key in gone}.items()}
    last = {key: fates[newest[key].folder] for key in gone}
    followed = {task.array.campaign.folder for task in tasks if task.array.is_helper}
    waiting = {key for key in gone & current if newest[key].folder in followed}
    lasts = {name for task in tasks if task.array.is_helper for name in task.array.campaign.plans}
    silent = any(end is None for end in last.values())
    ended = {key: end or NOT_QUEUED for key, end in last.items()}
    silence = "accounting unknown: sacct does not answer" if silent else ""
    return SlurmState(queued, elsewhere or current, ended, waiting, plans, lasts, unknown, silence)


def joined_clusters(campaigns: Iterable[Campaign]) -> str:
    names = sorted({campaign.cluster for campaign in campaigns})
    return f"cluster {', '.join(names)}: what is queued there is unknown here"


def queue_states(tasks: Iterable[arrays.QueuedTask]) -> dict[Path, tuple[str, str]]:
    """Return campaign's folder -> (state, reason) of its tasks: a waiting task's, or else a running one's."""
    found: dict[Path, tuple[str, str]] = {}
    for task in tasks:
        if not task.array.is_helper and (task.job.is_pending or task.array.campaign.folder not in found):
            found[task.array.campaign.folder] = task.job.state, task.job.reason
    return found


def fate(campaign: Campaign) -> str | None:
    """Return how a campaign's newest tasks ended, such as 'FAILED on node7'; None if the accounting is silent."""
    if campaign.cancelled:
        return CANCELLED
    newest = arrays.task_arrays(campaign)[-1]
    if newest.cancel_mark.exists():
        return "CANCELLED by scancel"
    past = queue.accounting([newest.job_name], timeout=ACCOUNTING_SECONDS)
    if past is None:
        return None
    return "; ".join(dict.fromkeys(map(end_text, past))) or NOT_QUEUED


def end_text(job: queue.PastJob) -> str:
    """Return how a task ended, such as 'FAILED on node7 (exit code 0:53: the node could not start it), job 12_3'."""
    where = f" on {job.node}" if job.node else ""
    words = EXIT_CODES.get(job.exit_code)
    code = f" (exit code {job.exit_code}{f': {words}' if words else ''}), job {queue.task_name(job)}"
    return f"{job.state}{where}{code if job.state == 'FAILED' else ''}"


@dataclass(frozen=True)
class RunningTrial:
    seed: int
    id: str
    step: int
    steps: int
    accuracy: float | None
    seconds_left: float | None


@dataclass(frozen=True)
class QueuedTrial:
    """A trial in SLURM's queue, with the state of its job and SLURM's reason for this state."""

    seed: int
    id: str
    state: str
    reason: str


@dataclass(frozen=True)
class EndedJob:
    """A trial whose SLURM job ended before the trial was done."""

    seed: int
    id: str
    job: str  # how the job ended, such as 'TIMEOUT on node7'
    followed: bool  # whether the last job of the submission will submit the trial again


@dataclass(frozen=True)
class Cause:
    """Why some trials of an arm failed, are blocked, broken or stopped, or lost the weights that they start from."""

    cause: str
    line: str  # the last line of the traceback, or "" if there is none or the cause contains it
    kind: str  # the kind of the failure ("" if unknown), or "blocked", "broken", "stopped" or "lost"
    seeds: list[int]
    ids: list[str]


@dataclass(frozen=True)
class ArmStatus:
    """The status of an arm or stage: the number of trials of each kind, and details of unfinished trials."""

    arm: str
    parent: str  # the stage that the arm or stage starts from, or ""
    counts: dict[str, int]
    now_running: list[RunningTrial]
    now_queued: list[QueuedTrial]
    ended: list[EndedJob]
    causes: list[Cause]


@dataclass(frozen=True)
class StudyStatus:
    """The status of a study, as `ablate status` shows it and `ablate status --json` prints it."""

    study: str
    recipe: str
    plan: str
    planned: int
    counts: dict[str, int]
    stages: list[ArmStatus]
    arms: list[ArmStatus]
    tables: str  # the result of `tables_state`
    slurm: str  # why the queue is unknown; "" if it is known
    accounting: str  # why the accounting is unknown; "" if it is known
    given_up: str  # why the submission gave up; "" if it did not


def status(plan: Plan, runs: Path, seen: SlurmState) -> StudyStatus:
    """Return the status of a study and of each of its stages and arms. seen: SLURM's answers."""
    known = Standings(runs)
    standings = {job.id: job.standing(known) for job in jobs([plan])}
    entries = [arm_status(entry, runs, seen, standings, plan.selection_metric) for entry in plan.entries]
    total = {kind: sum(entry.counts[kind] for entry in entries) for kind in TRIAL_KINDS}
    return StudyStatus(
        study=plan.study,
        recipe=plan.recipe,
        plan=plan.name,
        planned=sum(total.values()),
        counts=total,
        stages=entries[: len(plan.stages)],
        arms=entries[len(plan.stages) :],
        tables=tables_state(plan, runs, seen, total),
        slurm=seen.answer,
        accounting=seen.accounting,
        given_up=arrays.give_up_message(runs, plan.name),
    )


def arm_status(arm: Entry, runs: Path, seen: SlurmState, standings: Mapping[str, Standing], metric: str) -> ArmStatus:
    """Return the status of an arm's trials. metric: the metric that is shown of running trials."""
    found = ArmStatus(arm.name, arm.parent, dict.fromkeys(TRIAL_KINDS, 0), [], [], [], [])
    causes: dict[tuple[str, str, str], list[PlannedTrial]] = defaultdict(list)
    for planned in arm.trials:
        seed, key, standing = planned.seed, planned.id, standings[planned.id]
        kind, state = trial_kind(key, standing, seen), standing.state
        if kind == "queued":
            found.now_queued.append(QueuedTrial(seed, key, *seen.queued[key]))
        elif kind == "running":
            found.now_running.append(RunningTrial(seed, key, *progress(arm, state, metric)))
        elif kind == "blocked":
            causes[standing.why, "", kind].append(planned)
        elif kind == "failed":
            failure = store.trial(runs, key).failure()
            lines = failure.traceback.strip().splitlines() if failure else []
            line = lines[-1].strip() if failure and lines and lines[-1] not in failure.cause else ""
            causes[standing.why, line, failure.kind if failure else ""].append(planned)
        elif kind in ("missing", "interrupted") and (job := seen.ended.get(key)):
            found.ended.append(EndedJob(seed, key, job, key in seen.followed))
        held = standing.kind is Kind.RUNNING or state.status == "interrupted"
        if held and state.attempt and (halted := lease.stopped_holder(state.attempt)):
            causes[halted, "", "stopped"].append(planned)
        if state.status == "broken":
            causes[state.reason, "", state.status].append(planned)
        if standing.kind is Kind.LOST:
            causes[standing.why, "", Kind.LOST.value].append(planned)
        found.counts[kind] += 1
    for what, trials in causes.items():
        found.causes.append(Cause(*what, [one.seed for one in trials], [one.id for one in trials]))
    return found


def trial_kind(key: str, standing: Standing, seen: SlurmState) -> str:
    if not standing.is_pending or standing.kind is Kind.RUNNING:
        return standing.kind.value
    if key in seen.queued:
        return "queued"
    if seen.answer and key in seen.handed:
        return "unknown"
    return standing.state.status if standing.state.status in ("interrupted", "broken") else "missing"


def progress(arm: Entry, state: store.TrialState, metric: str) -> tuple[int, int, float | None, float | None]:
    """Return (step, total steps, value of the metric, seconds left) at the last evaluation. None means unknown."""
    assert state.attempt is not None
    lines = store.read_metrics(state.attempt)
    steps = arm.config["steps"]
    if not lines or not lines[-1].step:
        return 0, steps, None, None
    newest = lines[-1]
    left = None if newest.seconds is None else newest.seconds / newest.step * (steps - newest.step)
    return newest.step, steps, newest.number(metric), left


def tables_state(plan: Plan, runs: Path, seen: SlurmState, total: Mapping[str, int]) -> str:
    """Return 'written', 'awaited' or 'pending' for the tables of a submitted study that is done, or else ""."""
    if plan.name not in seen.plans or not is_over(total):
        return ""
    if not awaits_reports(runs, plan):
        return "written"
    return "awaited" if plan.name in seen.lasts else "pending"  # awaited from the submission's last job


def is_over(counts: Mapping[str, int]) -> bool:
    return all(counts[kind] == 0 for kind in TRIAL_KINDS if kind not in OVER)


def is_settled(views: Collection[StudyStatus]) -> bool:
    return all(view.given_up or (is_over(view.counts) and view.tables != "awaited") for view in views)
