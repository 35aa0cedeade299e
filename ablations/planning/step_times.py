"""Measured seconds per training step, in one file per device: runs/probes/<device>.json. This module needs no torch.

The key of a measurement is a digest of all settings that the step time depends on. Arms that differ only in the
learning rate or the number of steps share a key.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.execution.attempts import read_or_none
from results import store
from results.store.files import refuse_links
from results.store.plan_files import parent_setting
from results.store.schemas import Entry, Environment, Plan, Settings, StepTime, StepTimes

FREE = {  # settings that a step's time does not depend on
    *("seed", "data_seed", "data_fraction", "val_fraction"),
    *("lr", "weight_decay", "warmup", "schedule", "steps", "evaluations"),
    *("init", "head_init", "init_from"),
    *("layer_decay", "weight_decay_on", "label_smoothing"),
}


@dataclass(frozen=True)
class Device:
    """A GPU or a CPU core. name: the vendor's name or a part of it; "" for any device."""

    gpu: bool
    name: str = ""

    def ran_attempt(self, env: Environment, threads: int) -> bool:
        """Return whether an attempt ran on this device, with `threads` threads on a CPU."""
        kind = env.accelerator  # "" in earlier versions: then only the name is compared
        if kind and (kind == "cuda") != self.gpu:
            return False
        if not self.gpu and env.threads not in (None, threads):
            return False
        return self.matches(env.device)

    def matches(self, name: str) -> bool:
        """Return whether `name` names this device. SLURM's a100 matches NVIDIA's A100-SXM4-80GB."""
        return normalized(self.name) in normalized(name)


def normalized(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def key(config: Mapping[str, Any], teacher: Mapping[str, Any] | None = None) -> str:
    """Return a digest of the settings of a resolved config that the step time depends on.

    teacher: the config of the stage that the trial learns from, if any.
    """
    own, taught = ({name: one[name] for name in one if name not in FREE} for one in (config, teacher or {}))
    return store.checksum(own | ({"teacher": taught} if taught else {}))[:12]


def teacher_config(plan: Plan, entry: Entry) -> Settings | None:
    """Return the config of the stage that an arm or stage learns from, or None."""
    learns = entry.parent and parent_setting(entry.config) == "teacher"
    return next(plan.lineage(entry)).config if learns else None


def path(runs: Path, device: str) -> Path:
    return runs / "probes" / f"{re.sub(r'[^A-Za-z0-9]+', '-', device).strip('-')}.json"


def read(runs: Path, device: Device) -> dict[str, float]:
    """Return key -> seconds per step on `device`. Raises NewerSchema if a newer version wrote a file."""
    found: dict[str, float] = {}
    for file in sorted((runs / "probes").glob("*.json")):
        content = read_or_none(file, StepTimes)
        if content and content.gpu == device.gpu and device.matches(content.device):
            found |= {name: measured.seconds for name, measured in content.paces.items()}
    return found


def write(runs: Path, device: Device, measured: Mapping[str, StepTime]) -> None:
    """Add measurements (key -> step time) to the device's file. Concurrent writers may lose measurements.

    Raises NewerSchema if a newer version wrote the file, ValueError for a symbolic link, and OSError if writing fails.
    """
    file = path(runs, device.name)
    refuse_links(runs, file.parent)
    before = read_or_none(file, StepTimes) or StepTimes(device=device.name, gpu=device.gpu)
    now = before.model_copy(update={"device": device.name, "gpu": device.gpu, "paces": {**before.paces, **measured}})
    store.write_json(file, {"schema": store.SCHEMA, **now.content()})
