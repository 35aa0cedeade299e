"""Describe what a plan will do: trials, hours and their source, disk space, what it can resolve."""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from ablations.execution import retry
from ablations.execution.machine import cores, default_workers, gpus
from ablations.planning import cheaper, data_summary, estimate, resolution
from ablations.planning.jobs import jobs, matching_arms
from ablations.planning.resolution import Resolution
from ablations.planning.step_times import Device
from ablations.reporting.cleaning import Keep, trials_with_kept_weights
from ablations.study.naming import ALL_ARMS
from results import store, units
from results.store.planned import objective, trained
from results.store.schemas import Expected, Plan
from results.store.standing import Standings

BYTES_A_PARAMETER = 4
CHECKPOINT = 3 * BYTES_A_PARAMETER  # a parameter's weight and its two moments
CHECKPOINTS = store.KEEP_CHECKPOINTS + 1  # of a running trial: those kept, and the one being written
FILES = 64 * 1024  # the rest of a trial: config, metrics, log, which images were right


@dataclass(frozen=True)
class TrialCounts:
    planned: int
    finished: int
    shared: int  # with an earlier plan of the same command
    todo: int


@dataclass(frozen=True)
class HoursSource:
    """Where the estimated hours come from. sources: key of estimate.SOURCES -> number of arms."""

    device: str
    unit: str
    sources: dict[str, int]


@dataclass(frozen=True)
class Disk:
    """Peak disk use in bytes: kept weights, checkpoints of concurrent trials, other files."""

    weights: int
    checkpoints: int
    files: int


@dataclass(frozen=True)
class Wall:
    """Time on this machine, and the number of cores or GPUs that trials keep busy."""

    seconds: float
    devices: int


@dataclass(frozen=True)
class Overview:
    """The fields that `ablate plan` prints, and with --json returns as an object."""

    study: str
    recipe: str
    trials: TrialCounts
    hours: float
    hours_from: HoursSource
    disk_bytes: int
    disk: Disk
    resolvable_difference: float | None
    resolution: Resolution
    confounds: dict[str, list[str]]
    wall: Wall | None  # None: not here, or nothing to train


def overview(
    plan: Plan,
    runs: Path,
    earlier: Sequence[Plan],
    device: Device,
    keep: Keep = "all",
    workers: int | None = None,
    arms: Sequence[str] = ALL_ARMS,
    here: bool = True,
) -> Overview:
    """Describe what a plan will do.

    earlier: plans of the same command, whose trials this one shares. device: the one that hours are estimated for.
    keep: whose weights stay. workers: concurrent trials, by default as many as this machine runs. here: whether trials
    run on this machine, so that `wall` is estimated.
    """
    before = {job.id for other in earlier for job in jobs([other])}
    mine = jobs([plan], arms)
    ids, again, standings = [job.id for job in mine], retry.lost_parents(runs, mine), Standings(runs)
    finished = {job.id for job in mine if job.standing(standings).over} - again.keys()
    shared = [key for key in ids if key in before and key not in finished]
    todo = [key for key in ids if key not in before and key not in finished]
    untrained = {key for key in todo if key in again or not store.trial(runs, key).state().over}
    cost = estimate.cost([plan], runs, device, untrained)
    resolved, disk = resolution.resolution(plan, runs), peak_disk(plan, {*ids}, len(todo), keep, workers)
    return Overview(
        study=plan.study,
        recipe=plan.recipe,
        trials=TrialCounts(len(ids), len(finished), len(shared), len(todo)),
        hours=cost.hours,
        hours_from=HoursSource(device.name, cost.unit, dict(cost.sources)),
        disk_bytes=disk.weights + disk.checkpoints + disk.files,
        disk=disk,
        resolvable_difference=resolved.difference,
        resolution=resolved,
        confounds={one.name: one.notes for one in matching_arms(plan, arms) if one.notes},
        wall=wall(plan, cost, len(untrained), workers) if here else None,
    )


def wall(plan: Plan, cost: estimate.Cost, todo: int, workers: int | None) -> Wall | None:
    """Estimate how long the trials to do take on this machine; None if there are none."""
    if not todo:
        return None
    at_once, each = concurrent(plan, todo, workers), ranks(plan)
    return Wall(3600 * cost.hours / each * math.ceil(todo / at_once) / todo, at_once * each)


def concurrent(plan: Plan, todo: int, workers: int | None) -> int:
    """Return how many of the trials to do run at once on this machine."""
    return min(todo, workers or max(1, default_workers(ranks(plan), len(gpus()), cores())))


