"""The status of planned trials, read from the run directory and from SLURM without changing anything.

Results and leases on disk take precedence. SLURM's queue tells which trials wait, its accounting how jobs ended.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ablations.cluster.arrays import give_up_message
from ablations.cluster.campaign import awaits_reports
from ablations.execution.race import left_out
from ablations.jobs import jobs
from ablations.status.slurm_answers import SlurmAnswers
from results import store
from results.store import lease
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import Entry, Plan, PlannedTrial
from results.store.standing import Kind, Standing, Standings

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
    "stopped",
    "missing",
)
Reason = tuple[str, str, str]  # the cause, line and kind of a Cause
OVER = ("finished", "diverged", "failed", "blocked", "stopped")


@dataclass(frozen=True)
class RunningTrial:
    """A running trial as of its last evaluation."""

    seed: int
    id: str
    step: int
    steps: int | None
    accuracy: float | None  # `value`, if it is an accuracy
    seconds_left: float | None
    metric: str = ""  # the one that is shown during training
    value: float | None = None  # its last value


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


def study_status(plan: Plan, runs: Path, answers: SlurmAnswers) -> StudyStatus:
    reader = Standings(runs)
    standings = {job.id: job.standing(reader) for job in jobs([plan])}
    metric = plan.metric_named(plan.selection_metric)
    stopped = left_out(runs, [plan])
    entries = [arm_status(entry, runs, answers, standings, metric, stopped) for entry in plan.entries]
    total = Counter(dict.fromkeys(TRIAL_KINDS, 0))
    for entry in entries:
        total.update(entry.counts)
    return StudyStatus(
        study=plan.study,
        recipe=plan.recipe,
        plan=plan.name,
        planned=sum(total.values()),
        counts=dict(total),
        stages=entries[: len(plan.stages)],
        arms=entries[len(plan.stages) :],
        tables=tables_state(plan, runs, answers, total),
        slurm=answers.queue_unknown,
        accounting=answers.accounting_unknown,
        given_up=give_up_message(runs, plan.name),
    )


def arm_status(
    arm: Entry,
    runs: Path,
    answers: SlurmAnswers,
    standings: Mapping[str, Standing],
    metric: Metric,
    stopped: Collection[str],
) -> ArmStatus:
    status = ArmStatus(arm.name, arm.parent, dict.fromkeys(TRIAL_KINDS, 0), [], [], [], [])
    trials_by_reason: dict[Reason, list[PlannedTrial]] = defaultdict(list)
    for trial in arm.trials:
        standing = standings[trial.id]
        kind = trial_kind(trial.id, standing, answers, stopped)
        status.counts[kind] += 1
        if kind == "queued":
            status.now_queued.append(QueuedTrial(trial.seed, trial.id, *answers.queued[trial.id]))
        elif kind == "running":
            status.now_running.append(running_trial(trial, arm, standing, metric))
        elif kind in ("missing", "interrupted") and trial.id in answers.ended:
            resubmitted = trial.id in answers.resubmitted
            status.ended.append(EndedJob(trial.seed, trial.id, answers.ended[trial.id], resubmitted))
        for reason in reasons(kind, standing, store.trial(runs, trial.id)):
            trials_by_reason[reason].append(trial)
    for reason, trials in trials_by_reason.items():
        seeds = [trial.seed for trial in trials]
        status.causes.append(Cause(*reason, seeds, [trial.id for trial in trials]))
    return status


def reasons(kind: str, standing: Standing, trial: store.Trial) -> Iterator[Reason]:
    """Yield why a trial failed, is blocked, broken or stopped, or lost the weights that it starts from."""
    state = standing.state
    if kind == "blocked":
        yield standing.why, "", kind
    elif kind == "failed":
        yield failure_reason(trial, standing.why)
    may_be_stopped = standing.kind is Kind.RUNNING or state.status == "interrupted"
    if may_be_stopped and state.attempt:
        stopped = lease.stopped_holder(state.attempt)
        if stopped:
            yield stopped, "", "stopped"
    if state.status == "broken":
        yield state.reason, "", "broken"
    if standing.kind is Kind.LOST:
        yield standing.why, "", Kind.LOST.value


def failure_reason(trial: store.Trial, cause: str) -> Reason:
    failure = trial.failure()
    if failure is None:
        return cause, "", ""
    lines = failure.traceback.strip().splitlines()
    if not lines or lines[-1] in failure.cause:
        return cause, "", failure.kind
    return cause, lines[-1].strip(), failure.kind


def trial_kind(trial_id: str, standing: Standing, answers: SlurmAnswers, stopped: Collection[str]) -> str:
    """Return the kind of a trial, one of TRIAL_KINDS. stopped: ids of trials that a race leaves out."""
    if not standing.is_pending or standing.kind is Kind.RUNNING:
        return standing.kind.value
    if trial_id in stopped:
        return "stopped"
    if trial_id in answers.queued:
        return "queued"
    if trial_id in answers.unknown:
        return "unknown"
    if standing.state.status in ("interrupted", "broken") and not standing.state.is_reopened():
        return standing.state.status
    return "missing"


def running_trial(trial: PlannedTrial, arm: Entry, standing: Standing, metric: Metric) -> RunningTrial:
    assert standing.state.attempt is not None
    lines = store.read_metrics(standing.state.attempt)
    steps = arm.steps
    if not lines or not lines[-1].step:
        return RunningTrial(trial.seed, trial.id, 0, steps, accuracy=None, seconds_left=None)
    newest = lines[-1]
    seconds_left = None
    if newest.seconds is not None and steps is not None:
        seconds_left = newest.seconds / newest.step * (steps - newest.step)
    value = newest.number(metric.name)
    accuracy = value if metric.is_accuracy else None
    return RunningTrial(trial.seed, trial.id, newest.step, steps, accuracy, seconds_left, metric.name, value)


def tables_state(plan: Plan, runs: Path, answers: SlurmAnswers, total: Mapping[str, int]) -> str:
    """Return 'written', 'awaited' or 'pending' for the tables of a submitted study that is done, or else ""."""
    if plan.name not in answers.plans or not is_over(total):
        return ""
    if not awaits_reports(runs, plan):
        return "written"
    return "awaited" if plan.name in answers.awaited_plans else "pending"  # from the submission's last job


def is_over(counts: Mapping[str, int]) -> bool:
    return all(counts[kind] == 0 for kind in TRIAL_KINDS if kind not in OVER)


def is_settled(studies: Collection[StudyStatus]) -> bool:
    """Return whether nothing about the studies will change unless somebody acts."""
    return all(study.given_up or (is_over(study.counts) and study.tables != "awaited") for study in studies)
