"""Training times of past trials on a device: of one arm, and per training FLOP over a recipe's arms."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from ablations.execution.attempts import read_or_none
from ablations.planning.step_times import Device
from results import store
from results.store.planned import trained
from results.store.schemas import Entry, Environment, Plan

ENOUGH = 20  # at most so many past trials of an arm are read
EACH, ALL = 3, 60  # past trials per other arm, and in total, for a rate
# Settings that seconds per FLOP depend on most, besides the device.
ALIKE = ("data", "threads", "precision")


def mean_seconds(arm: Entry, runs: Path, device: Device) -> float | None:
    """Return the mean training seconds of the arm's past trials on the device; None without any."""
    found = list(islice(seconds(arm, runs, device), ENOUGH))
    return sum(found) / len(found) if found else None


def seconds(arm: Entry, runs: Path, device: Device) -> Iterator[float]:
    """Yield the training seconds of the arm's finished trials on the device.

    Diverged trials ended early and do not count.
    """
    for key in arm.ids.values():
        state = store.trial(runs, key).state()
        if state.status != "finished" or state.result is None or state.attempt is None:
            continue
        env = read_or_none(state.attempt / "env.json", Environment) or Environment()
        seconds = state.result.train_seconds
        if seconds is not None and device.ran(env, arm.config["threads"]) and env.ranks == arm.ranks:
            yield seconds


def seconds_per_flop(plan: Plan, runs: Path, device: Device) -> Callable[[Entry], float | None]:
    """Return a function: arm -> median seconds per training FLOP of comparable past trials, or None.

    Trials of the plan's recipe count, in any study of the run directory.
    """

    @cache
    def rate(*alike: Any) -> float | None:
        plans = (one for one in [plan, *store.plans(runs)] if one.recipe == plan.recipe)
        entries = (arm for one in plans for arm in trained(one))
        same = {str(arm.trials): arm for arm in entries if comparable_settings(arm) == alike}
        found = list(islice(sampled_rates(same.values(), runs, device), ALL))
        return median(found) if found else None

    return lambda arm: rate(*comparable_settings(arm))


def sampled_rates(arms: Iterable[Entry], runs: Path, device: Device) -> Iterator[float]:
    """Yield the seconds per training FLOP of at most EACH past trials per arm."""
    for arm in arms:
        for took in islice(seconds(arm, runs, device), EACH):
            yield took / training_flops(arm)


def comparable_settings(arm: Entry) -> tuple[Any, ...]:
    """Return the settings that must be equal for times to be compared by FLOPs."""
    asked = arm.config.get("compile") is True  # unlike the default, which was false in earlier versions
    return arm.ranks, asked, *(arm.config.get(name) for name in ALIKE)


def training_flops(arm: Entry) -> float:
    """Return the training FLOPs per GPU: the backward pass costs twice the forward pass."""
    return 3.0 * (arm.flops or 0) * float(arm.config["steps"] * arm.config["batch"]) / arm.ranks
