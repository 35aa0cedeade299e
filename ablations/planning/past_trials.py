"""What past trials took on a device: those of an arm, and per training FLOP those of all arms of a recipe."""

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
ENOUGH = 20  # past trials of an arm that are read
EACH, ALL = 3, 60  # of each other arm and of all, for a rate
# What the seconds of a FLOP depend on most, besides the device.
ALIKE = ("data", "threads", "precision", "compile")


def own(arm: Json, runs: Path, device: Device) -> float | None:
    """The mean training seconds of the arm's past trials on the device; None where there are none."""
    found = list(islice(seconds(arm, runs, device), ENOUGH))
    return sum(found) / len(found) if found else None


def seconds(arm: Json, runs: Path, device: Device) -> Iterator[float]:
    """Training time of the arm's finished trials on the device; a diverged one ended early."""
    for one in arm["trials"]:
        state = store.trial(runs, one["id"]).state()
        if state.status != "finished" or state.result is None or state.attempt is None:
            continue
        env = environment(state.attempt)
        if device.made(env, arm["config"]["threads"]) and env.get("ranks", 1) == ranks(arm["config"]):
            yield state.result["train_seconds"]


def rates(plan: Json, runs: Path, device: Device) -> Callable[[Json], float | None]:
    """Of a config, the seconds a training FLOP of past trials that ran alike: the median; None where there are none.

    They are of the plan's recipe, in any study of the run directory.
    """

    @cache
    def rate(*alike: Any) -> float | None:
        plans = (one for one in [plan, *store.plans(runs)] if one["recipe"] == plan["recipe"])
        entries = (arm for one in plans for arm in trained(one))
        same = {str(arm["trials"]): arm for arm in entries if how(arm["config"]) == alike}
        found = list(islice(each(same.values(), runs, device), ALL))
        return median(found) if found else None

    return lambda config: rate(*how(config))


def each(arms: Iterable[Json], runs: Path, device: Device) -> Iterator[float]:
    """Seconds a training FLOP of some past trials of each arm."""
    for arm in arms:
        for took in islice(seconds(arm, runs, device), EACH):
            yield took / work(arm["flops"], arm["config"])


def how(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two configs have alike whose seconds may be compared by their FLOPs."""
    return ranks(config), *(config.get(name) for name in ALIKE)


def work(flops: float, config: Mapping[str, Any]) -> float:
    """Training FLOPs on each GPU: the backward pass costs twice the forward pass."""
    return 3.0 * flops * float(config["steps"] * config["batch"]) / ranks(config)


def ranks(config: Mapping[str, Any]) -> int:
    """On how many GPUs at once."""
    return int(config.get("gpus", 1))  # not in plans of earlier versions


def environment(attempt: Path) -> Json:
    """The attempt's env.json; nothing where it cannot be read."""
    try:
        return store.read_json(attempt / "env.json", Environment)
    except (FileNotFoundError, store.Broken):
        return {}
