"""A/B/A/B: what is compared is timed in turn, so that what slows the machine slows all of it alike."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Call = Callable[[], object]
Seconds = np.ndarray[Any, Any]  # a value a round
Spread = dict[str, float]
FEW = 5  # rounds from which there are quartiles: of fewer they would be made up


def interleaved(sides: Mapping[str, Call], rounds: int, calls: int, device: torch.device) -> dict[str, Seconds]:
    """Seconds a call of each side, (rounds,): `calls` of them in a row, every other round in the opposite order."""
    return gathered(turns(sides, rounds, calls, device), sides)


def turns(sides: Mapping[str, Call], rounds: int, calls: int, device: torch.device) -> Iterator[dict[str, float]]:
    """The same, round by round."""
    with progress(rounds * len(sides)) as begin:
        for number in range(rounds):
            found = {}
            for name in list(sides)[:: -1 if number % 2 else 1]:
                begin(name)
                found[name] = timed(sides[name], calls, device) / calls
            yield found


@contextmanager
def progress(turns: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, to be told of each turn before it begins. No thread of its own runs into the times."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, auto_refresh=False, disable=hidden) as bar:
        task, begun = bar.add_task("", total=turns), count()

        def begin(name: str) -> None:
            bar.update(task, description=name, completed=next(begun), refresh=True)

        yield begin


def gathered(turns: Iterable[Mapping[str, float]], names: Iterable[str]) -> dict[str, Seconds]:
    """By side."""
    found = list(turns)
    return {name: np.array([turn[name] for turn in found]) for name in names}


def timed(call: Call, calls: int, device: torch.device) -> float:
    """Seconds until the device is through with `calls` of them."""
    settle(device)
    began = time.perf_counter()
    for _ in range(calls):
        call()
    settle(device)
    return time.perf_counter() - began


def settle(device: torch.device) -> None:
    """Waits for what a GPU was given before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def ends(rounds: int) -> str:
    """What `spread` calls low and high."""
    return "lowest, highest" if rounds < FEW else "quartiles"


def spread(values: Seconds) -> Spread:
    """The median, and between which values the middle half lies; of FEW rounds the lowest and the highest."""
    low, median, high = np.percentile(values, [0, 50, 100] if len(values) < FEW else [25, 50, 75])
    return {"median": float(median), "low": float(low), "high": float(high)}
