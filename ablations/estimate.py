"""How long a trial will take: from past trials of its arm in the run directory, else from its FLOPs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from results import store

Json = dict[str, Any]
START_SECONDS = 5.0  # of a worker and its data
# Training FLOPs a second that a worker reaches, cautiously: a core as `ablate bench` sees it, a tenth of an A100.
CORE_FLOPS, GPU_FLOPS = 5e9, 3e13


def seconds(plans: Iterable[Json], runs: Path, gpu: bool) -> dict[str, float]:
    """Trial id -> seconds, for every trial of the plans."""
    return {
        trial["id"]: spent
        for plan in plans
        for arm in plan["arms"]
        for spent in [arm_seconds(arm, runs, gpu)]
        for trial in arm["trials"]
    }


def arm_seconds(arm: Json, runs: Path, gpu: bool) -> float:
    past = past_seconds(arm, runs)
    if past:
        return START_SECONDS + sum(past) / len(past)
    work: float = (
        3 * arm["flops"] * arm["config"]["steps"] * arm["config"]["batch"]
    )  # backward costs twice the forward pass
    return START_SECONDS + work / (GPU_FLOPS if gpu else CORE_FLOPS)


def past_seconds(arm: Json, runs: Path) -> list[float]:
    """Training time of the arm's finished trials."""
    results = [store.trial(runs, trial["id"]).state().result for trial in arm["trials"]]
    return [result["train_seconds"] for result in results if result is not None]
