"""How long a trial trains on a device, and who says so.

Past trials of its arm on that device; else a probe of it (`ablate plan --probe`); else what the recipe states, in
proportion to training FLOPs; else training FLOPs alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ablations import paces
from ablations.jobs import Job
from ablations.paces import Device
from results import store
from results.planned import trained

Json = dict[str, Any]
START_SECONDS = 5.0  # of a worker and its data
ENOUGH = 20  # past trials of an arm that are read
# Training FLOPs a second that a worker reaches, cautiously: a core as `ablate bench` sees it, a tenth of an A100.
CORE_FLOPS, GPU_FLOPS = 5e9, 3e13
CORE_HOURS, GPU_HOURS = "core-hours", "GPU-hours"

SOURCES = {  # in the order of trust -> how it is said
    "past": "past trials of {count} arms on this device",
    "probe": "a probe of {count} arms on this device (50 steps each)",
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
    from vitcore.config import Config
    from vitcore.device import device_of, hardware  # late: torch, which SLURM's side of this does not need

    config = Config(**next(arm["config"] for plan in plans for arm in plan["arms"]))
    return Device(device_of(config) == "cuda", hardware(config))


def refuse_beyond(most: float, plans: Sequence[Json], wanted: Iterable[Job], runs: Path, device: Device) -> None:
    """Raises ValueError where training those of the `wanted` that have no result would take more than `most` hours."""
    left = {job.id for job in wanted if not store.trial(runs, job.id).state().over}
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
    measured = paces.read(runs, device)
    return [(arm, guess(arm, runs, device, measured, plan.get("cost"))) for arm in arms]


def guess(arm: Json, runs: Path, device: Device, measured: Mapping[str, float], stated: Json | None) -> Guess:
    """measured: seconds a step, by `paces.key`; stated: what the recipe says of its own config."""
    if past := list(islice(past_seconds(arm, runs, device), ENOUGH)):
        return Guess(sum(past) / len(past), "past")
    if (pace := measured.get(paces.key(arm["config"]))) is not None:
        return Guess(arm["config"]["steps"] * pace, "probe")
    if stated and (known := stated.get("gpu" if device.gpu else "cpu")):
        return Guess(known["seconds"] * work(arm["flops"], arm["config"]) / stated["work"], "recipe")
    return Guess(work(arm["flops"], arm["config"]) / (GPU_FLOPS if device.gpu else CORE_FLOPS), "flops")


def work(flops: float, config: Mapping[str, Any]) -> float:
    """Training FLOPs on each GPU: the backward pass costs twice the forward pass."""
    return 3.0 * flops * float(config["steps"] * config["batch"]) / ranks(config)


def ranks(config: Mapping[str, Any]) -> int:
    """On how many GPUs at once."""
    return int(config.get("gpus", 1))  # not in plans of earlier versions


def past_seconds(arm: Json, runs: Path, device: Device) -> Iterable[float]:
    """Training time of the arm's finished trials on the device; a diverged one ended early."""
    for one in arm["trials"]:
        state = store.trial(runs, one["id"]).state()
        if state.status != "finished" or state.result is None or state.attempt is None:
            continue
        env = environment(state.attempt)
        if device.made(env, arm["config"]["threads"]) and env.get("ranks", 1) == ranks(arm["config"]):
            yield state.result["train_seconds"]


def environment(attempt: Path) -> Json:
    """The attempt's env.json; nothing where it cannot be read."""
    try:
        return store.read_json(attempt / "env.json")
    except (FileNotFoundError, store.Broken):
        return {}
