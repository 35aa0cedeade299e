"""The conditions of a benchmark, for others to repeat it."""

from typing import Any

import torch

from ablations.bench.process import Source
from ablations.bench.timing import ends
from ablations.execution.machine import cores
from ablations.execution.provenance import environment_record
from vitcore.config import Config
from vitcore.runtime.device import device_of, hardware

Json = dict[str, Any]


def conditions(config: Config, source: Source, digests: dict[str, str], rounds: int, calls: int) -> Json:
    """Machine, versions, config, images, and how often each side was measured."""
    machine = environment_record(config, hardware(config), device_of(config), digests)
    return {
        "machine": machine | {"cores": cores(), "cpu_capability": torch.backends.cpu.get_cpu_capability()},
        "config": config.model_dump() | {"compile": machine["compile"]},
        "images": "random" if source.random else config.data,
        "rounds": rounds,
        "low_and_high": ends(rounds),
        "steps_per_round": calls,
    }
