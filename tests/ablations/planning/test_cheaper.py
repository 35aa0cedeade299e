"""The suggestion that makes an expensive plan cheaper."""

import re
from typing import Any

import pytest
import synthetic

from ablations.planning import cheaper
from ablations.planning.estimate import CORE_HOURS
from results.store.schemas import Plan
from vitcore.analysis.cost import measure
from vitcore.config import Config

SETTINGS = {"data": "digits", "image_size": 32, "patch": 2, "width": 32, "depth": 2, "heads": 2, "steps": 1000}


def told(hours: float, unit: str = CORE_HOURS, varied: tuple[str, ...] = (), **settings: Any) -> list[str]:
    config = Config(**{**SETTINGS, **settings})
    plan = Plan.model_validate(synthetic.position())
    arm = plan.baseline_arm.model_copy(update={"config": config.model_dump()})
    changes = {"arms": [arm], "factors": dict.fromkeys(varied), "curves": {}, "tune": {}}
    return cheaper.suggestions(hours, unit, plan.model_copy(update=changes))


@pytest.mark.parametrize(
    ("hours", "unit", "said"), [(23, CORE_HOURS, 0), (25, CORE_HOURS, 1), (239, "GPU-hours", 0), (241, "GPU-hours", 1)]
)
def test_only_an_expensive_plan_names_a_setting(hours: float, unit: str, said: int) -> None:
    lines = told(hours, unit)
    assert len(lines) == said
    assert all(line.startswith(f"{hours} {unit} are {hours / 24:.0f} days on one {unit[:-6]}; with ") for line in lines)


def test_the_named_setting_is_the_one_that_saves_most() -> None:
    (line,) = told(1000)
    match = re.search(r"with (\w+)=(\d+), about (\d+) core-hours", line)
    whole = measure(Config(**SETTINGS)).flops
    halved = {"image_size": 16, "patch": 4}
    shares = {key: measure(Config(**{**SETTINGS, key: value})).flops / whole for key, value in halved.items()}
    best = min(shares, key=lambda key: shares[key])
    assert (match[1], int(match[2])) == (best, halved[best])
    assert float(match[3]) == pytest.approx(1000 * shares[best], abs=1)
    assert shares[best] < 0.5  # or the steps would be named


def test_what_the_study_varies_or_the_model_cannot_have_is_not_named() -> None:
    assert told(100, varied=("patch", "image_size")) == [
        "100 core-hours are 4 days on one core; with steps=500, about 50 core-hours"
    ]
    assert told(100, varied=("patch", "image_size", "steps")) == ["100 core-hours are 4 days on one core"]
    assert "steps=500" in told(100, image_size=8, patch=8)[0]
