"""What a plan will do: trials, hours and their source, disk space, and what it can resolve."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablations.execution import retry
from ablations.execution.cleaning import Keep, trials_with_kept_weights
from ablations.execution.machine import cores, default_workers, gpus
from ablations.planning import cheaper, data_summary, estimate, past_trials, resolution
from ablations.planning.jobs import jobs
from ablations.planning.step_times import Device
from ablations.study.naming import ALL_ARMS, matching
from results import store, units
from results.store import evals
from results.store.planned import objective, trained

Json = dict[str, Any]
BYTES_A_PARAMETER = 4
CHECKPOINT = 3 * BYTES_A_PARAMETER  # a parameter's weight and its two moments
CHECKPOINTS = store.KEEP_CHECKPOINTS + 1  # of a running trial: those kept, and the one being written
FILES = 64 * 1024  # the rest of a trial: config, metrics, log, which images were right


def overview(
    plan: Json,
    runs: Path,
    earlier: Sequence[Json],
    device: Device,
    keep: Keep = "all",
    workers: int | None = None,
    arms: Sequence[str] = ALL_ARMS,
) -> Json:
    """The JSON of `ablate plan`. earlier: plans of the same command whose trials this one shares.

    device: whose hours; keep: whose weights stay; workers: concurrent trials, by default as many as this machine runs.
    """
    before = {job.id for other in earlier for job in jobs([other])}
    mine = jobs([plan], arms)
    ids, again = [job.id for job in mine], retry.lost_parents(runs, mine)
    finished = {job.id for job in mine if evals.state(store.trial(runs, job.id), job.evals).over} - again.keys()
    shared = [key for key in ids if key in before and key not in finished]
    todo = [key for key in ids if key not in before and key not in finished]
    untrained = {key for key in todo if key in again or not store.trial(runs, key).state().over}
    cost = estimate.cost([plan], runs, device, untrained)
    resolved = resolution.resolution(plan, runs)
    return {
        "study": plan["study"],
        "recipe": plan["recipe"],
        "trials": {"planned": len(ids), "finished": len(finished), "shared": len(shared), "todo": len(todo)},
        "hours": cost.hours,
        "hours_from": {"device": device.name, "unit": cost.unit, "sources": dict(cost.sources)},
        "disk_bytes": sum((disk := peak_disk(plan, {*ids}, len(todo), keep, workers)).values()),
        "disk": disk,
        "resolvable_difference": resolved["difference"],
        "resolution": resolved,
        "confounds": {one["name"]: one["notes"] for one in chosen(plan, arms) if one["notes"]},
    }


def chosen(plan: Json, arms: Sequence[str]) -> list[Json]:
    """The arms that match any of the globs."""
    named = matching([one["name"] for one in plan["arms"]], arms, plan["name"])
    return [one for one in plan["arms"] if one["name"] in named]


def peak_disk(plan: Json, ids: set[str], todo: int, keep: Keep, workers: int | None) -> dict[str, int]:
    """Peak disk use in bytes: kept weights, checkpoints of concurrent trials, other files."""
    stay = trials_with_kept_weights(keep, [plan])
    trials = [(arm["params"], trial["id"]) for arm in trained(plan) for trial in arm["trials"]]
    trials = [one for one in trials if one[1] in ids]
    ranks = max((past_trials.ranks(arm["config"]) for arm in trained(plan)), default=1)
    running = min(todo, workers or max(1, default_workers(ranks, len(gpus()), cores())))
    return {
        "weights": sum(BYTES_A_PARAMETER * params for params, key in trials if keep == "all" or key in stay),
        "checkpoints": CHECKPOINTS * CHECKPOINT * running * max((params for params, _ in trials), default=0),
        "files": FILES * len(trials),
    }


def render(view: Json, plan: Json, arms: Sequence[str] = ALL_ARMS) -> str:
    """The overview as text. arms: globs."""
    trials = view["trials"]
    lines = [
        f"{plan['name']}: {plan['question']}",
        f"  {arms_text(plan, arms)} x {len(plan['seeds'])} seeds = {trials['planned']} trials: "
        f"{trials['finished']} finished, {trials['shared']} shared, {trials['todo']} to do",
        f"  time    {time_text(view, plan)}",
        f"  disk    {disk_text(view)}",
        f"  resolves {resolution_text(view, plan)}",
    ]
    lines += [f"  data    {data_summary.seen(plan)}"] if "data" in plan else []  # not in plans of before
    lines += [f"  cheaper {line}" for line in cheaper.told(view, plan)]
    lines += [f"  note    {note}" for note in plan.get("notes", [])]
    lines += [f"  {line}" for line in map(expected_text, plan.get("expected", []))]
    notes = {one["name"]: "; ".join(one["notes"]) for one in chosen(plan, arms)}
    width = max(map(len, notes))
    lines += [f"  {name:{width}}  {note or '-'}" for name, note in notes.items()]
    return "\n".join(lines)


def arms_text(plan: Json, globs: Sequence[str] = ALL_ARMS) -> str:
    """The number of arms and stages as text."""
    count, stages = len(chosen(plan, globs)), len(plan.get("stages", []))
    arms = f"{count} arm{'' if count == 1 else 's'}"
    return f"({stages} to start from + {arms})" if stages else arms


def disk_text(view: Json) -> str:
    weights, checkpoints, files = (f"{view['disk'][name] / 1e6:,.1f}" for name in ("weights", "checkpoints", "files"))
    return (
        f"{view['disk_bytes'] / 1e6:,.1f} MB at most: {weights} of weights kept, {checkpoints} of checkpoints "
        f"({CHECKPOINTS} for each trial that runs at once), {files} of other files"
    )


def time_text(view: Json, plan: Json) -> str:
    """The hours and their source as text."""
    about = view["hours_from"]
    origin = estimate.sources_text(about["sources"])
    if "recipe" in about["sources"]:
        took = plan["cost"]["gpu" if about["unit"] == estimate.GPU_HOURS else "cpu"]
        origin += f" ({took['how']}: {took['source']}, {took['device']})"
    return f"{hours_text(view['hours'])} {about['unit']} on {about['device'] or 'any'}" + (
        f", from {origin}" if origin else ""
    )


def hours_text(hours: float) -> str:
    """Hours with two significant digits."""
    if 0 < hours < 0.01:
        return "under 0.01"
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def expected_text(stated: Json) -> str:
    """What the recipe's config reached, or what others reached with other settings, as text."""
    about = units.unit(stated["metric"])
    seeds = f" (n = {stated['n']})" if stated["n"] else ""
    reached = f"{about.value(stated['mean'])}{about.of_value} {units.metric_name(stated['metric'])}{seeds}"
    whose = "expects" if stated["how"] == "measured" else "others reached"
    return f"{whose} {reached}, {stated['how']}: {stated['source']}"


def resolution_text(view: Json, plan: Json) -> str:
    return "\n           ".join(resolution.resolution_lines(view["resolution"], plan["metric"], objective(plan)))
