"""The timing of several implementations in alternation (A, B, B, A).

Whatever slows the machine then slows all of them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ablations.reporting.console import PlainConsole

Call = Callable[[], Any]
Seconds = npt.NDArray[np.float64]  # (rounds,)
FEW = 5  # fewer rounds than this have no meaningful quartiles


@dataclass(frozen=True)
class Spread:
    """Median and quartiles over rounds.

    low, high: the quartiles; with fewer rounds than FEW, the minimum and the maximum.
    """

    median: float
    low: float
    high: float


def spread(values: Seconds) -> Spread:
    """Return the median and quartiles of values (rounds,), or minimum and maximum for fewer than FEW."""
    low, median, high = np.percentile(values, [0, 50, 100] if len(values) < FEW else [25, 50, 75])
    return Spread(float(median), float(low), float(high))


def ratios(found: Mapping[str, Seconds], reference: str) -> dict[str, Spread]:
    """Return, for each other implementation, the spread of its time relative to the reference's time.

    Times are divided within a round. found: name -> seconds (rounds,). reference: a name.
    """
    return {name: spread(own / found[reference]) for name, own in found.items() if name != reference}


def interleaved(sides: Mapping[str, Call], rounds: int, calls: int, device: torch.device) -> dict[str, Seconds]:
    """Return the mean seconds per call of each implementation, (rounds,), measured in alternation.

    sides: name -> function to time. A turn is `calls` calls in a row.
    """
    return alternated({name: partial(timed, call, calls, device) for name, call in sides.items()}, rounds)


def alternated(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Seconds]:
    """Call each function once per round, in reverse order every other round; return its results, (rounds,).

    sides: name -> function. A terminal shows a progress bar. It is refreshed between turns, because a thread would
    disturb the timing.
    """
    found: dict[str, list[float]] = {name: [] for name in sides}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    turns = [name for number in range(rounds) for name in list(sides)[:: -1 if number % 2 else 1]]
    console = PlainConsole(stderr=True)
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, auto_refresh=False, disable=hidden) as bar:
        task = bar.add_task("", total=len(turns))
        for done, name in enumerate(turns):
            bar.update(task, description=name, completed=done, refresh=True)
            found[name].append(sides[name]())
    return {name: np.array(values) for name, values in found.items()}


def timed(call: Call, calls: int, device: torch.device) -> float:
    """Return the mean seconds per call over `calls` calls.

    On a GPU, the time ends when the GPU has finished all of them.
    """
    synchronize(device)
    began = time.perf_counter()
    repeat(call, calls)
    synchronize(device)
    return (time.perf_counter() - began) / calls


def repeat(call: Call, count: int) -> None:
    for _ in range(count):
        call()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
