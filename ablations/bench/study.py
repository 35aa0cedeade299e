"""The step time and memory of each arm of a study beside its baseline's, measured in alternation."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from ablations.bench import memory
from ablations.bench.process import Source
from ablations.bench.rivals import OURS
from ablations.bench.timing import Seconds, interleaved, spread
from ablations.planning import step_times
from ablations.planning.measure_steps import with_steps
from ablations.study.design import Arm, Design
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.runtime.device import computing
from vitcore.training.loop import Training

Json = dict[str, Any]
WARM_UP = 5


def chosen(design: Design, glob: str) -> list[Arm]:
    """The arms of a study that match `glob`. Raises ValueError if none does."""
    found = [arm for arm in design.arms if fnmatchcase(arm.name, glob)]
    if not found:
        names = ", ".join(arm.name for arm in design.arms)
        raise ValueError(f"--arm {glob}: {design.name} has the arms {names}")
    return found


def bench(design: Design, arms: Sequence[Arm], rounds: int, calls: int, source: Source) -> list[Json]:
    """One row per arm."""
    named = {arm.name: arm.config for arm in design.arms}
    pairs = Pairs(rounds, calls, source)
    return [row(arm, named[arm.baseline], pairs) for arm in arms]


class Pairs:
    """Measures two configs in turn; arms with the same step share a measurement."""

    def __init__(self, rounds: int, calls: int, source: Source) -> None:
        self.rounds, self.calls, self.source = rounds, calls, source
        self.pairs: dict[tuple[str, str], tuple[Seconds, Seconds]] = {}
        self.memories: dict[str, int | None] = {}

    def seconds(self, arm: Config, baseline: Config) -> tuple[Seconds, Seconds]:
        """Seconds per step of each config, (rounds,)."""
        key = pace(arm), pace(baseline)
        if key not in self.pairs:
            with computing(arm):
                sides = {"arm": self.training(arm)}
                if pace(arm) != pace(baseline):  # the same step is not timed beside itself
                    sides["baseline"] = self.training(baseline)
                steps = {name: side.advance for name, side in sides.items()}
                for step in steps.values():
                    for _ in range(WARM_UP):
                        step()
                found = interleaved(steps, self.rounds, self.calls, sides["arm"].device)
            self.pairs[key] = found["arm"], found.get("baseline", found["arm"])
        return self.pairs[key]

    def memory(self, config: Config) -> int | None:
        if (key := pace(config)) not in self.memories:
            self.memories[key] = memory.of_side(config, OURS, self.source)
        return self.memories[key]

    def training(self, config: Config) -> Training:
        return Training(with_steps(config, WARM_UP + self.rounds * self.calls), self.source.images(config))


def row(arm: Arm, baseline: Config, pairs: Pairs) -> Json:
    """The row of an arm. ratio: its step time over the baseline's; None if both have the same step."""
    config = arm.config
    own, other = pairs.seconds(config, baseline)
    cost, before = measure(config), measure(baseline)
    return {
        "arm": arm.name,
        "baseline": arm.baseline,
        "seconds_per_step": spread(own),
        "baseline_seconds_per_step": spread(other),  # in the same turns
        "ratio": None if pace(config) == pace(baseline) else spread(own / other),
        "params": cost["params"],
        "flops": cost["flops"],
        "flops_ratio": cost["flops"] * config.batch / (before["flops"] * baseline.batch),
        "memory_bytes": pairs.memory(config),
    }


def pace(config: Config) -> str:
    return step_times.key(config.model_dump())
