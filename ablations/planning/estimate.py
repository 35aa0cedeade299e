"""Estimate the time of trials on a device, with the source of each estimate.

The training time comes from the first available source:

1. past trials of the arm on the device
2. steps measured by `ablate plan --probe`
3. past trials of other arms, in proportion to training FLOPs
4. the time that the recipe states, in proportion to training FLOPs
5. training FLOPs, at an assumed speed

The time of validations and test follows from the number of their images. Evals are not included.

Functions that read `runs` raise NewerSchema if a newer version wrote a file in it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ablations.execution import retry
from ablations.execution.attempts import read_or_none
from ablations.jobs import Job
from ablations.planning import step_times
from ablations.planning.step_times import Device
from ablations.trainables.trainable import find
from results import store
from results.store.schemas import Entry, Environment, Plan
from results.units import amount_text

ENOUGH = 20  # the largest number of past trials that are used per arm
EACH, ALL = 3, 60  # the largest numbers of past trials in a rate: per other arm, and in total
START_SECONDS = 5.0  # to start a worker and load its data
# Cautious training FLOPs per second of a worker: a measured CPU core, and a tenth of an A100's peak.
CORE_FLOPS, GPU_FLOPS = 5e9, 3e13
CORE_HOURS, GPU_HOURS = "core-hours", "GPU-hours"

SOURCES = {  # name of a source, best first -> text
    "past": "past trials of {arms} on this device",
    "probe": "a probe of {arms} on this device (50 steps each)",
    "others": "past trials of other arms on this device for {arms}, in proportion to training FLOPs",
    "recipe": "the recipe for {arms}, in proportion to training FLOPs",
    "flops": "nothing but training FLOPs for {arms}",
    "unknown": "0 for {arms}, of which no trial has finished on this device",
}


@dataclass(frozen=True)
class Cost:
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
    amount = f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"
    return f"{'under 0.01' if 0 < hours < 0.01 else amount} {unit}"


def sources_text(sources: Mapping[str, int]) -> str:
    arms = {name: amount_text(count, "arm") for name, count in sources.items()}
    return "; ".join(said.format(arms=arms[name]) for name, said in SOURCES.items() if name in sources)


def local_device(plans: Sequence[Plan]) -> Device:
    """Return the GPU or CPU core of this machine that the first arm of the plans would train on.

    If the arm needs a GPU and there is none here, returns a GPU without a name.
    """
    first = next(iter(plans))
    return Device(*find(first.trainable).hardware(first.arms[0].config))


def check_max_hours(most: float, plans: Sequence[Plan], wanted: Iterable[Job], runs: Path, device: Device) -> None:
    """Raise ValueError if training the unfinished jobs among `wanted` takes more than `most` core-hours or GPU-hours.

    Parents whose weights were lost count too, because they are trained again.
    """
    asked = list(wanted)
    left = {job.id for job in asked if not store.trial(runs, job.id).state().is_over}
    left |= {*retry.lost_parents(runs, asked)}
    found = cost(plans, runs, device, left)
    if found.hours > most:
        raise ValueError(
            f"--max-hours {most:g}: training {amount_text(len(left), 'trial')} takes {found.text}, "
            f"from {sources_text(found.sources)}"
        )


def seconds(plans: Iterable[Plan], runs: Path, device: Device) -> dict[str, float]:
    """Return trial id -> estimated seconds, including the start of a worker, for each planned trial."""
    return {
        trial: START_SECONDS + guess
        for plan in plans
        for arm, guess, _ in estimate_arms(plan, runs, device, plan.entries)
        for trial in arm.ids.values()
    }


def cost(plans: Iterable[Plan], runs: Path, device: Device, wanted: set[str]) -> Cost:
    """Return the cost of training the trials with the ids `wanted`. A trial of several plans counts once."""
    left, total = set(wanted), 0.0
    sources: Counter[str] = Counter()
    for plan in plans:
        entries = [arm for arm in plan.entries if left & {*arm.ids.values()}]
        for arm, guess, source in estimate_arms(plan, runs, device, entries):
            sources[source] += 1
            total += guess * arm.ranks * len(left & {*arm.ids.values()})
        left.difference_update(*(arm.ids.values() for arm in entries))
    return Cost(total / 3600, device, sources)


def estimate_arms(plan: Plan, runs: Path, device: Device, arms: Iterable[Entry]) -> Iterator[tuple[Entry, float, str]]:
    """Yield (entry, seconds of one trial, source) for each arm or stage in `arms`, from the best of SOURCES."""
    measured, rate = step_times.read(runs, device), seconds_per_flop(plan, runs, device)
    took = plan.cost.time_on(device.gpu) if plan.cost else None
    trainable = find(plan.trainable)
    for arm in arms:
        slowdown, _ = trainable.slowdown(arm.config, device.gpu)
        work = trainable.work(arm.config, arm.flops)
        step = measured.get(step_times.key(trainable, arm.config, step_times.teacher_config(plan, arm)))
        if past := past_seconds(arm, runs, device):
            seconds, source = fmean(past), "past"
        elif step is not None:
            seconds, source = arm.config["steps"] * step, "probe"
        elif (of_others := rate(arm)) is not None:
            seconds, source = work * of_others, "others"
        elif plan.cost and took:
            seconds, source = slowdown * work * (took.seconds / plan.cost.work), "recipe"
        elif arm.flops is None:
            seconds, source = 0.0, "unknown"
        else:
            seconds, source = slowdown * work / (GPU_FLOPS if device.gpu else CORE_FLOPS), "flops"
        yield arm, seconds * (1 + trainable.evaluation_fraction(arm.config, plan.data)), source


def past_seconds(arm: Entry, runs: Path, device: Device, most: int = ENOUGH) -> list[float]:
    """Return the training seconds of at most `most` finished trials of the arm on the device.

    Only trials with the arm's number of ranks and, on a CPU, of threads count. Diverged trials do not: they end early.
    """
    found: list[float] = []
    for key in arm.ids.values():
        state = store.trial(runs, key).state()
        if state.status != "finished" or state.result is None or state.attempt is None:
            continue
        env = read_or_none(state.attempt / "env.json", Environment) or Environment()
        took = state.result.train_seconds
        if took is not None and device.ran_attempt(env, arm.config.get("threads")) and env.ranks == arm.ranks:
            found.append(took)
            if len(found) == most:
                break
    return found


def seconds_per_flop(plan: Plan, runs: Path, device: Device) -> Callable[[Entry], float | None]:
    """Return a function that maps an arm to the median seconds per training FLOP of comparable trials, or to None.

    Comparable trials have the plan's recipe and equal `speed_settings`. They may belong to any study in `runs`.
    """
    trainable = find(plan.trainable)

    def comparable(arm: Entry) -> tuple[Any, ...]:
        return arm.ranks, *trainable.speed_settings(arm.config)

    @cache
    def rate(*alike: Any) -> float | None:
        plans = (one for one in [plan, *store.read_plans(runs).readable] if one.recipe == plan.recipe)
        entries = (arm for one in plans for arm in one.entries)
        same = {str(arm.trials): arm for arm in entries if comparable(arm) == alike}
        rates = (
            took / trainable.work(arm.config, arm.flops)
            for arm in same.values()
            for took in past_seconds(arm, runs, device, EACH)
        )
        found = list(islice(rates, ALL))
        return median(found) if found else None

    return lambda arm: rate(*comparable(arm))
