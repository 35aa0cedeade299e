"""Training times of past trials on a device: of an arm, and per training FLOP of all arms of a recipe."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from ablations.planning.step_times import Device
from results import store
from results.store.planned import trained
from results.store.schemas import Environment

Json = dict[str, Any]
ENOUGH = 20  # at most so many past trials of an arm are read
EACH, ALL = 3, 60  # past trials per other arm, and in total, for a rate
# Settings that seconds per FLOP depend on most, besides the device.
ALIKE = ("data", "threads", "precision")


def mean_seconds(arm: Json, runs: Path, device: Device) -> float | None:
    """The mean training seconds of the arm's past trials on the device; None if there are none."""
    found = list(islice(seconds(arm, runs, device), ENOUGH))
    return sum(found) / len(found) if found else None


def seconds(arm: Json, runs: Path, device: Device) -> Iterator[float]:
    """Training seconds of the arm's finished trials on the device; diverged ones ended early and do not count."""
    for one in arm["trials"]:
        state = store.trial(runs, one["id"]).state()
        if state.status != "finished" or state.result is None or state.attempt is None:
            continue
        env = read_environment(state.attempt)
        if device.made(env, arm["config"]["threads"]) and env.get("ranks", 1) == ranks(arm["config"]):
            yield state.result["train_seconds"]


def seconds_per_flop(plan: Json, runs: Path, device: Device) -> Callable[[Json], float | None]:
    """A function: config -> median seconds per training FLOP of comparable past trials; None if there are none.

    Trials of the plan's recipe count, in any study of the run directory.
    """

    @cache
    def rate(*alike: Any) -> float | None:
        plans = (one for one in [plan, *store.plans(runs)] if one["recipe"] == plan["recipe"])
        entries = (arm for one in plans for arm in trained(one))
        same = {str(arm["trials"]): arm for arm in entries if comparable_settings(arm["config"]) == alike}
        found = list(islice(sampled_rates(same.values(), runs, device), ALL))
        return median(found) if found else None

    return lambda config: rate(*comparable_settings(config))


def sampled_rates(arms: Iterable[Json], runs: Path, device: Device) -> Iterator[float]:
    """Seconds per training FLOP of at most EACH past trials per arm."""
    for arm in arms:
        for took in islice(seconds(arm, runs, device), EACH):
            yield took / training_flops(arm["flops"], arm["config"])


def comparable_settings(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """The settings that must be equal for times to be compared by FLOPs."""
    asked = config.get("compile") is True  # unlike the default, which was false in earlier versions
    return ranks(config), asked, *(config.get(name) for name in ALIKE)


def training_flops(flops: float, config: Mapping[str, Any]) -> float:
    """Training FLOPs per GPU: the backward pass costs twice the forward pass."""
    return 3.0 * flops * float(config["steps"] * config["batch"]) / ranks(config)


def ranks(config: Mapping[str, Any]) -> int:
    """The number of GPUs of a trial."""
    return int(config.get("gpus", 1))  # not in plans of earlier versions


def read_environment(attempt: Path) -> Json:
    """The attempt's env.json; empty if it cannot be read."""
    try:
        return store.read_json(attempt / "env.json", Environment)
    except (FileNotFoundError, store.Broken):
        return {}
