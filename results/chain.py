"""Which trials start from which, as plan.json has it, and what keeps those from beginning that have not begun."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from results import evals, store

Json = dict[str, Any]


def reasons(runs: Path, plan: Json) -> dict[str, str]:
    """Of each trial that is to start from another that is not over, or left no weights: the id and why."""
    return {trial_id: reason for trial_id, (reason, _) in starts(runs, plan).items() if reason}


def starts(runs: Path, plan: Json) -> dict[str, tuple[str, dict[str, float]]]:
    """Of each trial that starts from another: why it cannot begin, "" where it can; what evals say of that one."""
    stages = {stage["name"]: stage for stage in plan.get("stages", [])}
    trials = {key: store.trial(runs, key) for stage in stages.values() for key in seeds(stage).values()}
    states = {key: trial.state() for key, trial in trials.items()}
    found = {}
    for entry in [*stages.values(), *plan["arms"]]:
        before = list(lineage(entry, stages))
        for seed, trial_id in seeds(entry).items() if before else ():
            above = [(stage["name"], seeds(stage)[seed]) for stage in before]
            waits = [f"starts from {name}, which {word(states[key])}" for name, key in above if open_(states[key])]
            nearest = above[0][1]
            found[trial_id] = (waits[-1] if waits else "", probed(trials[nearest], states[nearest]))
    return found


def open_(state: store.TrialState) -> bool:
    return state.status != "finished"


def probed(trial: store.Trial, state: store.TrialState) -> dict[str, float]:
    """The metrics of a trial's evals, as those of a start."""
    known = evals.summary(trial, state.result) if state.result else {}
    return {f"start_{name}": value for one in known.values() for name, value in one["metrics"].items()}


def lineage(entry: Json, stages: Mapping[str, Json]) -> Iterator[Json]:
    """The stages that an arm or a stage starts from, nearest first."""
    while parent := stages.get(entry.get("parent", "")):
        yield parent
        entry = parent


def seeds(entry: Json) -> dict[int, str]:
    """Seed -> the id of its trial."""
    return {trial["seed"]: trial["id"] for trial in entry["trials"]}


def word(state: store.TrialState) -> str:
    if state.status == "failed":
        return f"failed: {state.reason}"
    return {"diverged": "diverged", "running": "is being trained"}.get(state.status, "has not finished")


def for_ever(reason: str) -> bool:
    """Whether what a trial starts from is over and left nothing to start from."""
    return ", which failed" in reason or reason.endswith(", which diverged")
