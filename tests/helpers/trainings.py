"""Trainings that stop and resume, and their metrics without times."""

from collections.abc import Callable
from typing import Any

from vitcore import Config, train
from vitcore.training.run import Memory


def after(steps: int) -> Callable[[], bool]:
    """Return a `stop` that lets a training take so many steps."""
    left = iter(range(steps))
    return lambda: next(left, None) is None


def finished(config: Config, *stops: int, **how: Any) -> Memory:
    """Train to the end, stopped after each of these numbers of further steps."""
    run = Memory()
    for steps in stops:
        assert train(config, run, stop=after(steps), **how).status == "stopped"
    assert train(config, run, **how).status == "finished"
    return run


def without_seconds(run: Memory) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in run.lines]
