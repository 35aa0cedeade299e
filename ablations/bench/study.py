"""The step time and memory of each arm of a study beside its baseline's, measured in alternation."""

from collections.abc import Sequence
from typing import Any

from ablations.bench import memory
from ablations.bench.process import Source
from ablations.bench.result import Result, counted, mebibytes, text
from ablations.bench.rivals import OURS
from ablations.bench.timing import Seconds, interleaved, spread
from ablations.planning import step_times
from ablations.planning.measure_steps import with_steps
from ablations.study.design import Arm, Design
from ablations.study.naming import matching
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.runtime.device import computing
from vitcore.training.loop import Training

Json = dict[str, Any]
WARM_UP = 5


def chosen(design: Design, globs: Sequence[str]) -> list[Arm]:
    """Return the arms of a study that match any glob. Raises ValueError for a glob that matches none."""
    named = matching([arm.name for arm in design.arms], globs, design.name)
    return [arm for arm in design.arms if arm.name in named]


def bench(design: Design, arms: Sequence[Arm], rounds: int, calls: int, source: Source) -> Result:
    """Measure some arms of a study; arms with the same step share a measurement."""
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
        found.append({
            "arm": arm.name,
            "baseline": arm.baseline,
            "seconds_per_step": spread(own),
            "baseline_seconds_per_step": spread(theirs),  # in the same turns
            "ratio": None if key == other else spread(own / theirs),
            "params": cost["params"],
            "flops": cost["flops"],
            "flops_ratio": cost["flops"] * config.batch / (before["flops"] * baseline.batch),
            "memory_bytes": memories[key],
        })  # fmt: skip
    each = counted(calls, "step")
    caption = f" in turn with the baseline, {each} each. memory: what steps add at their peak."
    title = f"A step of each arm of {design.name}; its recipe"
    return Result("arms", {"study": design.name, "arms": found}, title, caption, [*map(cells, found)])


def cells(row: Json) -> dict[str, str]:
    """Format the row of an arm. Times of an arm with its baseline's step are not compared."""
    same = "baseline" if row["arm"] == row["baseline"] else "the same step"
    return {
        "arm": row["arm"],
        "a step": text(row["seconds_per_step"], "{:.3g}", 1000) + " ms",
        "baseline's in turn": text(row["baseline_seconds_per_step"], "{:.3g}", 1000) + " ms" if row["ratio"] else "",
        "time / baseline": text(row["ratio"], "{:.3f}x") or same,
        "FLOPs / baseline": f"{row['flops_ratio']:.2f}x",
        "memory": mebibytes(row["memory_bytes"]),
    }


def beside(config: Config, baseline: Config | None, rounds: int, calls: int, source: Source) -> tuple[Seconds, Seconds]:
    """Return seconds per step of two configs, (rounds,); None: the baseline has the same step."""
    with computing(config):
        sides = {"arm": config} | ({"baseline": baseline} if baseline else {})
        trainings = {
            name: Training(with_steps(one, WARM_UP + rounds * calls), source.images(one)) for name, one in sides.items()
        }
        for training in trainings.values():
            for _ in range(WARM_UP):
                training.advance()
        steps = {name: training.advance for name, training in trainings.items()}
        found = interleaved(steps, rounds, calls, trainings["arm"].device)
    return found["arm"], found.get("baseline", found["arm"])
