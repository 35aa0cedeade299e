"""Measure the time of a training step."""

from pathlib import Path

import torch

from vitcore.config import Config, merge
from vitcore.data.splits import load
from vitcore.runtime.compile_cache import compiles
from vitcore.runtime.device import compute_settings, device_of
from vitcore.training.distributed import ALONE
from vitcore.training.pretrained import teacher_for, untrained_teacher
from vitcore.training.state import Training

WARM_UP, STEPS = 5, 50


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
