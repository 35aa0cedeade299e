"""`ablate plan --probe`: what a step of each arm takes on this machine, measured."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from ablations.execution.provenance import source_digest
from ablations.planning import step_times
from ablations.planning.step_times import Device
from results import store
from results.store.planned import trained
from vitcore.config import Config, merge
from vitcore.data.splits import load
from vitcore.runtime.device import computing, device_of, hardware
from vitcore.training.loop import Training

Json = dict[str, Any]
WARM_UP, STEPS = 5, 50


def probe(
    plans: Iterable[Json], runs: Path, data_dir: Path | None, say: Callable[[str], None] = lambda line: None
) -> None:
    """Measures every pace that has none yet on this device and files it at once: what is interrupted goes on.

    Raises ValueError for an arm of several GPUs.
    """
    for arm in [arm for plan in plans for arm in trained(plan)]:
        config = Config(**arm["config"])
        if config.gpus > 1:
            raise ValueError(f"--probe measures steps of one process, and {arm['name']} has gpus={config.gpus}")
        device = Device(device_of(config) == "cuda", hardware(config))
        key = step_times.key(arm["config"])
        if key in step_times.read(runs, device):
            continue
        seconds = pace(config, data_dir)
        measured = {
            "seconds": seconds,
            "steps": STEPS,
            "arm": arm["name"],
            "when": store.now(),
            "code": source_digest(),
        }
        step_times.write(runs, device, {key: measured})
        say(f"{arm['name']}: {1000 * seconds:.3g} ms a step on {device.name}")


def pace(config: Config, data_dir: Path | None) -> float:
    """Seconds a training step, averaged over STEPS of them after WARM_UP. Nothing is written."""
    short = with_steps(config, WARM_UP + STEPS)
    with computing(config):
        training = Training(short, load(short, data_dir).to(torch.device(device_of(config))))
        advance(training, WARM_UP)
        before = elapsed(training)
        advance(training, STEPS)
        return (elapsed(training) - before) / STEPS


def with_steps(config: Config, steps: int) -> Config:
    """For so many of them, which changes nothing in one but its learning rate."""
    return Config(**merge(config.model_dump(), {"steps": steps}))


def advance(training: Training, steps: int) -> None:
    for _ in range(steps):
        training.advance()


def elapsed(training: Training) -> float:
    """Seconds of training until now, with whatever the device has still to do."""
    with training.off_the_clock():
        return training.seconds
