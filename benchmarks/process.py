"""Measurements in separate processes, and the images on which benchmarks run."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic_core import to_jsonable_python

from ablations.provenance import HOME
from vitcore.config import Config
from vitcore.data.splits import Data, Images, load
from vitcore.runtime.device import torch_device

BATCHES = 4  # number of batches of random images


@dataclass(frozen=True)
class Source:
    """The images of a benchmark: those of the config's data set, or random ones."""

    random: bool = False

    def images(self, config: Config) -> Data:
        """Return images and labels for a config, on the config's device. Raises the errors of splits.load."""
        data = random_images(config) if self.random else load(config, None)
        return data.to(torch_device(config))


def random_images(config: Config) -> Data:
    """Return BATCHES batches of random uint8 images and labels. A step takes as long as with real images."""
    generator = torch.Generator().manual_seed(0)
    count = BATCHES * config.batch
    size = (count, config.channels, *config.image_shape)
    pixels = torch.randint(256, size, generator=generator, dtype=torch.uint8)
    labels = torch.randint(config.classes, (count,), generator=generator)
    some = Images(pixels, labels, np.arange(count))
    statistics = [torch.full((1, config.channels, 1, 1), value) for value in (127.5, 74.0)]
    return Data(some, some, some, *statistics)


def statistics(data: Data) -> tuple[list[float], list[float]]:
    """Return (means, standard deviations) of the channels, for pixel values scaled to [0, 1]."""
    return data.mean.flatten().div(255).tolist(), data.std.flatten().div(255).tolist()


def measure_in_process(module: str, config: Config, source: Source, own: dict[str, str], **more: str) -> Any:
    """Return the result of a module's `measure(config, source, **more)` in a new process.

    module: a module that calls `print_measurement`. own: environment variables. Raises ValueError if the process fails.
    """
    order = to_jsonable_python({"config": config, "source": source, "more": more})
    return json.loads(run(python_command(module), own, input=json.dumps(order)))


def print_measurement(measure: Callable[..., object]) -> None:
    """Print the result of a measurement as JSON, in the process that `measure_in_process` starts."""
    order = json.load(sys.stdin)
    measured = measure(Config(**order["config"]), Source(**order["source"]), **order["more"])
    print(json.dumps(to_jsonable_python(measured)))


def python_command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module of this code, independent of the working directory."""
    return [sys.executable, "-P", "-m", module, *words]


def run(command: Sequence[str], own: dict[str, str], **how: Any) -> str:
    """Run a command and return its standard output. own: additional environment variables.

    how: arguments of subprocess.run. Raises a ValueError with the last line of standard error if the command fails.
    """
    done = subprocess.run(command, env=environment() | own, capture_output=True, text=True, **how)
    if done.returncode:
        name = " ".join(command[1:5]).removeprefix("-P -m ")
        raise ValueError(f"{name}: {(done.stderr.strip().splitlines() or ['killed'])[-1]}")
    return str(done.stdout)


def environment() -> dict[str, str]:
    """Return this process's environment variables, with a PYTHONPATH from which a new process imports this code."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))}
