"""The overview of a plan: its trials, hours, disk space, and the differences that its seeds can resolve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from ablations.execution import retry
from ablations.jobs import Keep, jobs, kept_weights, matching_arms
from ablations.machine import cores, default_workers, gpus
from ablations.planning import estimate, resolution
from ablations.planning.resolution import Resolution
from ablations.planning.step_times import Device
from ablations.study.naming import ALL_ARMS
from ablations.trainables.trainable import find
from results import store, units
from results.statistics.declared import declared_earlier
from results.store import ledger
from results.store.schemas import Expected, Plan, PlannedData
from results.store.standing import Standings
from results.tables.declared_first import changes_text, claim_warnings, late_warnings

BYTES_A_PARAMETER = 4
CHECKPOINT = 3 * BYTES_A_PARAMETER  # a parameter's value and AdamW's two moments
CHECKPOINTS = store.KEEP_CHECKPOINTS + 1  # per running trial: the kept checkpoints and the one being written
FILES = 64 * 1024  # bytes of a trial's other files: config, metrics, log, correctness of each test image

DAY = 24.0
EXPENSIVE = {estimate.CORE_HOURS: DAY, estimate.GPU_HOURS: 10 * DAY}  # the minimum hours of an expensive plan
SAVES = 0.7  # the largest fraction of the hours that may remain after a suggested change


@dataclass(frozen=True)
class TrialCounts:
    """How many trials of a plan are finished, shared with other plans, or to do."""

    planned: int
    finished: int  # includes diverged trials, but not parents to train again because their weights are gone
    shared: int  # unfinished, and in an earlier plan of the command
    todo: int  # all other unfinished trials


@dataclass(frozen=True)
class HoursSource:
    """The device and the unit of the estimated hours, and their sources."""

    device: str
    unit: str
    sources: dict[str, int]  # key of estimate.SOURCES -> number of arms


@dataclass(frozen=True)
class Disk:
    """The peak disk use in bytes: kept final weights, checkpoints of trials that run at once, and other files."""

    weights: int
    checkpoints: int
    files: int


@dataclass(frozen=True)
class Wall:
    """The wall-clock time on this machine, and the number of cores or GPUs that trials keep busy."""

    seconds: float
    devices: int


@dataclass(frozen=True)
class Overview:
    """What `ablate plan` prints about one plan, as text or, with --json, as an object."""

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
    declared_first: list[str]  # what the plan declares otherwise than was declared before there were results
    wall: Wall | None  # None: trials run elsewhere, or nothing is left to train
    plugins: Mapping[str, Sequence[str]]  # file -> the local files that it imports, whose edits change ids too


def overview(
    plan: Plan,
    runs: Path,
    earlier: Sequence[Plan],
    device: Device,
    keep: Keep = "all",
    workers: int | None = None,
    arms: Sequence[str] = ALL_ARMS,
    here: bool = True,
    plugins: Mapping[str, Sequence[str]] | None = None,
) -> Overview:
    """Return the overview of a plan.

    earlier: plans of the same command, whose trials are not counted again. keep: which weights stay on disk. workers:
    concurrent trials; None for this machine's default. arms: glob patterns. here: whether trials run on this machine.
    plugins: file -> the local files that it imports. Raises ValueError if a pattern matches no arm or a file in `runs`
    is unreadable.
    """
    before = {trial.id for other in earlier for entry in other.entries for trial in entry.trials}
    mine = jobs([plan], arms)
    ids, again, standings = [job.id for job in mine], retry.lost_parents(runs, mine), Standings(runs)
    finished = {job.id for job in mine if job.standing(standings).is_over} - again.keys()
    shared = [key for key in ids if key in before and key not in finished]
    todo = [key for key in ids if key not in before and key not in finished]
    untrained = {key for key in todo if key in again or not store.trial(runs, key).state().is_over}
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
        declared_first=declared_first(plan, runs),
        wall=wall_time(plan, cost, len(untrained), workers) if here else None,
        plugins=plugins or {},
    )


def declared_first(plan: Plan, runs: Path) -> list[str]:
    """Return what the plan declares after there were results, otherwise than was declared before, as text."""
    now = ledger.declaration(plan, ended=ledger.ended_trials(runs, plan))
    known = ledger.with_declarations(plan, [*ledger.read_declarations(runs), now])
    changes = [changes_text(earlier, known) for earlier in declared_earlier(known)]
    return [*changes, *claim_warnings(known), *late_warnings(known)]


def wall_time(plan: Plan, cost: estimate.Cost, todo: int, workers: int | None) -> Wall | None:
    """Return the wall-clock time of the remaining trials, or None if none remain. todo, cost: their number and cost."""
    if not todo:
        return None
    at_once, each = concurrent_trials(plan, todo, workers), largest_ranks(plan)
    return Wall(3600 * cost.hours / each * math.ceil(todo / at_once) / todo, at_once * each)


def concurrent_trials(plan: Plan, todo: int, workers: int | None) -> int:
    return min(todo, workers or max(1, default_workers(largest_ranks(plan), len(gpus()), cores())))


def largest_ranks(plan: Plan) -> int:
    """Return the number of processes of the plan's largest trial."""
    return max((arm.ranks for arm in plan.entries), default=1)


