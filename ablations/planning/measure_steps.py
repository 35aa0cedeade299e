"""Measure the step time of each arm on this machine, for `ablate plan --probe`."""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from ablations.planning import step_times
from ablations.planning.step_times import Device
from ablations.provenance import source_digest
from results import store, units
from results.store.schemas import Plan, StepTime
from vitcore.config import Config, merge
from vitcore.data.splits import load
from vitcore.runtime.compile_cache import compiles
from vitcore.runtime.device import compute_settings, device_of, hardware
from vitcore.training.distillation import teacher_for, untrained_teacher
from vitcore.training.distributed import ALONE
from vitcore.training.parents import is_trial
from vitcore.training.state import Training

WARM_UP, STEPS = 5, 50


def measure_missing(plans: Iterable[Plan], runs: Path, data_dir: Path | None, say: Callable[[str], None]) -> None:
    """Measure the step times that are missing for this device, and write each to disk.

    say: called with a line about each measurement. Raises ValueError if an arm trains on several GPUs. Also raises the
    errors of `load`, `teacher_for`, `Trial.config`, `Training.advance` and `step_times.write`.
    """
    for arm, teacher in [(arm, step_times.teacher_config(plan, arm)) for plan in plans for arm in plan.entries]:
        config = Config(**arm.config)
        if config.gpus > 1:
            raise ValueError(f"--probe measures steps of one process, and {arm.name} has gpus={config.gpus}")
        device = Device(device_of(config) == "cuda", hardware(config))
        key = step_times.key(arm.config, teacher)
        if key in step_times.read(runs, device):
            continue
        if is_trial(config.teacher):
            teacher = store.trial(runs, config.teacher).config()
        seconds = step_time(config, data_dir, Config(**teacher) if teacher else None)
        measured = StepTime(seconds=seconds, steps=STEPS, arm=arm.name, when=store.timestamp(), code=source_digest())
        step_times.write(runs, device, {key: measured})
        say(f"{arm.name}: {units.duration_text(seconds)} a step on {device.name}")


def step_time(config: Config, data_dir: Path | None, teacher: Config | None = None) -> float:
    """Return the mean seconds per training step over STEPS steps, after WARM_UP steps.

    teacher: the config of the trial that is the teacher, which need not be trained yet.
    """
    short = with_steps(config, WARM_UP + STEPS)
    with compute_settings(config):
        data = load(short, data_dir).to(torch.device(device_of(config)))
        model = untrained_teacher(teacher, data) if teacher else teacher_for(config, data, ALONE, None)
        training = Training(short, data, teacher=model)
        take_steps(training, WARM_UP)
        before = training_seconds(training)
        take_steps(training, STEPS)
        return (training_seconds(training) - before) / STEPS


def with_steps(config: Config, steps: int) -> Config:
    """Return the config with `steps` training steps, compiled if the original config would be."""
    compile_ = compiles(config, device_of(config))
    return Config(**merge(config.model_dump(), {"steps": steps, "compile": compile_}))


def take_steps(training: Training, steps: int) -> None:
    for _ in range(steps):
        training.advance()


def training_seconds(training: Training) -> float:
    with training.off_the_clock():
        return training.seconds
