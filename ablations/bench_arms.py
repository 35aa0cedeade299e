"""What a step of each arm of a study takes beside its baseline's: the two in turn, and the memory of each."""

from collections.abc import Sequence
from typing import Any

from ablations import bench_memory, paces
from ablations.bench_clock import Seconds, Spread, interleaved, spread
from ablations.bench_images import images
from ablations.bench_process import Source
from ablations.bench_step import OURS
from ablations.probing import with_steps
from ablations.study import Arm
from vitcore.config import Config
from vitcore.device import computing
from vitcore.measure import measure
from vitcore.train import Training

Json = dict[str, Any]
WARM_UP = 5


class Pairs:
    """Measures two configs in turn; arms that differ in nothing that a step's time depends on share a measurement."""

    def __init__(self, rounds: int, calls: int, source: Source) -> None:
        self.rounds, self.calls, self.source = rounds, calls, source
        self.pairs: dict[tuple[str, str], tuple[Seconds, Seconds]] = {}
        self.memories: dict[str, int | None] = {}

    def seconds(self, arm: Config, baseline: Config) -> tuple[Seconds, Seconds]:
        """A step of each, (rounds,)."""
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
            self.memories[key] = bench_memory.one(config, OURS, self.source)
        return self.memories[key]

    def training(self, config: Config) -> Training:
        config = with_steps(config, WARM_UP + self.rounds * self.calls)
        return Training(config, images(config, self.source.data_dir, self.source.random))


def bench(arms: Sequence[Arm], among: Sequence[Arm], pairs: Pairs) -> list[Json]:
    """A row an arm; its baseline is found in `among`."""
    named = {arm.name: arm.config for arm in among}
    return [row(arm, arm.config, named[arm.baseline], pairs) for arm in arms]


def row(arm: Arm, config: Config, baseline: Config, pairs: Pairs) -> Json:
    """ratio: the arm's time over the baseline's, None where their steps are the same one."""
    same = pace(config) == pace(baseline)
    own, other = pairs.seconds(config, baseline)
    ratio: Spread | None = None if same else spread(own / other)
    cost, before = measure(config), measure(baseline)
    return {
        "arm": arm.name,
        "baseline": arm.baseline,
        "seconds_per_step": spread(own),
        "baseline_seconds_per_step": spread(other),  # in the same turns
        "ratio": ratio,
        "params": cost["params"],
        "flops": cost["flops"],
        "flops_ratio": cost["flops"] * config.batch / (before["flops"] * baseline.batch),
        "memory_bytes": pairs.memory(config),
    }


def pace(config: Config) -> str:
    return paces.key(config.model_dump())
