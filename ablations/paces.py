"""What probes measured, a file a device: runs/probes/<device>.json. Reading them loads no torch.

    paces    seconds a training step
    fused    whether kin pay as one (ablations.fusing)
    memory   what a trial takes of a GPU (ablations.sharing)

A pace is filed under everything that a step's time depends on, so that arms which differ in the learning rate or the
number of steps share it. Memory is filed under what it depends on besides: images stay on the GPU, and an eval that is
owed may take more than a step.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import store
from vitcore.kin import PACE, common

Json = dict[str, Any]
IMAGES = {"data_fraction", "val_fraction"}  # how many of them there are
PACES, FUSED, MEMORY = "paces", "fused", "memory"


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
    return store.checksum(common(config, PACE))[:12]


def memory_key(config: Mapping[str, Any], evals: Iterable[str] = ()) -> str:
    """Of a trial's resolved config, and of the evals that it owes."""
    return store.checksum({"config": common(config, PACE - IMAGES), "evals": sorted(evals)})[:12]


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


def measured(runs: Path, device: str, part: str) -> dict[str, Json]:
    """What was measured on the device of exactly this name, by key."""
    found = (content.get(part, {}) for content in files(runs) if content["device"] == device)
    return dict(next(found, {}))


def write(runs: Path, device: Device, part: str, measured: Mapping[str, Json]) -> None:
    """Adds to a part of the device's file; of the same key the new one counts.

    Of two processes at once one may lose what the other adds: it is measured again.
    """
    file = path(runs, device.name)
    try:
        before = store.read_json(file)
    except (store.Broken, FileNotFoundError):
        before = {}
    content = before | {"schema": store.SCHEMA, "device": device.name, "gpu": device.gpu}
    store.write_json(file, content | {part: before.get(part, {}) | dict(measured)})
