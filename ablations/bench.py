"""`ablate bench`: speed as ratios, each measured in turn with what it is compared to, in one run on one machine.

What was measured comes with the config, the hardware and the versions, so that anyone can repeat it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch

from ablations import bench_arms, bench_loop, bench_memory, bench_start, bench_step
from ablations.bench_clock import ends
from ablations.bench_images import images
from ablations.bench_process import Source
from ablations.machine import cores
from ablations.provenance import environment
from ablations.study import Arm, Design
from vitcore.config import Config
from vitcore.device import computing, device_of, hardware

Json = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """`rounds` turns of `calls` train steps of each side, of --loop of a whole study; compiled: also timm compiled."""

    rounds: int
    calls: int
    compiled: bool
    source: Source


def step(config: Config, method: Method, digests: dict[str, str]) -> Json:
    """The train step beside its rivals, the floor, the input pipeline, memory."""
    with computing(config):
        data = images(config, method.source.data_dir, method.source.random)
        found = bench_step.bench(config, data, method.rounds, method.calls, method.compiled)
    names = [side["name"] for side in found["sides"]]
    found["memory_bytes"] = bench_memory.taken(config, names, method.source, found["left_out"])
    return {"bench": "step", **about(config, method, digests), **found}


def chosen(design: Design, glob: str) -> list[Arm]:
    """The arms of a study that `glob` names. Raises ValueError where there is none."""
    found = [arm for arm in design.arms if fnmatchcase(arm.name, glob)]
    if not found:
        names = ", ".join(arm.name for arm in design.arms)
        raise ValueError(f"--arm {glob}: {design.name} has the arms {names}")
    return found


def arms(design: Design, some: Sequence[Arm], method: Method, digests: dict[str, str]) -> Json:
    """Some arms of a study, each beside its baseline."""
    pairs = bench_arms.Pairs(method.rounds, method.calls, method.source)
    rows = bench_arms.bench(some, design.arms, pairs)
    return {"bench": "arms", "study": design.name, **about(design.reference, method, digests), "arms": rows}


def loop(settings: Json, seeds: int, method: Method, digests: dict[str, str]) -> Json:
    """A small study of this config beside one process a trial."""
    found = bench_loop.bench(settings, seeds, method.rounds, method.source)
    return {"bench": "loop", **about(Config(**settings), method, digests), **found}


def start(settings: Json, method: Method, digests: dict[str, str]) -> Json:
    """The first step of a process that compiles this config, without and with a cache."""
    config = Config(**settings)
    return {
        "bench": "start",
        **about(config, method, digests),
        **bench_start.bench(config, method.rounds, method.source),
    }


def about(config: Config, method: Method, digests: dict[str, str]) -> Json:
    """What a number depends on."""
    machine = environment(config, hardware(config), device_of(config), digests)
    return {
        "machine": machine | {"cores": cores(), "cpu_capability": torch.backends.cpu.get_cpu_capability()},
        "config": config.model_dump(),
        "images": "random" if method.source.random else config.data,
        "rounds": method.rounds,
        "low_and_high": ends(method.rounds),
        "steps_per_round": method.calls,
    }
