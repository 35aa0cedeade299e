"""`ablate bench`: speed as ratios, each measured in turn with what it is compared to, in one run on one machine.

What was measured comes with the config, the hardware and the versions, so that anyone can repeat it.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ablations import bench_memory, bench_step
from ablations.bench_images import images
from ablations.bench_memory import Source
from ablations.provenance import environment
from ablations.runner import cores
from vitcore.config import Config
from vitcore.device import device_of, hardware, torch_threads

Json = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """`rounds` turns of `calls` train steps of each side; compiled: also timm's model compiled, minutes of it."""

    rounds: int
    calls: int
    compiled: bool
    source: Source


def step(config: Config, method: Method, digests: dict[str, str]) -> Json:
    """The train step beside its rivals, the floor, the input pipeline, memory."""
    with torch_threads(config.threads):
        data = images(config, method.source.data_dir, method.source.random)
        found = bench_step.bench(config, data, method.rounds, method.calls, method.compiled)
    names = [side["name"] for side in found["sides"]]
    found["memory_bytes"] = bench_memory.taken(config, names, method.source)
    return {"bench": "step", **about(config, method, digests), **found}


def about(config: Config, method: Method, digests: dict[str, str]) -> Json:
    """What a number depends on."""
    machine = environment(config, hardware(config), device_of(config), digests)
    return {
        "machine": machine | {"cores": cores(), "cpu_capability": torch.backends.cpu.get_cpu_capability()},
        "config": config.model_dump(),
        "images": "random" if method.source.random else config.data,
        "rounds": method.rounds,
        "steps_per_round": method.calls,
    }
