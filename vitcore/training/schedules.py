"""Learning-rate schedules. To add a schedule, write a class and add it to SCHEDULE."""

import math
from bisect import bisect_right
from itertools import accumulate
from typing import Annotated

from pydantic import Field

from commonfloor.options import ConfigError
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


class FloorOptions(Schedule.Options):
    """The lowest learning rate of a decay."""

    floor: Annotated[float, Field(ge=0, lt=1)] = 0.0  #: Rate after the last step, as a fraction of `lr`.


class Cosine(Schedule):
    """A decay by half a cosine, which reaches the floor after the last step (arXiv 1608.03983)."""

    numerics = 1
    Options = FloorOptions

    @classmethod
    def share(cls, done: float, config: Settings) -> float:
        floor = config.options_of(cls.slot, cls.Options).floor
        return floor + (1 - floor) * half_cosine(done)


class CosineRestarts(Schedule):
    """Several decays by half a cosine, each from the full learning rate (SGDR: arXiv 1608.03983, equation 5)."""

    numerics = 1

    class Options(FloorOptions):
        """The number of decays, and their lengths, which fill the steps after the warm-up."""

        cycles: Annotated[int, Field(ge=1, le=100)] = 3  #: Number of decays.
        growth: Annotated[float, Field(ge=1, le=10)] = 2.0  #: Length of a decay, divided by that of the one before.

    @classmethod
    def share(cls, done: float, config: Settings) -> float:
        options = config.options_of(cls.slot, cls.Options)
        lengths = [options.growth**cycle for cycle in range(options.cycles)]  # in lengths of the first decay
        ends = [round(end, 9) for end in accumulate(lengths)]
        position = round(done * ends[-1], 9)  # rounded, as the ends are: no restart is late
        cycle = min(bisect_right(ends, position), options.cycles - 1)
        start = ends[cycle - 1] if cycle else 0.0
        return options.floor + (1 - options.floor) * half_cosine((position - start) / (ends[cycle] - start))


def half_cosine(done: float) -> float:
    """Return the height, from 1 to 0, of half a cosine of which the fraction `done` has elapsed."""
    return 0.5 * (1 + math.cos(math.pi * done))


class Linear(Schedule):
    """A linear decay, which reaches the floor after the last step (arXiv 2010.11929, Table 3)."""

    numerics = 1
    Options = FloorOptions

    @classmethod
    def share(cls, done: float, config: Settings) -> float:
        return 1 - done * (1 - config.options_of(cls.slot, cls.Options).floor)


class Step(Schedule):
    """A constant learning rate, multiplied by `gamma` at each milestone (arXiv 1512.03385, section 4.2)."""

    numerics = 1

    class Options(Schedule.Options):
        """The milestones, and the factor. By default, they are those of ResNets on CIFAR-10 in arXiv 1512.03385."""

        #: Ascending fractions of the steps after the warm-up, such as `[0.5, 0.75]`.
        milestones: Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(min_length=1)] = [0.5, 0.75]
        gamma: Annotated[float, Field(gt=0, lt=1)] = 0.1  #: Factor at each milestone.

    @classmethod
    def check(cls, config: Settings) -> None:
        milestones = config.options_of(cls.slot, cls.Options).milestones
        if sorted(set(milestones)) != milestones:
            raise ConfigError(f"schedule.milestones={milestones}: each above the one before")

    @classmethod
    def share(cls, done: float, config: Settings) -> float:
        options = config.options_of(cls.slot, cls.Options)
        return options.gamma ** bisect_right(options.milestones, done)


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
    "cosine-restarts": CosineRestarts,
    "linear": Linear,
    "step": Step,
    "constant": Constant,
    "wsd": WarmUpStableDecay,
}
