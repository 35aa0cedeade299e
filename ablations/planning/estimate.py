"""Estimates of the training time of trials on a device, each with its source.

The first available source is used:

1. past trials of the arm on the device
2. steps measured by `ablate plan --probe`
3. past trials of other arms, in proportion to training FLOPs
4. the time that the recipe states, in proportion to training FLOPs
5. training FLOPs alone
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ablations.execution import machine, retry
from ablations.planning import past_trials, step_times
from ablations.planning.jobs import Job
from ablations.planning.past_trials import training_flops
from ablations.planning.step_times import Device
from results import store
from results.store.schemas import Entry, Plan
from vitcore.runtime.host import processor

START_SECONDS = 5.0  # to start a worker and load its data
# Training FLOPs per second of a worker, cautious values: a CPU core in `ablate bench`, and a tenth of an A100's peak.
CORE_FLOPS, GPU_FLOPS = 5e9, 3e13
CORE_HOURS, GPU_HOURS = "core-hours", "GPU-hours"

SOURCES = {  # best first -> text
    "past": "past trials of {arms} on this device",
    "probe": "a probe of {arms} on this device (50 steps each)",
    "others": "past trials of other arms on this device for {arms}, in proportion to training FLOPs",
    "recipe": "the recipe for {arms}, in proportion to training FLOPs",
    "flops": "nothing but training FLOPs for {arms}: --probe measures them here",
}


@dataclass(frozen=True)
class Estimate:
    """The estimated training time of one trial, in seconds. source: a key of SOURCES."""

    seconds: float
    source: str


@dataclass(frozen=True)
class Cost:
    """The total cost of trials on a device, in core-hours or GPU-hours. sources: key of SOURCES -> number of arms."""

    hours: float
    device: Device
    sources: Mapping[str, int]

    @property
    def unit(self) -> str:
        return GPU_HOURS if self.device.gpu else CORE_HOURS


def sources_text(sources: Mapping[str, int]) -> str:
    arms = {name: "1 arm" if count == 1 else f"{count} arms" for name, count in sources.items()}
    return "; ".join(said.format(arms=arms[name]) for name, said in SOURCES.items() if name in sources)


def local_device(plans: Iterable[Plan]) -> Device:
    """Return the GPU or CPU core of this machine that the first arm of the plans would train on."""
    asked = next(arm.config for plan in plans for arm in plan.arms)
    if asked["device"] == "cpu" or (asked["device"] == "auto" and not machine.gpus()):
        return Device(False, processor())
    from vitcore.config import Config
    from vitcore.runtime.device import device_of, hardware  # late: torch

    config = Config(**asked)
    return Device(device_of(config) == "cuda", hardware(config))


def check_max_hours(most: float, plans: Sequence[Plan], wanted: Iterable[Job], runs: Path, device: Device) -> None:
    """Raise ValueError if training the unfinished jobs among `wanted` would take more than `most` hours.

    These are core-hours or GPU-hours, depending on `device`. Parents whose weights were lost count too: they are
    trained again.
    """
    asked = list(wanted)
    left = {job.id for job in asked if not store.trial(runs, job.id).state().over} | {*retry.lost_parents(runs, asked)}
    found = cost(plans, runs, device, left)
    if found.hours > most:
        raise ValueError(
            f"--max-hours {most:g}: {len(left)} trials to do take {found.hours:.3g} {found.unit}, "
            f"from {sources_text(found.sources)}"
        )


def seconds(plans: Iterable[Plan], runs: Path, device: Device) -> dict[str, float]:
    """Return the estimated seconds of each planned trial, by trial id, including the start of its worker."""
    return {
        trial: START_SECONDS + guess.seconds
        for plan in plans
        for arm, guess in estimate_arms(plan, runs, device, plan.entries)
        for trial in arm.ids.values()
    }


def cost(plans: Iterable[Plan], runs: Path, device: Device, wanted: set[str]) -> Cost:
    """Return the cost of training the trials with the ids `wanted`, each counted once."""
    left, total = set(wanted), 0.0
    sources: Counter[str] = Counter()
    for plan in plans:
        entries = [arm for arm in plan.entries if left & {*arm.ids.values()}]
        for arm, guess in estimate_arms(plan, runs, device, entries):
            sources[guess.source] += 1
            total += guess.seconds * arm.ranks * len(left & {*arm.ids.values()})
        left.difference_update(*(arm.ids.values() for arm in entries))
    return Cost(total / 3600, device, sources)


def estimate_arms(plan: Plan, runs: Path, device: Device, arms: Iterable[Entry]) -> Iterator[tuple[Entry, Estimate]]:
    """Yield each of `arms`, which are arms and stages of the plan, with the estimate for one of its trials.

    The estimate is from the best available source.
    """
    measured, rate = step_times.read(runs, device), past_trials.seconds_per_flop(plan, runs, device)
    took = plan.cost.of(device.gpu) if plan.cost else None
    for arm in arms:
        flops = training_flops(arm)
        if past := past_trials.seconds(arm, runs, device):
            yield arm, Estimate(fmean(past), "past")
        elif (step := measured.get(step_times.key(arm.config))) is not None:
            yield arm, Estimate(arm.config["steps"] * step, "probe")
        elif (of_others := rate(arm)) is not None:
            yield arm, Estimate(flops * of_others, "others")
        elif plan.cost and took:
            yield arm, Estimate(flops * (took.seconds / plan.cost.work), "recipe")
        else:
            yield arm, Estimate(flops / (GPU_FLOPS if device.gpu else CORE_FLOPS), "flops")
