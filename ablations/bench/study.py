"""The benchmark of a study: the step time and memory of each arm, alternating with its baseline."""

from collections.abc import Collection
from typing import Any

from ablations.bench import memory
from ablations.bench.process import Source
from ablations.bench.result import Result, column, conditions, count_text, mebibytes
from ablations.bench.rivals import OURS
from ablations.bench.timing import Seconds, interleaved_seconds, spread
from ablations.planning import step_times
from ablations.planning.measure_steps import take_steps, with_steps
from ablations.study.design import Design
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.runtime.device import compute_settings, torch_device
from vitcore.training.state import Training

WARM_UP = 5
MILLISECONDS = ("{:.3g}", 1000, " ms")


def bench(design: Design, names: Collection[str], rounds: int, calls: int, source: Source) -> Result:
    """Measure the step time and memory of the named arms of a study, in `rounds` turns of `calls` steps per arm.

    Arms with an equal step share a measurement. Raises ValueError if a process fails.
    """
    how = conditions(design.reference, source, rounds, calls)
    baselines = {arm.name: arm.config for arm in design.arms}
    pairs: dict[tuple[str, str], tuple[Seconds, Seconds]] = {}
    memories: dict[str, int | None] = {}
    found: list[dict[str, Any]] = []
    for arm in (arm for arm in design.arms if arm.name in names):
        config, baseline = arm.config, baselines[arm.baseline]
        key, reference = step_times.key(config.model_dump()), step_times.key(baseline.model_dump())
        if (key, reference) not in pairs:
            pairs[key, reference] = time_beside_baseline(
                config, None if key == reference else baseline, rounds, calls, source
            )
        if key not in memories:
            memories[key] = memory.memory_of_side(config, OURS, source)
        own, theirs = pairs[key, reference]
        cost, before = measure(config), measure(baseline)
        found.append({
            "arm": arm.name,
            "baseline": arm.baseline,
            "seconds_per_step": spread(own),
            "baseline_seconds_per_step": spread(theirs),
            "ratio": None if key == reference else spread(own / theirs),
            "params": cost.params,
            "flops": cost.flops,  # of one image's forward pass
            "flops_ratio": cost.flops * config.batch / (before.flops * baseline.batch),
            "memory_bytes": memories[key],
        })  # fmt: skip
    same = {row["arm"]: "baseline" if row["arm"] == row["baseline"] else "the same step" for row in found}
    other = [row for row in found if row["ratio"]]
    columns = {
        "a step": column({row["arm"]: row["seconds_per_step"] for row in found}, *MILLISECONDS),
        "baseline's in turn": column({row["arm"]: row["baseline_seconds_per_step"] for row in other}, *MILLISECONDS),
        "time / baseline": same | column({row["arm"]: row["ratio"] for row in other}, "{:.3f}x"),
        "FLOPs / baseline": {row["arm"]: f"{row['flops_ratio']:.2f}x" for row in found},
        "memory": {row["arm"]: mebibytes(row["memory_bytes"]) for row in found},
    }
    caption = f" in turn with the baseline, {count_text(calls, 'step')} each. memory: what steps add at their peak."
    title = f"A step of each arm of {design.name}; its recipe"
    return Result("arms", how, {"study": design.name, "arms": found}, title, caption, "arm", columns)


def time_beside_baseline(
    config: Config, baseline: Config | None, rounds: int, calls: int, source: Source
) -> tuple[Seconds, Seconds]:
    """Return the seconds per step of an arm and of its baseline, each (rounds,).

    baseline: None if its step equals the arm's, whose seconds are then returned twice.
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
