"""The benchmark of a study: the step time and memory of each arm relative to its baseline.

The steps of an arm and of its baseline alternate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ablations.bench import memory
from ablations.bench.process import Source
from ablations.bench.result import Result, conditions, counted, mebibytes, text
from ablations.bench.rivals import OURS
from ablations.bench.timing import Seconds, Spread, interleaved, spread
from ablations.planning import step_times
from ablations.planning.measure_steps import take_steps, with_steps
from ablations.study.design import Arm, Design
from ablations.study.naming import matching
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.runtime.device import computing, torch_device
from vitcore.training.loop import Training

WARM_UP = 5


@dataclass(frozen=True)
class ArmMeasured:
    """The step time, size and memory of an arm, with the step time of its baseline.

    ratio: step time relative to the baseline; None if both have an equal step. flops: of one image's forward pass.
    memory_bytes: what steps need at their peak; None if the system does not report it.
    """

    arm: str
    baseline: str
    seconds_per_step: Spread
    baseline_seconds_per_step: Spread
    ratio: Spread | None
    params: int
    flops: int
    flops_ratio: float
    memory_bytes: int | None

    def cells(self) -> dict[str, str]:
        """Return the cells of the arm's row in the table, by column.

        If the arm and its baseline have an equal step, a text takes the place of the ratio.
        """
        same = "baseline" if self.arm == self.baseline else "the same step"
        return {
            "arm": self.arm,
            "a step": text(self.seconds_per_step, "{:.3g}", 1000) + " ms",
            "baseline's in turn": text(self.baseline_seconds_per_step, "{:.3g}", 1000) + " ms" if self.ratio else "",
            "time / baseline": text(self.ratio, "{:.3f}x") or same,
            "FLOPs / baseline": f"{self.flops_ratio:.2f}x",
            "memory": mebibytes(self.memory_bytes),
        }


@dataclass(frozen=True)
class Measured:
    """The measurements of all arms of a study."""

    study: str
    arms: list[ArmMeasured]


def chosen(design: Design, globs: Sequence[str]) -> list[Arm]:
    """Return the arms of a study whose names match any of the globs.

    Raises ValueError for a glob that matches no arm.
    """
    named = matching([arm.name for arm in design.arms], globs, design.name)
    return [arm for arm in design.arms if arm.name in named]


def bench(design: Design, arms: Sequence[Arm], rounds: int, calls: int, source: Source) -> Result:
    """Measure the step time and memory of arms of a study; return the benchmark's result.

    Arms with an equal step share a measurement. rounds: the number of timed turns per arm. calls: the number of steps
    per turn.
    """
    how = conditions(design.reference, source, rounds, calls)
    baselines = {arm.name: arm.config for arm in design.arms}
    pairs: dict[tuple[str, str], tuple[Seconds, Seconds]] = {}
    memories: dict[str, int | None] = {}
    found = []
    for arm in arms:
        config, baseline = arm.config, baselines[arm.baseline]
        key, other = step_times.key(config.model_dump()), step_times.key(baseline.model_dump())
        if (key, other) not in pairs:
            pairs[key, other] = beside(config, None if key == other else baseline, rounds, calls, source)
        if key not in memories:
            memories[key] = memory.of_side(config, OURS, source)
        own, theirs = pairs[key, other]
        cost, before = measure(config), measure(baseline)
        found.append(
            ArmMeasured(
                arm=arm.name,
                baseline=arm.baseline,
                seconds_per_step=spread(own),
                baseline_seconds_per_step=spread(theirs),
                ratio=None if key == other else spread(own / theirs),
                params=cost.params,
                flops=cost.flops,
                flops_ratio=cost.flops * config.batch / (before.flops * baseline.batch),
                memory_bytes=memories[key],
            )
        )
    caption = f" in turn with the baseline, {counted(calls, 'step')} each. memory: what steps add at their peak."
    title = f"A step of each arm of {design.name}; its recipe"
    return Result("arms", how, Measured(design.name, found), title, caption, [arm.cells() for arm in found])


def beside(config: Config, baseline: Config | None, rounds: int, calls: int, source: Source) -> tuple[Seconds, Seconds]:
    """Return the seconds per step of an arm and of its baseline, each (rounds,).

    baseline: the config of the baseline; None if its step equals the arm's, which is then returned twice.
    """
    with computing(config):
        steps = {}
        for name, one in {"arm": config, "baseline": baseline}.items():
            if one is not None:
                training = Training(with_steps(one, WARM_UP + rounds * calls), source.images(one))
                take_steps(training, WARM_UP)
                steps[name] = training.advance
        found = interleaved(steps, rounds, calls, torch_device(config))
    return found["arm"], found.get("baseline", found["arm"])