def peak_disk(plan: Plan, ids: set[str], todo: int, keep: Keep, workers: int | None) -> Disk:
    """Return the peak disk use of the trials with these ids. todo: the number of trials that are still to run."""
    stays = kept_weights(keep, [plan])
    trials = [(arm.params or 0, trial.id) for arm in plan.entries for trial in arm.trials if trial.id in ids]
    running = concurrent_trials(plan, todo, workers)
    return Disk(
        weights=sum(BYTES_A_PARAMETER * params for params, key in trials if stays(key)),
        checkpoints=CHECKPOINTS * CHECKPOINT * running * max((params for params, _ in trials), default=0),
        files=FILES * len(trials),
    )


def render(view: Overview, plan: Plan, arms: Sequence[str] = ALL_ARMS) -> str:
    trials, shown, stages = view.trials, matching_arms(plan, arms), len(plan.stages)
    counted, seeds = units.amount_text(len(shown), "arm"), units.amount_text(len(plan.seeds), "seed")
    planned = units.amount_text(trials.planned, "trial")
    resolved = resolution.resolution_lines(view.resolution, plan.primary_metric)
    weights, checkpoints, files = (f"{size / 1e6:,.1f}" for size in astuple(view.disk))
    lines = [
        f"{plan.name}: {plan.question}",
        f"  {f'({stages} to start from + {counted})' if stages else counted} x {seeds} = "
        f"{planned}: {trials.finished} finished, {trials.shared} shared, {trials.todo} to do",
        f"  time    {time_text(view, plan)}",
        f"  disk    {view.disk_bytes / 1e6:,.1f} MB at most: {weights} of weights kept, {checkpoints} of checkpoints "
        f"({CHECKPOINTS} for each trial that runs at once), {files} of other files",
        "  resolves " + "\n           ".join(resolved),
    ]
    lines += [f"  data    {images_text(plan, plan.data)}"] if plan.data else []
    lines += [f"  plug-in {', with '.join(filter(None, [file, ', '.join(own)]))}" for file, own in view.plugins.items()]
    lines += [f"  cheaper {line}" for line in suggestions(view.hours, view.hours_from.unit, plan)]
    lines += [f"  note    {note}" for note in [*view.declared_first, *plan.notes, *precision_notes(view, plan)]]
    if trials.finished < trials.planned:
        lines += [f"  {expected_text(one, plan)}" for one in plan.expected if one.metric == plan.metric]
    width = max(len(arm.name) for arm in shown)
    lines += [f"  {arm.name:{width}}  {'; '.join(arm.notes) or '-'}" for arm in shown]
    return "\n".join(lines)


