"""Training times of past trials on a device, by arm and per training FLOP."""

from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from ablations.execution.attempts import read_or_none
from ablations.planning.step_times import Device
from results import store
from results.store.schemas import Entry, Environment, Plan

ENOUGH = 20  # the largest number of past trials that are used per arm
EACH, ALL = 3, 60  # the largest numbers of past trials in a rate: per other arm, and in total
# Settings that seconds per FLOP depend on most, besides the device.
ALIKE = ("data", "threads", "precision")


def seconds(arm: Entry, runs: Path, device: Device, most: int = ENOUGH) -> list[float]:
    """Return the training seconds of at most `most` finished trials of the arm on the device.

    Only trials with the arm's number of ranks and, on a CPU, of threads count. Diverged trials, which ended early, do
    not count.
    """
    found: list[float] = []
    for key in arm.ids.values():
        state = store.trial(runs, key).state()
        if state.status != "finished" or state.result is None or state.attempt is None:
            continue
        env = read_or_none(state.attempt / "env.json", Environment) or Environment()
        took = state.result.train_seconds
        if took is not None and device.ran(env, arm.config["threads"]) and env.ranks == arm.ranks:
            found.append(took)
            if len(found) == most:
                break
    return found


def seconds_per_flop(plan: Plan, runs: Path, device: Device) -> Callable[[Entry], float | None]:
    """Return a function from an arm to the median seconds per training FLOP of comparable trials on the device.

    The function returns None if there are no such trials. Trials are comparable if they have the plan's recipe, in any
    study of the run directory, and equal comparable_settings.
    """

    @cache
    def rate(*alike: Any) -> float | None:
        plans = (one for one in [plan, *store.plans(runs)] if one.recipe == plan.recipe)
        entries = (arm for one in plans for arm in one.entries)
        same = {str(arm.trials): arm for arm in entries if comparable_settings(arm) == alike}
        rates = (took / training_flops(arm) for arm in same.values() for took in seconds(arm, runs, device, EACH))
        found = list(islice(rates, ALL))
        return median(found) if found else None

    return lambda arm: rate(*comparable_settings(arm))


def comparable_settings(arm: Entry) -> tuple[Any, ...]:
    """Return the settings that two arms must share for their seconds per FLOP to be comparable."""
    asked = arm.config.get("compile") is True  # not the default, which was false in earlier versions
    return arm.ranks, asked, *(arm.config.get(name) for name in ALIKE)


def training_flops(arm: Entry) -> float:
    """Return the FLOPs per rank to train one trial: a backward pass costs twice as much as a forward pass."""
    return 3.0 * (arm.flops or 0) * float(arm.config["steps"] * arm.config["batch"]) / arm.ranks
