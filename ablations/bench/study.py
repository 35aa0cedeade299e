"""The benchmark of a study: the step time and memory of each arm, alternating with its baseline."""

from collections.abc import Collection
from dataclasses import dataclass

from ablations.bench import memory
from ablations.bench.process import Source
from ablations.bench.result import Result, column, conditions, mebibytes
from ablations.bench.rivals import OURS
from ablations.bench.timing import Seconds, Spread, interleaved_seconds, spread
from ablations.planning import step_times
from ablations.planning.measure_steps import take_steps, with_steps
from ablations.study.design import Design
from results.units import amount_text
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.runtime.device import compute_settings, torch_device
from vitcore.training.state import Training

WARM_UP = 5
MILLISECONDS = ("{:.3g}", 1000, " ms")


@dataclass(frozen=True)
class ArmMeasured:
    """The measured steps of an arm and of its baseline. The field names are keys of the JSON."""

    arm: str
    baseline: str
    seconds_per_step: Spread
    baseline_seconds_per_step: Spread
    ratio: Spread | None  # None if the baseline has the same step
    params: int
    flops: int  # FLOPs of a forward pass of one image
    flops_ratio: float
    memory_bytes: int | None


def bench(design: Design, names: Collection[str], rounds: int, calls: int, source: Source) -> Result:
    """Measure the step time and memory of the named arms of a study, in `rounds` turns of `calls` steps per arm.

    Raises ValueError if a process fails.
    """
    how = conditions(design.reference, source, rounds, calls)
    found = measure_arms(design, names, rounds, calls, source)
    caption = f" in turn with the baseline, {amount_text(calls, 'step')} each. memory: what steps add at their peak."
    title = f"A step of each arm of {design.name}; its recipe"
    return Result("arms", how, {"study": design.name, "arms": found}, title, caption, "arm", columns(found))


def measure_arms(design: Design, names: Collection[str], rounds: int, calls: int, source: Source) -> list[ArmMeasured]:
    """Return the measurements of the named arms. Arms with equal steps and equal baselines are timed once."""
    baselines = {arm.name: arm.config for arm in design.arms}
    pairs: dict[tuple[str, str], tuple[Seconds, Seconds]] = {}
    memories: dict[str, int | None] = {}
    found = []
    for arm in (arm for arm in design.arms if arm.name in names):
        config, baseline = arm.config, baselines[arm.baseline]
        pair = key, reference = step_times.key(config.model_dump()), step_times.key(baseline.model_dump())
        if pair not in pairs:
            other = None if key == reference else baseline
            pairs[pair] = time_beside_baseline(config, other, rounds, calls, source)
        if key not in memories:
            memories[key] = memory.memory_of_side(config, OURS, source)
        own, theirs = pairs[pair]
        ratio = None if key == reference else spread(own / theirs)
        cost, before = measure(config), measure(baseline)
        flops_ratio = cost.flops * config.batch / (before.flops * baseline.batch)
        times = spread(own), spread(theirs), ratio
        found.append(ArmMeasured(arm.name, arm.baseline, *times, cost.params, cost.flops, flops_ratio, memories[key]))
    return found


def columns(found: Collection[ArmMeasured]) -> dict[str, dict[str, str]]:
    """Return the columns of the table: header -> arm -> cell."""
    same = {one.arm: "baseline" if one.arm == one.baseline else "the same step" for one in found}
    ratios = {one.arm: one.ratio for one in found if one.ratio}
    theirs = {one.arm: one.baseline_seconds_per_step for one in found if one.ratio}
    return {
        "a step": column({one.arm: one.seconds_per_step for one in found}, *MILLISECONDS),
        "baseline's in turn": column(theirs, *MILLISECONDS),
        "time / baseline": same | column(ratios, "{:.3f}x"),
        "FLOPs / baseline": {one.arm: f"{one.flops_ratio:.2f}x" for one in found},
        "memory": {one.arm: mebibytes(one.memory_bytes) for one in found},
    }


def time_beside_baseline(
    config: Config, baseline: Config | None, rounds: int, calls: int, source: Source
) -> tuple[Seconds, Seconds]:
    """Return (seconds per step of an arm, seconds per step of its baseline), each (rounds,).

    baseline: None if its step equals the arm's. The arm's seconds are then returned twice.
    """
    with compute_settings(config):
        steps = {}
        for name, one in {"arm": config, "baseline": baseline}.items():
            if one is not None:
                training = Training(with_steps(one, WARM_UP + rounds * calls), source.images(one))
                take_steps(training, WARM_UP)
                steps[name] = training.advance
        found = interleaved_seconds(steps, rounds, calls, torch_device(config))
    return found["arm"], found.get("baseline", found["arm"])