def ranks(plan: Plan) -> int:
    return max((arm.ranks for arm in trained(plan)), default=1)


def peak_disk(plan: Plan, ids: set[str], todo: int, keep: Keep, workers: int | None) -> Disk:
    stay = trials_with_kept_weights(keep, [plan])
    trials = [(arm.params or 0, trial.id) for arm in trained(plan) for trial in arm.trials if trial.id in ids]
    running = concurrent(plan, todo, workers)
    return Disk(
        weights=sum(BYTES_A_PARAMETER * params for params, key in trials if keep == "all" or key in stay),
        checkpoints=CHECKPOINTS * CHECKPOINT * running * max((params for params, _ in trials), default=0),
        files=FILES * len(trials),
    )


def render(view: Overview, plan: Plan, arms: Sequence[str] = ALL_ARMS) -> str:
    """Return the overview as text. arms: globs."""
    trials = view.trials
    lines = [
        f"{plan.name}: {plan.question}",
        f"  {arms_text(plan, arms)} x {len(plan.seeds)} seeds = {trials.planned} trials: "
        f"{trials.finished} finished, {trials.shared} shared, {trials.todo} to do",
        f"  time    {time_text(view, plan)}",
        f"  disk    {disk_text(view)}",
        f"  resolves {resolution_text(view, plan)}",
    ]
    lines += [f"  data    {data_summary.images_text(plan.data, plan)}"] if plan.data else []
    lines += [f"  cheaper {line}" for line in cheaper.suggestions(view.hours, view.hours_from.unit, plan)]
    lines += [f"  note    {note}" for note in plan.notes]
    lines += [f"  {line}" for line in map(expected_text, plan.expected)]
    notes = {one.name: "; ".join(one.notes) for one in matching_arms(plan, arms)}
    width = max(map(len, notes))
    lines += [f"  {name:{width}}  {note or '-'}" for name, note in notes.items()]
    return "\n".join(lines)


def arms_text(plan: Plan, globs: Sequence[str] = ALL_ARMS) -> str:
    """Return the numbers of arms and stages as text."""
    count, stages = len(matching_arms(plan, globs)), len(plan.stages)
    arms = f"{count} arm{'' if count == 1 else 's'}"
    return f"({stages} to start from + {arms})" if stages else arms


def disk_text(view: Overview) -> str:
    weights, checkpoints, files = (f"{size / 1e6:,.1f}" for size in astuple(view.disk))
    return (
        f"{view.disk_bytes / 1e6:,.1f} MB at most: {weights} of weights kept, {checkpoints} of checkpoints "
        f"({CHECKPOINTS} for each trial that runs at once), {files} of other files"
    )


def time_text(view: Overview, plan: Plan) -> str:
    """Return the hours and their source as text."""
    about = view.hours_from
    origin = estimate.sources_text(about.sources)
    if "recipe" in about.sources and plan.cost and (took := plan.cost.of(gpu=about.unit == estimate.GPU_HOURS)):
        origin += f" ({took.how}: {took.source}, {took.device})"
    here = f" ({wall_text(view.wall, about.unit)})" if view.wall else ""
    hours = f"{hours_text(view.hours)} {about.unit} on {about.device or 'any'}{here}"
    return f"{hours}, from {origin}" if origin else hours


def wall_text(took: Wall, unit: str) -> str:
    """Return the time on this machine: "about 8 min on 2 cores here"."""
    minutes = took.seconds / 60
    hours = f"about {minutes:.0f} min" if minutes < 120 else f"about {minutes / 60:.0f} h"
    length = "under a minute" if minutes < 1 else hours
    device = "GPU" if unit == estimate.GPU_HOURS else "core"
    return f"{length} on {took.devices} {device}{'' if took.devices == 1 else 's'} here"


def hours_text(hours: float) -> str:
    """Return hours with two significant digits."""
    if 0 < hours < 0.01:
        return "under 0.01"
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def expected_text(stated: Expected) -> str:
    """Say what the recipe's config, or others with other settings, reached."""
    about = units.unit(stated.metric)
    seeds = f" (n = {stated.n})" if stated.n else ""
    reached = f"{about.value(stated.mean)}{about.of_value} {units.metric_name(stated.metric)}{seeds}"
    whose = "expects" if stated.how == "measured" else "others reached"
    return f"{whose} {reached}, {stated.how}: {stated.source}"


def resolution_text(view: Overview, plan: Plan) -> str:
    return "\n           ".join(resolution.resolution_lines(view.resolution, plan.metric, objective(plan)))
