"""Estimate the time of trials on a device, with the source of each estimate.

The training time comes from the first source in SOURCES that is known. The time of validations and test follows
from the number of their images. Evals are not included.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ablations.execution import reopen
from ablations.execution.retry_rules import read_or_none
from ablations.jobs import Job, unfinished
from ablations.provenance import source_digest
from ablations.trainables.trainable import Trainable, find, is_trial_id
from commonfloor.files import refuse_links
from results import store
from results.store import gate_files
from results.store.plan_files import parent_setting
from results.store.schemas.base import Settings
from results.store.schemas.plans import Entry, Plan
from results.store.schemas.step_times import StepTime, StepTimes
from results.store.schemas.trials import Environment
from results.units import amount_text, duration_text

ENOUGH = 20  # the largest number of past trials that are used per arm
EACH = 3  # the largest number of past trials of another arm whose speed is used
ALL = 60  # the number of past trials of other arms from which on no further arm is read
STEPS = 50  # in a measurement of `ablate plan --probe`
START_SECONDS = 5.0  # to start a worker and load its data
# Cautious training FLOPs per second of a worker: a measured CPU core, and a tenth of an A100's peak.
CORE_FLOPS, GPU_FLOPS = 5e9, 3e13
CORE_HOURS, GPU_HOURS = "core-hours", "GPU-hours"

SOURCES = {  # name of a source, best first -> text
    "past": "past trials of {arms} on this device",
    "probe": "a probe of {arms} on this device (50 steps each)",
    "others": "past trials of other arms on this device for {arms}, {scaled}",
    "recipe": "the recipe for {arms}, {scaled}",
    "flops": "nothing but training FLOPs for {arms}",
    "unknown": "0 for {arms}, of which no trial has finished on this device",
}


@dataclass(frozen=True)
class PastTraining:
    """How long a trial was trained, or None if it did not finish, and where."""

    seconds: float | None
    environment: Environment


@dataclass(frozen=True)
class Device:
    """A GPU or a CPU core. name: the vendor's name or a part of it; "" for any device."""

    gpu: bool
    name: str = ""

    def ran_attempt(self, env: Environment, threads: int | None) -> bool:
        """Return whether an attempt ran on this device, with `threads` threads on a CPU."""
        if env.accelerator and (env.accelerator == "cuda") != self.gpu:  # "" in earlier versions
            return False
        has_other_threads = not self.gpu and env.threads not in (None, threads)
        return self.matches(env.device) and not has_other_threads

    def matches(self, name: str) -> bool:
        """Return whether `name` names this device. SLURM's a100 matches NVIDIA's A100-SXM4-80GB."""
        return normalized(self.name) in normalized(name)


