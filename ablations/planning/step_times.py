"""Measured seconds per training step, in one file per device: runs/probes/<device>.json. This module needs no torch.

The key of a measurement is a digest of all settings that the step time depends on. Arms that differ only in the
learning rate or the number of steps share a key.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ablations.execution.retry_rules import read_or_none
from ablations.provenance import source_digest
from ablations.trainables.trainable import Trainable, find, is_trial_id
from commonfloor.files import refuse_links
from results import store, units
from results.store.plan_files import parent_setting
from results.store.schemas import Entry, Environment, Plan, Settings, StepTime, StepTimes

STEPS = 50  # in a measurement


@dataclass(frozen=True)
class Device:
    """A GPU or a CPU core. name: the vendor's name or a part of it; "" for any device."""

    gpu: bool
    name: str = ""

    def ran_attempt(self, env: Environment, threads: int | None) -> bool:
        """Return whether an attempt ran on this device, with `threads` threads on a CPU."""
        if env.accelerator and (env.accelerator == "cuda") != self.gpu:  # "" in earlier versions
            return False
        has_other_threads = not self.gpu and env.threads not in (None, threads)
        return self.matches(env.device) and not has_other_threads

    def matches(self, name: str) -> bool:
        """Return whether `name` names this device. SLURM's a100 matches NVIDIA's A100-SXM4-80GB."""
        return normalized(self.name) in normalized(name)


def normalized(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def key(trainable: Trainable, settings: Settings, teacher: Settings | None = None) -> str:
    """Return a digest of the resolved settings that the step time depends on.

    teacher: the settings of the stage that the trial learns from, if any.
    """
    step = dict(trainable.step_settings(settings))
    if teacher:
        step["teacher"] = trainable.step_settings(teacher)
    return store.checksum(step)[:12]


def teacher_config(plan: Plan, entry: Entry) -> Settings | None:
    """Return the config of the stage that an arm or stage learns from, or None."""
    if entry.parent and parent_setting(entry.config) == "teacher":
        return next(plan.lineage(entry)).config
    return None


def path(runs: Path, device: str) -> Path:
    return runs / "probes" / f"{re.sub(r'[^A-Za-z0-9]+', '-', device).strip('-')}.json"


def read(runs: Path, device: Device) -> dict[str, float]:
    """Return key -> seconds per step on `device`. Raises NewerSchema if a newer version wrote a file."""
    seconds: dict[str, float] = {}
    for file in sorted((runs / "probes").glob("*.json")):
        content = read_or_none(file, StepTimes)
        if content and content.gpu == device.gpu and device.matches(content.device):
            seconds |= {name: measured.seconds for name, measured in content.paces.items()}
    return seconds


def write(runs: Path, device: Device, measured: Mapping[str, StepTime]) -> None:
    """Add measurements (key -> step time) to the device's file. Concurrent writers may lose measurements.

    Raises NewerSchema if a newer version wrote the file, ValueError for a symbolic link, and OSError if writing fails.
    """
    file = path(runs, device.name)
    refuse_links(runs, file.parent)
    before = read_or_none(file, StepTimes) or StepTimes(device=device.name, gpu=device.gpu)
    now = before.model_copy(update={"device": device.name, "gpu": device.gpu, "paces": {**before.paces, **measured}})
    store.write_json(file, {"schema": store.SCHEMA, **now.content()})


def measure_missing(plans: Iterable[Plan], runs: Path, data_dir: Path | None, say: Callable[[str], None]) -> None:
    """Measure the step times that are missing for this device, and write each to disk.

    say: called with a line about each measurement. Raises ValueError if steps of an arm cannot be measured here.
    """
    for plan, entry in [(planned, entry) for planned in plans for entry in planned.entries]:
        trainable = find(plan.trainable)
        teacher = teacher_config(plan, entry)
        device = Device(*trainable.hardware(entry.config))
        name = key(trainable, entry.config, teacher)
        if name in read(runs, device):
            continue
        if is_trial_id(entry.config.get("teacher")):
            teacher = store.trial(runs, entry.config["teacher"]).config()
        seconds = trainable.step_seconds(entry.config, data_dir, teacher)
        measured = StepTime(seconds=seconds, steps=STEPS, arm=entry.name, when=store.timestamp(), code=source_digest())
        write(runs, device, {name: measured})
        say(f"{entry.name}: {units.duration_text(seconds)} a step on {device.name}")
