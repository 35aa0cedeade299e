"""Timing sides in alternation (A/B/A/B), so that what slows the machine slows all of them."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ablations.reporting.console import PlainConsole

Call = Callable[[], object]
Seconds = np.ndarray[Any, Any]  # (rounds,)
Spread = dict[str, float]
FEW = 5  # with fewer rounds than this, quartiles would be made up


def interleaved(sides: Mapping[str, Call], rounds: int, calls: int, device: torch.device) -> dict[str, Seconds]:
    """Seconds per call of each side, (rounds,). A turn is `calls` in a row; every other round is in reverse order."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    with progress(rounds * len(sides)) as begin:
        for number in range(rounds):
            for name in list(sides)[:: -1 if number % 2 else 1]:
                begin(name)
                found[name].append(timed(sides[name], calls, device) / calls)
    return {name: np.array(seconds) for name, seconds in found.items()}


@contextmanager
def progress(turns: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal; call the result with a side's name before each turn. No thread disturbs the timing."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = PlainConsole(stderr=True)
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, auto_refresh=False, disable=hidden) as bar:
        task, done = bar.add_task("", total=turns), count()
        yield lambda name: bar.update(task, description=name, completed=next(done), refresh=True)


def timed(call: Call, calls: int, device: torch.device) -> float:
    """Seconds until the device has finished `calls` calls."""
    synchronize(device)
    began = time.perf_counter()
    for _ in range(calls):
        call()
    synchronize(device)
    return time.perf_counter() - began


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def ends(rounds: int) -> str:
    """The names of the low and high ends of `spread`."""
    return "lowest, highest" if rounds < FEW else "quartiles"


def spread(values: Seconds) -> Spread:
    """Median and quartiles; with fewer than FEW rounds, lowest and highest."""
    low, median, high = np.percentile(values, [0, 50, 100] if len(values) < FEW else [25, 50, 75])
    return {"median": float(median), "low": float(low), "high": float(high)}
