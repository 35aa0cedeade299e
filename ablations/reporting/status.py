"""The status of planned trials, from disk, queue and accounting. Read-only; nothing is guessed.

Disk and leases are the truth. SLURM's queue says what waits and why; its accounting says how the jobs of trials ended
that are neither over nor queued. If either does not answer, the status is unknown, not empty.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ablations.cluster import job_outcomes, no_progress, queued_tasks, written_reports
from ablations.cluster import submitted_arrays as handed
from results import store
from results.store import dependencies, evals, lease
from results.store.dependencies import Start
from results.store.planned import evals_of, trained
from slurm.queries.ask import NoSlurm, Unreachable

Json = dict[str, Any]
KINDS = ("finished", "diverged", "running", "queued", "unknown", "interrupted", "failed", "blocked", "missing")
OVER = ("finished", "diverged", "failed", "blocked")
OPEN = ("missing", "interrupted", "broken")
HELD = ("running", "interrupted")  # states that a stopped process may hold; others may take over after a minute
QUEUE_SECONDS = 5.0  # with the accounting's timeout, an answer within 15 s in any case
ASK_SECONDS = 60.0  # the shortest time between queries of SLURM
CANCELLED = "cancelled by `ablate cancel`"


@dataclass(frozen=True)
class SlurmState:
    """What SLURM says about trials, by id, or why it does not answer."""

    queued: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # state and reason
    handed: Collection[str] = ()  # submitted and not cancelled since
    ended: Mapping[str, str] = field(default_factory=dict)  # submitted and not queued: how the job ended
    followed: Collection[str] = ()  # trials that a last job in the queue will submit again
    plans: Collection[str] = ()  # plans submitted and not cancelled since
    lasts: Collection[str] = ()  # plans that a last job in the queue belongs to
    answer: str = ""  # why the queue is unknown
    accounting: str = ""  # why the accounting is unknown


# -- asking ------------------------------------------------------------------------------------------------------------


class RateLimitedAsker:
    """Asks SLURM at most once in `seconds`; returns the last answer in between."""

    def __init__(self, runs: Path, seconds: float = ASK_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.runs = runs
        self.seconds = seconds
        self.clock = clock
        self.asked = -seconds
        self.silent_since = ""
        self.seen = SlurmState()

    def __call__(self) -> SlurmState:
        if self.clock() - self.asked >= self.seconds:
            self.asked = self.clock()
            seen = ask_slurm(self.runs)
            self.silent_since = (self.silent_since or time.strftime("%H:%M")) if seen.answer else ""
            self.seen = replace(seen, answer=f"{seen.answer} (since {self.silent_since})") if seen.answer else seen
        return self.seen


def ask_slurm(runs: Path) -> SlurmState:
    """Query the queue and the accounting, at most once each; neither if nothing was ever submitted from here."""
    newest = handed.newest_tasks(runs)
    if not newest:
        return SlurmState()
    current = {key for key, each in newest.items() if not each.campaign.cancelled}
    plans = {name for key in current for name in newest[key].campaign.plans}
    try:
        tasks = queued_tasks.queued_tasks(runs, QUEUE_SECONDS)
    except NoSlurm:
        return SlurmState(handed=current, plans=plans, answer="no SLURM on this machine: what is queued is unknown")
    except Unreachable as error:
        return SlurmState(handed=current, plans=plans, answer=f"{error}: what is queued is unknown")
    queued = {key: (task.job.state, task.job.reason) for task in tasks for key in task.share}
    gone = {key: each for key, each in newest.items() if key not in queued and is_open(runs, key)}
    ended = {key: CANCELLED for key in gone.keys() - current}
    open_still = {key: gone[key] for key in gone.keys() & current}
    past = job_outcomes.job_ends(open_still)
    ended |= job_outcomes.marked_cancelled(open_still) | (past or {})
    followed = {task.campaign.folder for task in tasks if task.is_last}
    silence = "" if past is not None else "accounting unknown: sacct does not answer"
    cancelled = {key for key, fate in ended.items() if job_outcomes.is_cancelled(fate)}
    waiting = {key for key in open_still.keys() - cancelled if gone[key].campaign.folder in followed}
    lasts = {name for task in tasks if task.is_last for name in task.campaign.plans}
    return SlurmState(queued, current, ended, waiting, plans, lasts, accounting=silence)


def is_open(runs: Path, key: str) -> bool:
    return store.trial(runs, key).state().status in OPEN


# -- disk and answers together -----------------------------------------------------------------------------------------


def status(plan: Json, runs: Path, seen: SlurmState) -> Json:
    """The JSON of `ablate status`: per stage and arm, counts by kind, and details of trials that are not over.

    A trial is blocked if its parent failed or diverged.
    """
    starts = dependencies.starts(runs, plan)
    entries = [
        {"arm": entry["name"], "parent": entry.get("parent", "")}
        | arm_status(entry, runs, seen, evals_of(entry, plan), starts)
        for entry in trained(plan)
    ]
    stages, arms = entries[: -len(plan["arms"])], entries[-len(plan["arms"]) :]
    total = {kind: sum(entry[kind] for entry in entries) for kind in KINDS}
    return {
        "study": plan["study"],
        "recipe": plan["recipe"],
        "plan": plan["name"],
        "planned": sum(total.values()),
        **total,
        "stages": stages,
        "arms": arms,
        "tables": tables_state(plan, runs, seen, total),
        "slurm": seen.answer,
        "accounting": seen.accounting,
        "given_up": no_progress.give_up_message(runs, plan["name"]),
    }


def arm_status(arm: Json, runs: Path, seen: SlurmState, evals_owed: Sequence[str], starts: Mapping[str, Start]) -> Json:
    counts = dict.fromkeys(KINDS, 0)
    details: dict[str, list[Json]] = {"now_running": [], "now_queued": [], "ended": []}
    causes: dict[tuple[str, str, str], list[Json]] = defaultdict(list)
    for entry in arm["trials"]:
        trial, named = store.trial(runs, entry["id"]), {"seed": entry["seed"], "id": entry["id"]}
        state = evals.state(trial, evals_owed)
        start = starts.get(entry["id"], Start())
        kind = trial_kind(entry["id"], state, seen, start)
        if kind == "queued":
            slurm_state, reason = seen.queued[entry["id"]]
            details["now_queued"].append({**named, "state": slurm_state, "reason": reason})
        elif kind == "running":
            details["now_running"].append({**named, **progress(arm, state)})
        elif kind == "blocked":
            causes[start.why, "", kind].append(named)
        elif kind == "failed":
            failure = trial.failure() or {}
            causes[state.reason, last_traceback_line(failure), failure.get("kind", "")].append(named)
        elif kind in ("missing", "interrupted") and (job := seen.ended.get(entry["id"])):
            details["ended"].append({**named, "job": job, "followed": entry["id"] in seen.followed})
        if state.status in HELD and state.attempt and (halted := lease.stopped(state.attempt)):
            causes[halted, "", "stopped"].append(named)
        if start.kind == dependencies.LOST and state.status in OPEN:
            causes[start.why, "", start.kind].append(named)
        counts[kind] += 1
    grouped = [
        {"cause": cause, "line": line, "kind": kind, **seeds_and_ids(trials)}
        for (cause, line, kind), trials in causes.items()
    ]
    return counts | details | {"causes": grouped}


def seeds_and_ids(trials: Sequence[Json]) -> Json:
    return {"seeds": [one["seed"] for one in trials], "ids": [one["id"] for one in trials]}


def trial_kind(key: str, state: store.TrialState, seen: SlurmState, start: Start = Start()) -> str:  # frozen
    """One of KINDS: from the disk, and for open trials from SLURM."""
    if state.status not in OPEN:
        return state.status
    if start.kind == dependencies.BLOCKED:
        return "blocked"
    if key in seen.queued:
        return "queued"
    if seen.answer and key in seen.handed:
        return "unknown"
    return "missing" if state.status == "broken" else state.status


def progress(arm: Json, state: store.TrialState) -> Json:
    """Step, accuracy and seconds left, as of the last evaluation."""
    assert state.attempt is not None
    lines = store.read_metrics(state.attempt)
    steps = arm["config"]["steps"]
    if not lines or not lines[-1]["step"]:
        return {"step": 0, "steps": steps, "accuracy": None, "seconds_left": None}
    newest = lines[-1]
    left = newest["seconds"] / newest["step"] * (steps - newest["step"])
    return {"step": newest["step"], "steps": steps, "accuracy": newest["val_accuracy"], "seconds_left": left}


def last_traceback_line(failure: Json) -> str:
    """The last line of a failure's traceback; '' if the cause contains it."""
    lines = [line for line in str(failure.get("traceback", "")).splitlines() if line.strip()]
    return "" if not lines or lines[-1] in str(failure.get("cause", "")) else lines[-1].strip()


def tables_state(plan: Json, runs: Path, seen: SlurmState, total: Mapping[str, int]) -> str:
    """The tables of a submitted study whose trials are over: 'written', 'awaited' or 'pending'; else ''."""
    if plan["name"] not in seen.plans or not is_over(total):
        return ""
    if not written_reports.is_pending(runs, plan):
        return "written"
    return "awaited" if plan["name"] in seen.lasts else "pending"


def is_over(counts: Mapping[str, int]) -> bool:
    """Whether no trial is left to train."""
    return all(counts[kind] == 0 for kind in KINDS if kind not in OVER)


def is_settled(views: Collection[Json]) -> bool:
    """Whether nothing will change by itself."""
    return all(view["given_up"] or (is_over(view) and view["tables"] != "awaited") for view in views)
