"""Time implementations in alternation (A, B, B, A), so that a slowdown of the machine affects all of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.progress import track

Call = Callable[[], Any]
Seconds = npt.NDArray[np.float64]  # (rounds,)
FEW = 5  # fewer rounds than this have no meaningful quartiles


@dataclass(frozen=True)
class Spread:
    """The median and quartiles over rounds. With fewer than FEW rounds, `low` and `high` are minimum and maximum."""

    median: float
    low: float
    high: float

    def text(self, form: str, scale: float = 1) -> str:
        """Return text such as "1.2 [1.1, 1.3]" for the numbers times `scale`. form: their format, such as "{:.1f}"."""
        return f"{form} [{form}, {form}]".format(*(scale * value for value in astuple(self)))


def spread(values: Seconds) -> Spread:
    return Spread(*np.percentile(values, [50, 0, 100] if len(values) < FEW else [50, 25, 75]).tolist())


def ratios(seconds: Mapping[str, Seconds], reference: str) -> dict[str, Spread]:
    """Return implementation -> spread over rounds of its time relative to `reference`, which is left out."""
    return {name: spread(own / seconds[reference]) for name, own in seconds.items() if name != reference}


def interleaved_seconds(sides: Mapping[str, Call], rounds: int, calls: int, device: torch.device) -> dict[str, Seconds]:
    """Return each function's mean seconds per call in each round (rounds,), timed in turns of `calls` calls."""
    return call_alternately({name: partial(mean_seconds, call, calls, device) for name, call in sides.items()}, rounds)


def call_alternately(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Seconds]:
    """Return each function's results (rounds,). All are called once per round, in reverse order every other round."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    order = [name for number in range(rounds) for name in list(sides)[:: -1 if number % 2 else 1]]
    console = Console(stderr=True)
    # A thread that refreshes the progress bar would disturb the timing.
    bar = track(order, "", console=console, transient=True, auto_refresh=False, disable=not console.is_terminal)
    for name in bar:
        values[name].append(sides[name]())
    return {name: np.array(results) for name, results in values.items()}


def mean_seconds(call: Call, calls: int, device: torch.device) -> float:
    """Return the mean seconds per call over `calls` calls, including the wait for the device."""
    synchronize = torch.get_device_module(device).synchronize  # does nothing on a CPU
    synchronize()
    began = time.perf_counter()
    repeat(call, calls)
    synchronize()
    return (time.perf_counter() - began) / calls


def repeat(call: Call, count: int) -> None:
    for _ in range(count):
        call()
