"""Measured seconds a training step, a file a device: runs/probes/<device>.json. Reading them loads no torch.

A measurement is filed under everything that a step's time depends on. Arms that differ in the learning rate or the
number of steps share it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import store
from results.store.paths import refuse_links

Json = dict[str, Any]
FREE = {  # settings that a step's time does not depend on
    *("seed", "data_seed", "data_fraction", "val_fraction"),
    *("lr", "weight_decay", "warmup", "schedule", "steps", "evaluations"),
    *("init", "head_init", "init_from"),
    *("layer_decay", "weight_decay_on", "label_smoothing"),
}
PACES = "paces"  # files of earlier versions hold other measurements beside them


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
    """Of an arm's resolved config: a digest of the settings that a step's time depends on."""
    return store.checksum({name: value for name, value in config.items() if name not in FREE})[:12]


def path(runs: Path, device: str) -> Path:
    return runs / "probes" / f"{re.sub(r'[^A-Za-z0-9]+', '-', device).strip('-')}.json"


def files(runs: Path) -> Iterator[Json]:
    """What each file holds; one that cannot be read is none."""
    for file in sorted((runs / "probes").glob("*.json")):
        try:
            yield store.read_json(file)
        except (store.Broken, FileNotFoundError):
            continue


def read(runs: Path, device: Device) -> dict[str, float]:
    """Seconds a step, by key, of every probe on such a device."""
    found: dict[str, float] = {}
    for content in files(runs):
        if content["gpu"] == device.gpu and device.called(content["device"]):
            found |= {name: pace["seconds"] for name, pace in content.get(PACES, {}).items()}
    return found


def write(runs: Path, device: Device, measured: Mapping[str, Json]) -> None:
    """Add to the device's file; a new measurement replaces the one under the same key.

    Of two processes that write at once one may lose the other's measurement, which is then made again.
    """
    file = path(runs, device.name)
    refuse_links(runs, file.parent)
    try:
        before = store.read_json(file)
    except (store.Broken, FileNotFoundError):
        before = {}
    content = before | {"schema": store.SCHEMA, "device": device.name, "gpu": device.gpu}
    store.write_json(file, content | {PACES: before.get(PACES, {}) | dict(measured)})
