"""The overview of a plan: its trials, hours, disk space, and the differences that its seeds can resolve."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from ablations.execution import reopen
from ablations.execution.race import left_out
from ablations.jobs import Keep, jobs, kept_weights, matching_arms
from ablations.machine import cores, default_workers, gpus
from ablations.planning import estimate, resolution
from ablations.planning.resolution import Resolution
from ablations.study.naming import ALL_ARMS
from ablations.trainables.trainable import find
from commonfloor.messages import joined_names
from results import store, units
from results.statistics.declared import declared_earlier
from results.statistics.race import expected_saving
from results.store import ledger
from results.store.schemas.plans import Plan, PlannedData
from results.store.schemas.stated import Expected
from results.store.standing import Standings
from results.tables.declared_first import changes_text, claim_warnings, late_warnings

BYTES_A_PARAMETER = 4
CHECKPOINT = 3  # times the weights: AdamW's two moments too
CHECKPOINTS = store.KEEP_CHECKPOINTS + 1  # per running trial: the kept checkpoints and the one being written
MOST_NAMED = 12  # files of code in a plan
FILES = 64 * 1024  # bytes of a trial's other files: config, metrics, log, correctness of each test image

DAY = 24.0
EXPENSIVE = {estimate.CORE_HOURS: DAY, estimate.GPU_HOURS: 10 * DAY}  # the minimum hours of an expensive plan
SAVES = 0.7  # the largest fraction of the hours that may remain after a suggested change


@dataclass(frozen=True)
class TrialCounts:
    planned: int
    finished: int  # includes diverged trials, but not parents to train again because their weights are gone
    shared: int  # unfinished, and in an earlier plan of the command
    todo: int  # all other unfinished trials


@dataclass(frozen=True)
class RaceSaving:
    stopped: int  # trials that are left out so far
    equal: float  # the expected share of an arm's trials that are saved, if it equals the baseline
    worse: float  # the same if it is worse by one standard deviation of differences


@dataclass(frozen=True)
class HoursSource:
    device: str
    unit: str
    sources: dict[str, int]  # key of estimate.SOURCES -> number of arms


@dataclass(frozen=True)
class Disk:  # at its peak, in bytes
    weights: int  # final ones that are kept
    checkpoints: int  # of trials that run at once
    files: int  # all others


@dataclass(frozen=True)
class Wall:
    seconds: float  # of wall-clock time on this machine
    devices: int  # cores or GPUs that trials keep busy


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
    taken: int  # trials that are finished in a source of --from, and not here
    race: RaceSaving | None = None  # None without a race


def overview(
    plan: Plan,
    runs: Path,
    earlier: Sequence[Plan],
    device: estimate.Device,
    keep: Keep = "all",
    workers: int | None = None,
    arms: Sequence[str] = ALL_ARMS,
    here: bool = True,
    plugins: Mapping[str, Sequence[str]] | None = None,
    taken: Collection[str] = (),
) -> Overview:
    """Return the overview of a plan.

    earlier: plans of the same command, whose trials are not counted again. here: whether trials run on this machine.
    plugins: file -> the local files that it imports. taken: ids of trials that a source of --from has finished.
    """
    before: set[str] = set()
    for other in earlier:
        for entry in other.entries:
            before.update(entry.ids.values())
    planned = jobs([plan], arms)
    retrained = reopen.lost_parents(runs, planned)
    standings = Standings(runs)
    stopped = left_out(runs, [plan])
    counts = Counter[str]()
    untrained: set[str] = set()
    for job in planned:
        if job.id not in retrained and job.standing(standings).is_over:
            counts["finished"] += 1
        elif job.id in stopped:
            counts["stopped"] += 1
        elif job.id in before:
            counts["shared"] += 1
        elif job.id in taken:
            counts["taken"] += 1
        else:
            counts["todo"] += 1
            if job.id in retrained or not store.trial(runs, job.id).state().is_over:
                untrained.add(job.id)
    cost = estimate.cost([plan], runs, device, untrained)
    resolved = resolution.resolution(plan, runs)
    disk = peak_disk(plan, {job.id for job in planned}, counts["todo"], keep, workers)
    race = None
    if plan.race:
        seeds = len(plan.seeds)
        race = RaceSaving(counts["stopped"], expected_saving(seeds, 0.0), expected_saving(seeds, -1.0))
    return Overview(
        study=plan.study,
        recipe=plan.recipe,
        trials=TrialCounts(len(planned), counts["finished"], counts["shared"], counts["todo"]),
        hours=cost.hours,
        hours_from=HoursSource(device.name, cost.unit, dict(cost.sources)),
        disk_bytes=disk.weights + disk.checkpoints + disk.files,
        disk=disk,
        resolvable_difference=resolved.difference,
        resolution=resolved,
        confounds={arm.name: arm.notes for arm in matching_arms(plan, arms) if arm.notes},
        declared_first=declared_first(plan, runs),
        wall=wall_time(plan, cost, len(untrained), workers) if here else None,
        plugins=plugins or {},
        taken=counts["taken"],
        race=race,
    )


def declared_first(plan: Plan, runs: Path) -> list[str]:
    """Return what the plan declares after there were results, otherwise than was declared before, as text."""
    now = ledger.declaration(plan, ended=ledger.ended_trials(runs, plan))
    declared = ledger.with_declarations(plan, [*ledger.read_declarations(runs), now])
    changes = [changes_text(earlier, declared) for earlier in declared_earlier(declared)]
    return [*changes, *claim_warnings(declared), *late_warnings(declared)]


def wall_time(plan: Plan, cost: estimate.EstimatedCost, todo: int, workers: int | None) -> Wall | None:
    if not todo:
        return None
    at_once = concurrent_trials(plan, todo, workers)
    ranks = largest_ranks(plan)
    return Wall(3600 * cost.hours / ranks * math.ceil(todo / at_once) / todo, at_once * ranks)


def concurrent_trials(plan: Plan, todo: int, workers: int | None) -> int:
    return min(todo, workers or max(1, default_workers(largest_ranks(plan), len(gpus()), cores())))


def largest_ranks(plan: Plan) -> int:
    trainable = find(plan.trainable)
    return max((trainable.resources(entry.config).gpus for entry in plan.entries), default=1)


def peak_disk(plan: Plan, ids: set[str], todo: int, keep: Keep, workers: int | None) -> Disk:
    is_kept = kept_weights(keep, [plan])
    kept = largest = trials = 0
    for entry in plan.entries:
        size = BYTES_A_PARAMETER * (entry.params or 0)
        here = ids.intersection(entry.ids.values())
        trials += len(here)
        kept += size * sum(map(is_kept, here))
        if here:
            largest = max(largest, size)
    checkpoints = CHECKPOINTS * CHECKPOINT * concurrent_trials(plan, todo, workers) * largest
    return Disk(kept, checkpoints, FILES * trials)


def render(view: Overview, plan: Plan, arms: Sequence[str] = ALL_ARMS) -> str:
    shown = matching_arms(plan, arms)
    resolved = resolution.resolution_lines(view.resolution, plan.primary_metric)
    lines = [
        f"{plan.name}: {plan.question}",
        f"  {count_text(view, plan, len(shown))}",
        f"  time    {time_text(view, plan)}",
        f"  disk    {disk_text(view)}",
        "  resolves " + "\n           ".join(resolved),
    ]
    if view.race:
        shares = f"{view.race.equal:.0%} of its trials if it equals the baseline, {view.race.worse:.0%} if it is worse"
        lines.append(f"  race    an arm saves about {shares} by a standard deviation of the differences")
    for data in dict.fromkeys(arm.data or plan.data for arm in plan.arms):
        if data:
            lines.append(f"  data    {images_text(plan, data)}")
    for file, imported in view.plugins.items():
        lines.append(f"  plug-in {file}")
        if imported:
            lines[-1] += f", with {', '.join(imported)}"
    trainable = find(plan.trainable)
    if trainable.files:
        lines.append(f"  code    {code_text(trainable.files)}")
    if trainable.unseen:
        lines.append(
            f"  note    what {joined_names(trainable.unseen)} loads is not in the ids: name its files in `code`"
        )
    lines += [f"  cheaper {line}" for line in suggestions(view.hours, view.hours_from.unit, plan)]
    lines += [f"  note    {note}" for note in [*view.declared_first, *plan.notes]]
    _, why_slow = trainable.slowdown(plan.baseline_arm.config, view.hours_from.unit == estimate.GPU_HOURS)
    if view.wall and why_slow:
        lines.append(f"  note    {why_slow}")
    if view.trials.finished < view.trials.planned:
        for stated in plan.expected:
            if stated.metric == plan.metric:
                lines.append(f"  {expected_text(stated, plan)}")
    width = max(len(arm.name) for arm in shown)
    lines += [f"  {arm.name:{width}}  {'; '.join(arm.notes) or '-'}" for arm in shown]
    return "\n".join(lines)


def code_text(files: Sequence[str]) -> str:
    if len(files) <= MOST_NAMED:
        return ", ".join(files)
    names: list[str] = []
    folders = Counter[str]()
    for name in files:
        first, slash, _ = name.partition("/")
        if slash:
            folders[first] += 1
        else:
            names.append(name)
    for folder, count in folders.items():
        names.append(f"{folder}/ ({units.amount_text(count, 'file')})")
    return ", ".join(names)


def count_text(view: Overview, plan: Plan, arms: int) -> str:
    entries = units.amount_text(arms, "arm")
    if plan.stages:
        entries = f"({len(plan.stages)} to start from + {entries})"
    trials = view.trials
    planned = f"{entries} x {units.amount_text(len(plan.seeds), 'seed')} = {units.amount_text(trials.planned, 'trial')}"
    text = f"{planned}: {trials.finished} finished, {trials.shared} shared, {trials.todo} to do"
    if view.race and view.race.stopped:
        text += f", {view.race.stopped} saved by the race"
    return f"{text}, {view.taken} to take (--from)" if view.taken else text


def disk_text(view: Overview) -> str:
    total, weights, checkpoints, files = (f"{size / 1e6:,.1f}" for size in (view.disk_bytes, *astuple(view.disk)))
    checkpoints += f" of checkpoints ({CHECKPOINTS} for each trial that runs at once)"
    return f"{total} MB at most: {weights} of weights kept, {checkpoints}, {files} of other files"


def time_text(view: Overview, plan: Plan) -> str:
    unit = view.hours_from.unit
    sources = view.hours_from.sources
    if sources.keys() == {"unknown"}:
        return "unknown: no trial has finished on this device"
    device = view.hours_from.device or f"any {unit.partition('-')[0]}"
    origin = estimate.sources_text(sources, [plan])
    on_gpu = unit == estimate.GPU_HOURS
    stated = plan.cost.time_on(on_gpu) if plan.cost else None
    if "recipe" in sources and stated:
        origin += f" ({stated.how}: {stated.source}, {stated.device})"
        if not estimate.Device(on_gpu, view.hours_from.device).matches(stated.device):
            origin += f", not scaled to {view.hours_from.device}"
        if len(sources) == 1:
            device = stated.device
    if "flops" in sources and view.wall:
        origin += ": --probe measures them here"
    hours = f"{estimate.hours_text(view.hours, unit)} on {device}"
    if view.wall:
        hours += f" ({wall_text(view.wall, unit)})"
    return f"{hours}, from {origin}" if origin else hours


def wall_text(took: Wall, unit: str) -> str:
    minutes = took.seconds / 60
    length = f"about {minutes / 60:.0f} h"
    if minutes < 1:
        length = "under a minute"
    elif minutes < 120:
        length = f"about {minutes:.0f} min"
    return f"{length} on {units.amount_text(took.devices, unit.partition('-')[0])} here"


def expected_text(stated: Expected, plan: Plan) -> str:
    metric = plan.metric_named(stated.metric)
    value = f"{metric.value_text(stated.mean)}{metric.unit} {metric.title}"
    if stated.n:
        value += f" (n = {stated.n})"
    whose = "expects" if stated.how == "measured" else "others reached"
    return f"{whose} {value}, {stated.how}: {stated.source}"


def suggestions(hours: float, unit: str, plan: Plan) -> list[str]:
    """Return a line, in a list, with an expensive plan's days and any large saving; [] for other plans."""
    if hours < EXPENSIVE[unit]:
        return []
    days = f"{hours:,.0f} {unit} are {hours / DAY:,.0f} days on one {unit.partition('-')[0]}"
    varied = {*plan.factors, *plan.curves, *plan.tune}
    fraction, setting = min(find(plan.trainable).cheaper(plan.baseline_arm.config, varied), default=(1.0, ""))
    if fraction > SAVES:
        return [days]
    return [f"{days}; with {setting}, about {fraction * hours:,.0f} {unit}"]


def images_text(plan: Plan, data: PlannedData) -> str:
    arms = [arm for arm in plan.arms if arm.data in (None, data)]
    config = plan.baseline_arm.config
    if len(arms) < len(plan.arms):
        config = plan.arms_by_name[arms[0].baseline].config
    validation = round(config["val_fraction"] * data.train)
    train = round(config["data_fraction"] * (data.train - validation))
    text = f"{data.name}: about {train:,} images to train, {validation:,} to validate, {data.test:,} to test"
    if data.folds:
        text += f" (one of {data.folds} folds)"
    text += f", {data.classes:,} classes, {data.image_size} pixels wide, trained at {config['image_size']}"
    tokens = {arm.tokens for arm in arms if arm.tokens}
    if tokens:
        text += f", {' to '.join(map(str, sorted({min(tokens), max(tokens)})))} tokens"
    return text