def normalized(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


@dataclass(frozen=True)
class EstimatedCost:
    """The total cost of trials on a device, in core-hours or GPU-hours. sources: key of SOURCES -> number of arms."""

    hours: float
    device: Device
    sources: Mapping[str, int]

    @property
    def unit(self) -> str:
        return GPU_HOURS if self.device.gpu else CORE_HOURS

    @property
    def text(self) -> str:
        return hours_text(self.hours, self.unit)


def hours_text(hours: float, unit: str) -> str:
    if 0 < hours < 0.01:
        return f"under 0.01 {unit}"
    if hours < 10:
        return f"{hours:.2g} {unit}"
    return f"{hours:,.0f} {unit}"


def sources_text(sources: Mapping[str, int], plans: Iterable[Plan]) -> str:
    """Return where hours are from, as text. sources: key of SOURCES -> number of arms of the plans."""
    knows_flops = any(entry.flops for plan in plans for entry in plan.entries)
    scaled = "in proportion to training FLOPs" if knows_flops else "as if all took equally long"
    texts = []
    for name, text in SOURCES.items():
        if name in sources:
            texts.append(text.format(arms=amount_text(sources[name], "arm"), scaled=scaled))
    return "; ".join(texts)


def local_device(plans: Sequence[Plan]) -> Device:
    """Return the GPU or CPU core here that the first arm would train on: a GPU without a name if there is none."""
    return Device(*find(plans[0].trainable).hardware(plans[0].arms[0].config))


def check_max_hours(
    most: float,
    plans: Sequence[Plan],
    wanted: Sequence[Job],
    runs: Path,
    device: Device,
    taken: Mapping[str, PastTraining] = {},
) -> None:
    """Raise ValueError if training the unfinished jobs takes more than `most` hours, or an unknown time.

    taken: trials of sources of --from by id, which `runs` does not have yet.
    """
    left = (unfinished(wanted, runs).keys() - taken.keys()) | reopen.lost_parents(runs, wanted).keys()
    needed = cost(plans, runs, device, left, taken)
    unknown = needed.sources.get("unknown", 0)
    if unknown:
        raise ValueError(
            f"--max-hours {most:g}: how long the trials of {amount_text(unknown, 'arm')} take is unknown: "
            "first train one without it (--arm NAME --seeds 1), or state `cost` in the recipe"
        )
    if needed.hours > most:
        raise ValueError(
            f"--max-hours {most:g}: training {amount_text(len(left), 'trial')} takes {needed.text}, "
            f"from {sources_text(needed.sources, plans)}"
        )


def seconds(plans: Iterable[Plan], runs: Path, device: Device) -> dict[str, float]:
    """Return trial id -> estimated seconds, including the start of a worker, for each planned trial."""
    seconds_by_trial: dict[str, float] = {}
    for plan in plans:
        times = TrialTimes(plan, runs, device)
        for entry in plan.entries:
            guess, _ = times.estimate(entry)
            seconds_by_trial |= dict.fromkeys(entry.ids.values(), START_SECONDS + guess)
    return seconds_by_trial


def cost(
    plans: Iterable[Plan], runs: Path, device: Device, wanted: Iterable[str], taken: Mapping[str, PastTraining] = {}
) -> EstimatedCost:
    """Return the cost of training the trials with the ids `wanted`. A trial of several plans counts once."""
    left = set(wanted)
    total = 0.0
    sources: Counter[str] = Counter()
    for plan in plans:
        times = TrialTimes(plan, runs, device, taken)
        for entry in plan.entries:
            ids = left.intersection(entry.ids.values())
            if ids:
                guess, source = times.estimate(entry)
                sources[source] += 1
                total += guess * times.trainable.resources(entry.config).gpus * len(ids)
                left -= ids
    return EstimatedCost(total / 3600, device, sources)


@dataclass(frozen=True)
class TrialTimes:
    plan: Plan
    runs: Path
    device: Device
    taken: Mapping[str, PastTraining] = field(default_factory=dict)

    @cached_property
    def trainable(self) -> Trainable:
        return find(self.plan.trainable)

    @cached_property
    def step_seconds(self) -> dict[str, float]:
        return read_step_times(self.runs, self.device)

    def estimate(self, entry: Entry) -> tuple[float, str]:
        """Return the seconds of one trial of an arm or stage, with its evaluations, and their key in SOURCES."""
        seconds, source = self.training_seconds(entry)
        return seconds * (1 + self.trainable.evaluation_fraction(entry.config, entry.data or self.plan.data)), source

    def training_seconds(self, entry: Entry) -> tuple[float, str]:
        past = self.past_seconds(entry, ENOUGH)
        if past:
            return fmean(past), "past"
        step = step_key(self.trainable, entry.config, teacher_config(self.plan, entry))
        if step in self.step_seconds:
            return entry.config["steps"] * self.step_seconds[step], "probe"
        return self.seconds_of_work(entry)

    def past_seconds(self, entry: Entry, most: int) -> list[float]:
        """Return the seconds of `most` finished trials of an entry on the device, with its ranks and threads."""
        resources = self.trainable.resources(entry.config)
        past: list[float] = []
        for trial_id in entry.ids.values():
            recorded = self.recorded(trial_id)
            env = recorded.environment
            is_alike = env.ranks == resources.gpus and self.device.ran_attempt(env, resources.threads)
            if is_alike and recorded.seconds is not None:
                past.append(recorded.seconds)
            if len(past) == most:
                break
        return past

    def recorded(self, trial_id: str) -> PastTraining:
        if trial_id in self.taken:
            return self.taken[trial_id]
        state = store.trial(self.runs, trial_id).state()
        if state.status != "finished" or state.result is None or state.attempt is None:
            return PastTraining(None, Environment())
        environment = read_or_none(state.attempt / "env.json", Environment) or Environment()
        return PastTraining(state.result.train_seconds, environment)

    def seconds_of_work(self, entry: Entry) -> tuple[float, str]:
        """Return the seconds of training in proportion to its work, and the source of the speed: the best known."""
        work = self.trainable.work(entry.config, entry.flops)
        rates = self.rates_of_others.get(self.speed_settings(entry))
        if rates:
            return work * median(rates), "others"
        slowdown, _ = self.trainable.slowdown(entry.config, self.device.gpu)
        stated = self.plan.cost.time_on(self.device.gpu) if self.plan.cost else None
        if self.plan.cost and stated:
            return slowdown * work * (stated.seconds / self.plan.cost.work), "recipe"
        if entry.flops is None:
            return 0.0, "unknown"
        return slowdown * work / (GPU_FLOPS if self.device.gpu else CORE_FLOPS), "flops"

    @cached_property
    def rates_of_others(self) -> dict[tuple[Any, ...], list[float]]:
        """`speed_settings` -> seconds per unit of work of past trials on the plan's recipe, of any study in `runs`."""
        rates: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        counted: set[str] = set()
        plans = [self.plan, *store.read_plans(self.runs).readable, *gate_files.read_plans(self.runs)]
        for entry in (entry for plan in plans if plan.recipe == self.plan.recipe for entry in plan.entries):
            of_settings = rates[self.speed_settings(entry)]
            ids = ",".join(entry.ids.values())
            if len(of_settings) < ALL and ids not in counted:
                counted.add(ids)
                work = self.trainable.work(entry.config, entry.flops)
                of_settings += [took / work for took in self.past_seconds(entry, EACH)]
        return rates

    def speed_settings(self, entry: Entry) -> tuple[Any, ...]:
        return self.trainable.resources(entry.config).gpus, *self.trainable.speed_settings(entry.config)


# -- measured step times: runs/probes/<device>.json --------------------------------------------------------------------


def step_key(trainable: Trainable, settings: Settings, teacher: Settings | None = None) -> str:
    """Return a digest of the settings that the step time depends on. teacher: the settings of the trial's teacher."""
    step = dict(trainable.step_settings(settings))
    if teacher:
        step["teacher"] = trainable.step_settings(teacher)
    return store.checksum(step)[:12]


def teacher_config(plan: Plan, entry: Entry) -> Settings | None:
    if entry.parent and parent_setting(entry.config) == "teacher":
        return next(plan.lineage(entry)).config
    return None


def read_step_times(runs: Path, device: Device) -> dict[str, float]:
    """Return key -> seconds per step on `device`. Raises NewerSchema if a newer version wrote a file."""
    seconds: dict[str, float] = {}
    for file in sorted((runs / "probes").glob("*.json")):
        content = read_or_none(file, StepTimes)
        if content and content.gpu == device.gpu and device.matches(content.device):
            seconds |= {name: measured.seconds for name, measured in content.paces.items()}
    return seconds


def write_step_times(runs: Path, device: Device, measured: Mapping[str, StepTime]) -> None:
    """Add measurements (key -> step time) to the device's file. Raises NewerSchema, or ValueError for a link."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", device.name).strip("-")
    file = runs / "probes" / f"{name}.json"
    refuse_links(runs, file.parent)
    before = read_or_none(file, StepTimes) or StepTimes(device=device.name, gpu=device.gpu)
    now = before.model_copy(update={"device": device.name, "gpu": device.gpu, "paces": {**before.paces, **measured}})
    store.write_json(file, {"schema": store.SCHEMA, **now.content()})


def measure_missing(plans: Iterable[Plan], runs: Path, data_dir: Path | None, say: Callable[[str], None]) -> None:
    """Measure the missing step times of this device, and write each. say: called with a line about each."""
    for plan, entry in [(planned, entry) for planned in plans for entry in planned.entries]:
        trainable = find(plan.trainable)
        teacher = teacher_config(plan, entry)
        device = Device(*trainable.hardware(entry.config))
        name = step_key(trainable, entry.config, teacher)
        if name in read_step_times(runs, device):
            continue
        if is_trial_id(entry.config.get("teacher")):
            teacher = store.trial(runs, entry.config["teacher"]).config()
        seconds = trainable.step_seconds(entry.config, data_dir, teacher)
        measured = StepTime(seconds=seconds, steps=STEPS, arm=entry.name, when=store.timestamp(), code=source_digest())
        write_step_times(runs, device, {name: measured})
        say(f"{entry.name}: {duration_text(seconds)} a step on {device.name}")
