"""What a plan will do before it does it: trials, hours from past trials, disk, and what it could resolve."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ablations.cleaning import Keep, keeps
from ablations.jobs import jobs, read
from ablations.runner import cores, gpus
from results import evals, looks, stats, store
from results.contrast import sample
from results.study import StudyResults, load

Json = dict[str, Any]
BYTES_A_PARAMETER = 4
CHECKPOINT = 3 * BYTES_A_PARAMETER  # a parameter's weight and its two moments
CHECKPOINTS = store.KEEP_CHECKPOINTS + 1  # of a running trial: those kept, and the one being written
FILES = 64 * 1024  # the rest of a trial: config, metrics, log, which images were right


def overview(plan: Json, runs: Path, earlier: Sequence[Json], keep: Keep = "all", workers: int | None = None) -> Json:
    """The JSON of `ablate plan`. `earlier`: plans of the same command whose trials this one shares.

    keep: whose weights stay; workers: trials at a time, by default as many as this machine would run.
    """
    before = {job.id for other in earlier for job in jobs([other])}
    ids = [job.id for job in jobs([plan])]
    finished = [key for key in ids if evals.state(store.trial(runs, key), plan["evals"]).over]
    shared = [key for key in ids if key in before and key not in finished]
    todo = [key for key in ids if key not in before and key not in finished]
    return {
        "study": plan["study"],
        "recipe": plan["recipe"],
        "trials": {"planned": len(ids), "finished": len(finished), "shared": len(shared), "todo": len(todo)},
        "hours": hours(plan, runs, {key for key in todo if not store.trial(runs, key).state().over}),
        "disk_bytes": sum((disk := peak_disk(plan, len(todo), keep, workers)).values()),
        "disk": disk,
        "resolvable_difference": resolvable(plan, runs),
        "confounds": {arm["name"]: arm["notes"] for arm in plan["arms"] if arm["notes"]},
    }


def peak_disk(plan: Json, todo: int, keep: Keep, workers: int | None) -> dict[str, int]:
    """Bytes on disk when most is there, by what they are: weights kept, checkpoints of what runs at once, the rest."""
    trials = [(arm["params"], trial["id"]) for arm in plan["arms"] for trial in arm["trials"]]
    running = min(todo, workers or len(gpus()) or cores())
    return {
        "weights": sum(BYTES_A_PARAMETER * params for params, key in trials if keeps(keep, key, [plan])),
        "checkpoints": CHECKPOINTS * CHECKPOINT * running * max((params for params, _ in trials), default=0),
        "files": FILES * len(trials),
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
    """The smallest difference that the planned seeds resolve; None before two pairs of the study are finished.

    The spread is that of the study's own differences so far, pooled over its arms and raised to its upper 80% bound.
    """
    if read(runs, plan["name"]) is None:
        return None
    (study,) = load(runs, [plan["name"]])
    sd, freedom = stats.pooled_sd(list(differences(study)))
    if not freedom or not sd > 0:
        return None
    tests = max(plan["family"], 1) * looks.factor(plan)
    return stats.resolvable_difference(len(plan["seeds"]), stats.sd_bound(sd, freedom), tests)


def differences(study: StudyResults) -> Iterator[np.ndarray]:
    """Of each arm from its baseline, per seed that both finished."""
    samples = {arm["name"]: sample(study, arm["name"], study.plan["metric"]) for arm in study.plan["arms"]}
    for arm in study.plan["arms"]:
        mine, other = samples[arm["name"]].values, samples[arm["baseline"]].values
        if arm["name"] != arm["baseline"]:
            yield np.array([mine[seed] - other[seed] for seed in sorted(mine.keys() & other.keys())])


def render(view: Json, plan: Json) -> str:
    """For a person."""
    trials = view["trials"]
    lines = [
        f"{plan['name']}: {plan['question']}",
        f"  {len(plan['arms'])} arms x {len(plan['seeds'])} seeds = {trials['planned']} trials: "
        f"{trials['finished']} finished, {trials['shared']} shared, {trials['todo']} to do",
        f"  time    {time_text(view)}",
        f"  disk    {disk_text(view)}",
        f"  resolves {resolves_text(view, plan)}",
    ]
    notes = {arm["name"]: "; ".join(arm["notes"]) for arm in plan["arms"]}
    width = max(map(len, notes))
    lines += [f"  {name:{width}}  {note or '-'}" for name, note in notes.items()]
    return "\n".join(lines)


def disk_text(view: Json) -> str:
    weights, checkpoints, files = (f"{view['disk'][name] / 1e6:,.1f}" for name in ("weights", "checkpoints", "files"))
    return (
        f"{view['disk_bytes'] / 1e6:,.1f} MB at most: {weights} of weights kept, {checkpoints} of checkpoints "
        f"({CHECKPOINTS} for each trial that runs at once), {files} of other files"
    )


def time_text(view: Json) -> str:
    if view["hours"] is None:
        return "unknown: no past trial of some arm in this run directory"
    return f"{view['hours']:.2f} worker-hours, from past trials of the same arms"


def resolves_text(view: Json, plan: Json) -> str:
    difference, margin = view["resolvable_difference"], plan["margin"]
    if difference is None:
        return "unknown: no differences in this run directory yet"
    text = f"differences of {difference:.3g} in {plan['metric']} (80% power, spread of the differences so far)"
    return text + (f"; more than the margin of {margin:g}" if margin and difference > margin else "")
