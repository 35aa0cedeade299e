"""How long a trial trains on a device, and who says so.

Past trials of its arm on that device; else a probe of it (`ablate plan --probe`); else past trials of other arms there,
else what the recipe states, both in proportion to training FLOPs; else training FLOPs alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.execution import machine, retry
from ablations.planning import past_trials, step_times
from ablations.planning.jobs import Job
from ablations.planning.past_trials import ranks, work
from ablations.planning.step_times import Device
from results import store
from results.store.planned import trained
from vitcore.runtime.processor import processor

Json = dict[str, Any]
START_SECONDS = 5.0  # of a worker and its data
# Training FLOPs a second that a worker reaches, cautiously: a core as `ablate bench` sees it, a tenth of an A100.
CORE_FLOPS, GPU_FLOPS = 5e9, 3e13
Rate = Callable[[Json], float | None]
CORE_HOURS, GPU_HOURS = "core-hours", "GPU-hours"

SOURCES = {  # in the order of trust -> how it is said
    "past": "past trials of {count} arms on this device",
    "probe": "a probe of {count} arms on this device (50 steps each)",
    "others": "past trials of other arms on this device for {count} arms, in proportion to training FLOPs",
    "recipe": "the recipe for {count} arms, in proportion to training FLOPs",
    "flops": "nothing but training FLOPs for {count} arms: --probe measures them here",
}


@dataclass(frozen=True)
class Guess:
    """Training seconds of one trial; `source` is one of SOURCES."""

    seconds: float
    source: str


@dataclass(frozen=True)
class Cost:
    """What trials take together on the device; `sources`: how many arms each source speaks for."""

    hours: float
    device: Device
    sources: Mapping[str, int]

    @property
    def unit(self) -> str:
        return GPU_HOURS if self.device.gpu else CORE_HOURS


def told(sources: Mapping[str, Any]) -> str:
    """Where hours come from, in words; sources: how many arms each speaks for."""
    return "; ".join(said.format(count=sources[name]) for name, said in SOURCES.items() if name in sources)


def here(plans: Iterable[Json]) -> Device:
    """What the trials of these plans would run on, here: by the first arm, should others say otherwise."""
    asked = next(arm["config"] for plan in plans for arm in plan["arms"])
    if asked["device"] == "cpu" or (asked["device"] == "auto" and not machine.gpus()):
        return Device(False, processor())
    from vitcore.config import Config
    from vitcore.runtime.device import device_of, hardware  # late: torch

    config = Config(**asked)
    return Device(device_of(config) == "cuda", hardware(config))


def refuse_beyond(most: float, plans: Sequence[Json], wanted: Iterable[Job], runs: Path, device: Device) -> None:
    """Raises ValueError where training those of the `wanted` that have no result would take more than `most` hours.

    What has to be trained again counts too, as the weights that others start from are gone.
    """
    asked = list(wanted)
    left = {job.id for job in asked if not store.trial(runs, job.id).state().over} | retry.lost_parents(
        runs, asked
    ).keys()
    found = cost(plans, runs, device, left)
    if found.hours > most:
        raise ValueError(
            f"--max-hours {most:g}: {len(left)} trials to do take {found.hours:.3g} {found.unit}, "
            f"from {told(found.sources)}"
        )


def seconds(plans: Iterable[Json], runs: Path, device: Device) -> dict[str, float]:
    """Trial id -> seconds with the start of a worker, for every trial of the plans."""
    return {
        trial["id"]: START_SECONDS + guess.seconds
        for plan in plans
        for arm, guess in guesses(plan, runs, device, trained(plan))
        for trial in arm["trials"]
    }


def cost(plans: Iterable[Json], runs: Path, device: Device, wanted: set[str]) -> Cost:
    """Of training the `wanted` trials, each once."""
    left, total = set(wanted), 0.0
    sources: Counter[str] = Counter()
    for plan in plans:
        entries = [arm for arm in trained(plan) if left & ids(arm)]
        for arm, guess in guesses(plan, runs, device, entries):
            sources[guess.source] += 1
            total += guess.seconds * ranks(arm["config"]) * len(left & ids(arm))
        left.difference_update(*map(ids, entries))
    return Cost(total / 3600, device, sources)


def ids(arm: Json) -> set[str]:
    return {trial["id"] for trial in arm["trials"]}


def guesses(plan: Json, runs: Path, device: Device, arms: Iterable[Json]) -> Iterable[tuple[Json, Guess]]:
    """Each of the plan's `arms` with what is known of it."""
    measured, rate = step_times.read(runs, device), past_trials.rates(plan, runs, device)
    stated = plan.get("cost") or {}
    own = stated.get("gpu" if device.gpu else "cpu")
    as_stated = own["seconds"] / stated["work"] if own else None
    return [(arm, guess(arm, runs, device, measured, rate, as_stated)) for arm in arms]


def guess(
    arm: Json, runs: Path, device: Device, measured: Mapping[str, float], rate: Rate, stated: float | None
) -> Guess:
    """measured: seconds a step, by `paces.key`; rate: a FLOP of others, by a config; stated: by the recipe."""
    config, flops = arm["config"], work(arm["flops"], arm["config"])
    if (took := past_trials.own(arm, runs, device)) is not None:
        return Guess(took, "past")
    if (pace := measured.get(step_times.key(config))) is not None:
        return Guess(config["steps"] * pace, "probe")
    if (of_others := rate(config)) is not None:
        return Guess(flops * of_others, "others")
    if stated is not None:
        return Guess(flops * stated, "recipe")
    return Guess(flops / (GPU_FLOPS if device.gpu else CORE_FLOPS), "flops")
