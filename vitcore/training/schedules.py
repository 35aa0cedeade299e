"""Learning-rate schedules. To add a schedule, write a class and add it to SCHEDULE."""

import math
from typing import Annotated

from pydantic import Field

from vitcore.settings import Settings
from vitcore.variant import Variant


def learning_rate(step: int, config: Settings) -> float:
    """Return the learning rate of a step, counted from 0. A linear warm-up to `config.lr` precedes the schedule."""
    warmup = round(config.warmup * config.steps)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    done = (step - warmup) / (config.steps - warmup)  # [0, 1)
    return config.lr * SCHEDULE[config.schedule].share(done, config)


class Schedule(Variant):
    """Base class of schedules, which choose the learning rate after the warm-up."""

    slot = "schedule"

    @classmethod
    def share(cls, done: float, config: Settings) -> float:
        """Return the learning rate as a fraction of `config.lr`. done: elapsed fraction of the schedule, in [0, 1)."""
        raise NotImplementedError


class Cosine(Schedule):
    """A decay by half a cosine, which reaches 0 after the last step (arXiv 1608.03983)."""

    numerics = 1

    @classmethod
    def share(cls, done: float, config: Settings) -> float:
        return 0.5 * (1 + math.cos(math.pi * done))


class Linear(Schedule):
    """A linear decay, which reaches 0 after the last step (arXiv 2010.11929, Table 3)."""

    numerics = 1

    @classmethod
    def share(cls, done: float, config: Settings) -> float:
        return 1 - done


class Constant(Schedule):
    """A constant learning rate with a linear cooldown to 0 at the end (arXiv 2106.04560, section 3.5)."""

    numerics = 1

    class Options(Schedule.Options):
        cooldown: Annotated[float, Field(ge=0, le=1)] = 0.2  #: Length, as a fraction of the steps after the warm-up.

    @classmethod
    def share(cls, done: float, config: Settings) -> float:
        cooldown = config.options_of(cls.slot, cls.Options).cooldown
        return min(1.0, (1 - done) / cooldown) if cooldown else 1.0


class WarmUpStableDecay(Schedule):
    """A constant learning rate, then a cooldown by 1 - sqrt(x) as x rises from 0 to 1 (arXiv 2405.18392, section 3)."""

    numerics = 1

    class Options(Schedule.Options):
        cooldown: Annotated[float, Field(gt=0, le=1)] = 0.2  #: Length, as a fraction of the steps after the warm-up.

    @classmethod
    def share(cls, done: float, config: Settings) -> float:
        cooldown = config.options_of(cls.slot, cls.Options).cooldown
        return 1 - math.sqrt(max(0.0, (done - (1 - cooldown)) / cooldown))


SCHEDULE: dict[str, type[Schedule]] = {
    "cosine": Cosine,
    "linear": Linear,
    "constant": Constant,
    "wsd": WarmUpStableDecay,
}
