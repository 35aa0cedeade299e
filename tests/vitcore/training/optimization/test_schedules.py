"""The learning rate of each step against closed forms."""

import math
from typing import Any

import pytest

from vitcore import Config
from vitcore.training.optimization.schedules import SCHEDULE, learning_rate


def rates(**settings: Any) -> list[float]:
    config = Config(lr=1.0, **settings)
    return [learning_rate(step, config) for step in range(config.steps)]


CURVES: list[tuple[dict[str, Any], Any]] = [
    ({"schedule": "cosine"}, lambda x: (1 + math.cos(math.pi * x)) / 2),
    ({"schedule": "linear"}, lambda x: 1 - x),
    ({"schedule": "constant"}, lambda x: 1.0 if x < 0.8 else (1 - x) / 0.2),
    ({"schedule": "constant", "schedule.cooldown": 0.5}, lambda x: 1.0 if x < 0.5 else (1 - x) / 0.5),
    ({"schedule": "constant", "schedule.cooldown": 1.0}, lambda x: 1 - x),
    ({"schedule": "constant", "schedule.cooldown": 0.0}, lambda x: 1.0),
    ({"schedule": "wsd"}, lambda x: 1.0 if x < 0.8 else 1 - math.sqrt((x - 0.8) / 0.2)),
    ({"schedule": "wsd", "schedule.cooldown": 1.0}, lambda x: 1 - math.sqrt(x)),
]


@pytest.mark.parametrize(("settings", "after"), CURVES)
@pytest.mark.parametrize("warmup", [0.0, 0.2])
def test_schedule_equals_its_closed_form(settings: dict[str, Any], after: Any, warmup: float) -> None:
    """A line of warm-up to the whole rate, then a curve of the share of the steps after it, from 0."""
    begin = round(warmup * 50)
    expected = [(step + 1) / begin for step in range(begin)] + [after(i / (50 - begin)) for i in range(50 - begin)]
    assert rates(steps=50, warmup=warmup, **settings) == pytest.approx(expected)


def test_every_schedule_has_a_closed_form() -> None:
    assert {settings["schedule"] for settings, _ in CURVES} == set(SCHEDULE)


@pytest.mark.parametrize("schedule", SCHEDULE)
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.0), (1, 0.9), (2, 0.9), (10, 0.99)])
def test_last_step_still_learns(schedule: str, steps: int, warmup: float) -> None:
    """However short the training: no step has a rate of 0, none divides by 0."""
    assert all(0 < rate <= 1 for rate in rates(steps=steps, warmup=warmup, schedule=schedule))
