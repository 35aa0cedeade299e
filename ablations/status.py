"""How far the planned trials are: what the disk knows first, then the queue; read-only, and never wrong by guessing.

Disk and heartbeats are the truth. SLURM, asked once with a timeout, tells what is queued and why; where it does not
answer, that is called unknown, never empty.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations import campaign
from ablations.progress import clock
from results import evals, store
from slurm.ask import NoSlurm, Unreachable

Json = dict[str, Any]
BAR = 24
KINDS = ("finished", "diverged", "running", "queued", "interrupted", "failed", "missing")


@dataclass(frozen=True)
class Seen:
    """What SLURM said: trial id -> state and reason; `answer` is "", or why there is none."""

    queued: Mapping[str, tuple[str, str]]
    answer: str = ""


def ask(runs: Path) -> Seen:
    """One query of the queue, however many jobs; none where nothing was ever submitted from this run directory."""
    if not campaign.campaigns(runs):
        return Seen({})
    try:
        tasks = campaign.queued(runs)
    except NoSlurm:
        return Seen({}, "no SLURM on this machine: what is queued is unknown")
    except Unreachable as error:
        return Seen({}, f"SLURM does not answer ({error}): what is queued is unknown")
    return Seen({key: (task.job.state, task.job.reason) for task in tasks for key in task.share})


def status(plan: Json, runs: Path, seen: Seen) -> Json:
    """Per arm, how many trials are what; the running, queued and failed ones with what is known of them."""
    arms = [{"arm": arm["name"], **arm_status(arm, runs, seen, plan.get("evals", []))} for arm in plan["arms"]]
    total = {kind: sum(arm[kind] for arm in arms) for kind in KINDS}
    planned = sum(total.values())
    return {
        "study": plan["study"],
        "recipe": plan["recipe"],
        "planned": planned,
        **total,
        "arms": arms,
        "slurm": seen.answer,
    }


def arm_status(arm: Json, runs: Path, seen: Seen, evals_owed: Sequence[str]) -> Json:
    counts = dict.fromkeys(KINDS, 0)
    details: dict[str, list[Json]] = {"now_running": [], "now_queued": [], "causes": []}
    causes: dict[str, list[Json]] = defaultdict(list)
    for entry in arm["trials"]:
        trial = store.trial(runs, entry["id"])
        state = evals.state(trial, evals_owed)
        kind = "missing" if state.status == "broken" else state.status
        if kind in ("missing", "interrupted") and entry["id"] in seen.queued:
            kind = "queued"
            slurm_state, reason = seen.queued[entry["id"]]
            details["now_queued"].append({"seed": entry["seed"], "state": slurm_state, "reason": reason})
        if kind == "running":
            details["now_running"].append({"seed": entry["seed"], **progress(arm, state)})
        if kind == "failed":
            causes[state.reason].append({"seed": entry["seed"], "id": entry["id"]})
        counts[kind] += 1
    details["causes"] = [
        {"cause": cause, "seeds": [one["seed"] for one in trials], "ids": [one["id"] for one in trials]}
        for cause, trials in causes.items()
    ]
    return counts | details


def progress(arm: Json, state: store.TrialState) -> Json:
    """Step, accuracy so far, seconds left, as of the last evaluation."""
    assert state.attempt is not None
    lines = store.read_lines(state.attempt / "metrics.jsonl")
    steps = arm["config"]["steps"]
    if not lines:
        return {"step": 0, "steps": steps, "accuracy": None, "seconds_left": None}
    newest = lines[-1]
    left = newest["seconds"] / newest["step"] * (steps - newest["step"])
    return {"step": newest["step"], "steps": steps, "accuracy": newest["val_accuracy"], "seconds_left": left}


def render(view: Json) -> str:
    """For a person: a bar, a line an arm, and what to do about the failed ones."""
    over = view["finished"] + view["diverged"]
    filled = round(BAR * over / view["planned"]) if view["planned"] else 0
    title = f"{view['study']}@{view['recipe']}  [{'#' * filled}{'.' * (BAR - filled)}]  {over}/{view['planned']}"
    width = max(len(arm["arm"]) for arm in view["arms"])
    lines = [title, *(f"  {arm['arm']:{width}}  {counts_text(arm)}" for arm in view["arms"])]
    for arm in view["arms"]:
        lines += [running_text(arm, one) for one in arm["now_running"]]
    lines += queued_text(view["arms"]) + failed_text(view)
    return "\n".join(lines + ([f"  {view['slurm']}"] if view["slurm"] else []))


def counts_text(arm: Json) -> str:
    return "  ".join(f"{arm[kind]} {kind}" for kind in KINDS if arm[kind])


def running_text(arm: Json, one: Json) -> str:
    accuracy = f", accuracy {one['accuracy']:.1%}" if one["accuracy"] is not None else ""
    left = f", about {clock(one['seconds_left'])} left" if one["seconds_left"] is not None else ""
    return f"  running  {arm['arm']} seed {one['seed']}: step {one['step']:,}/{one['steps']:,}{accuracy}{left}"


def queued_text(arms: Sequence[Json]) -> list[str]:
    """How many wait for what, in SLURM's words."""
    reasons: dict[str, int] = defaultdict(int)
    for arm in arms:
        for one in arm["now_queued"]:
            reasons[f"{one['state'].lower()} ({one['reason']})" if one["reason"] else one["state"].lower()] += 1
    return [f"  queued   {count} trials: {reason}" for reason, count in reasons.items()]


def failed_text(view: Json) -> list[str]:
    """Grouped by cause: the arms, and the commands that help."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for arm in view["arms"]:
        for one in arm["causes"]:
            grouped[one["cause"]].append(f"{arm['arm']} seeds {', '.join(map(str, one['seeds']))}")
    return [
        f"  failed   {cause}\n           {'; '.join(arms)}\n"
        f"           look: ablate logs {view['study']} --failed; again: ablate retry {view['study']}"
        for cause, arms in grouped.items()
    ]


def watch(show: Any, seconds: float) -> None:
    """Calls `show` again and again until Ctrl-C."""
    try:
        while show():
            time.sleep(seconds)
    except KeyboardInterrupt:
        return
