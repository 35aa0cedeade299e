"""Seconds a training step as probes measured them, a file a device: runs/probes/<device>.json.

A pace is filed under everything that a step's time depends on, so that arms which differ in the learning rate or the
number of steps share it. Reading them loads no torch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import store

Json = dict[str, Any]
# What a step's time does not depend on.
FREE = (
    *("steps", "lr", "layer_decay", "schedule", "warmup", "weight_decay", "weight_decay_on", "label_smoothing"),
    *("data_fraction", "val_fraction", "data_seed", "seed", "evaluations", "init", "head_init", "init_from"),
)


@dataclass(frozen=True)
class Device:
    """What trials run on: a GPU or a core. name: as its maker writes it, or a part of that; "": any of the kind."""

    gpu: bool
    name: str = ""

    def made(self, env: Mapping[str, Any], threads: int) -> bool:
        """Whether an attempt with this env.json ran on it, with so many threads where it is a CPU."""
        kind = env.get("accelerator")  # not in those of earlier versions: the name alone decides
        if kind is not None and (kind == "cuda") != self.gpu:
            return False
        if not self.gpu and env.get("threads", threads) != threads:
            return False
        return self.called(str(env.get("device", "")))

    def called(self, name: str) -> bool:
        """Whether `name` is this device's: SLURM's a100 is NVIDIA's A100-SXM4-80GB."""
        return plain(self.name) in plain(name)


def plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def key(config: Mapping[str, Any]) -> str:
    """Of an arm's resolved config."""
    return store.checksum({name: value for name, value in config.items() if name not in FREE})[:12]


def path(runs: Path, device: str) -> Path:
    return runs / "probes" / f"{re.sub(r'[^A-Za-z0-9]+', '-', device).strip('-')}.json"


def read(runs: Path, device: Device) -> dict[str, float]:
    """Seconds a step, by key, of every probe on such a device; a file that cannot be read is none."""
    found: dict[str, float] = {}
    for file in sorted((runs / "probes").glob("*.json")):
        try:
            content = store.read_json(file)
        except (store.Broken, FileNotFoundError):
            continue
        if content["gpu"] == device.gpu and device.called(content["device"]):
            found |= {name: pace["seconds"] for name, pace in content["paces"].items()}
    return found


def write(runs: Path, device: Device, measured: Mapping[str, Json]) -> None:
    """Adds paces to the device's file; of the same key the new one counts."""
    file = path(runs, device.name)
    try:
        before = store.read_json(file)["paces"]
    except (store.Broken, FileNotFoundError):
        before = {}
    content = {"schema": store.SCHEMA, "device": device.name, "gpu": device.gpu, "paces": before | dict(measured)}
    store.write_json(file, content)
