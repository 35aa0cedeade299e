"""What a plan will do before it does it: trials, hours from past trials, disk, and what it could resolve."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablations.plan import jobs
from results import store

Json = dict[str, Any]
BYTES_A_PARAMETER = 4  # the weights that are kept; everything else of a trial is small beside them


def overview(plan: Json, runs: Path, earlier: Sequence[Json]) -> Json:
    """The JSON of `ablate plan`. `earlier`: plans of the same command whose trials this one shares."""
    before = {job.id for other in earlier for job in jobs([other])}
    ids = [job.id for job in jobs([plan])]
    finished = [key for key in ids if store.trial(runs, key).state().over]
    shared = [key for key in ids if key in before and key not in finished]
    todo = [key for key in ids if key not in before and key not in finished]
    return {
        "study": plan["study"],
        "recipe": plan["recipe"],
        "trials": {"planned": len(ids), "finished": len(finished), "shared": len(shared), "todo": len(todo)},
        "hours": hours(plan, runs, set(todo)),
        "disk_bytes": sum(BYTES_A_PARAMETER * arm["params"] * len(arm["trials"]) for arm in plan["arms"]),
        "resolvable_difference": resolvable(plan, runs),
        "confounds": {arm["name"]: arm["notes"] for arm in plan["arms"] if arm["notes"]},
    }


def hours(plan: Json, runs: Path, todo: set[str]) -> float | None:
    """Worker-hours of what is to do, from past trials of the same arms; None where an arm has no past trial."""
    total = 0.0
    for arm in plan["arms"]:
        missing = sum(trial["id"] in todo for trial in arm["trials"])
        results = [store.trial(runs, trial["id"]).state().result for trial in arm["trials"]]
        past = [result["train_seconds"] for result in results if result is not None]
        if missing and not past:
            return None
        total += missing * (sum(past) / len(past)) if missing else 0.0
    return total / 3600


def resolvable(plan: Json, runs: Path) -> float | None:
    """The smallest difference that the planned n can resolve, from the differences seen so far."""
    raise NotImplementedError