def precision_notes(view: Overview, plan: Plan) -> list[str]:
    """Return a note, in a list, if this machine is slower than others for the trials; otherwise []."""
    on_gpu = view.hours_from.unit == estimate.GPU_HOURS
    _, why = find(plan.trainable).slowdown(plan.baseline_arm.config, on_gpu)
    return [why] if view.wall and why else []


def time_text(view: Overview, plan: Plan) -> str:
    """Return text with the hours, their device and sources, and the wall-clock time of trials that run here."""
    about, gpu = view.hours_from, view.hours_from.unit == estimate.GPU_HOURS
    if about.sources.keys() == {"unknown"}:
        return "unknown: no trial has finished on this device"
    device, origin = about.device or f"any {about.unit.partition('-')[0]}", estimate.sources_text(about.sources)
    if "recipe" in about.sources and plan.cost and (took := plan.cost.time_on(gpu)):
        origin += f" ({took.how}: {took.source}, {took.device})"
        origin += "" if Device(gpu, about.device).matches(took.device) else f", not scaled to {about.device}"
        device = took.device if len(about.sources) == 1 else device
    if "flops" in about.sources and view.wall:
        origin += ": --probe measures them here"
    here = f" ({wall_text(view.wall, about.unit)})" if view.wall else ""
    hours = f"{estimate.hours_text(view.hours, about.unit)} on {device}{here}"
    return f"{hours}, from {origin}" if origin else hours


def wall_text(took: Wall, unit: str) -> str:
    minutes = took.seconds / 60
    hours = f"about {minutes:.0f} min" if minutes < 120 else f"about {minutes / 60:.0f} h"
    length = "under a minute" if minutes < 1 else hours
    device = "GPU" if unit == estimate.GPU_HOURS else "core"
    return f"{length} on {units.amount_text(took.devices, device)} here"


def expected_text(stated: Expected, plan: Plan) -> str:
    """Return text with the value that the recipe expects or others reached, how it is known, and its source."""
    metric = plan.metric_named(stated.metric)
    seeds = f" (n = {stated.n})" if stated.n else ""
    reached = f"{metric.value_text(stated.mean)}{metric.unit} {metric.title}{seeds}"
    whose = "expects" if stated.how == "measured" else "others reached"
    return f"{whose} {reached}, {stated.how}: {stated.source}"


def suggestions(hours: float, unit: str, plan: Plan) -> list[str]:
    """Return a line, in a list, with an expensive plan's days and any large saving; [] for other plans."""
    if hours < EXPENSIVE[unit]:
        return []
    days = f"{hours:,.0f} {unit} are {hours / DAY:,.0f} days on one {unit.partition('-')[0]}"
    varied = {*plan.factors, *plan.curves, *plan.tune}
    best = min(find(plan.trainable).cheaper(plan.baseline_arm.config, varied), default=None)
    if best is None or best[0] > SAVES:
        return [days]
    fraction, setting = best
    return [f"{days}; with {setting}, about {fraction * hours:,.0f} {unit}"]


def images_text(plan: Plan, data: PlannedData) -> str:
    config, tokens = plan.baseline_arm.config, sorted({arm.tokens for arm in plan.arms if arm.tokens})
    validation = round(config["val_fraction"] * data.train)
    train = round(config["data_fraction"] * (data.train - validation))
    folds = f" (one of {data.folds} folds)" if data.folds else ""
    counted = f", {' to '.join(map(str, dict.fromkeys([tokens[0], tokens[-1]])))} tokens" if tokens else ""
    return (
        f"{data.name}: about {train:,} images to train, {validation:,} to validate, {data.test:,} to test{folds}, "
        f"{data.classes:,} classes, {data.image_size} pixels wide, trained at {config['image_size']}{counted}"
    )
