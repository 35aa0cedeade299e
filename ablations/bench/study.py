"""The benchmark of a study: the step time and memory of each arm, alternating with its baseline."""

from collections.abc import Sequence

from ablations.bench import memory
from ablations.bench.process import Source
from ablations.bench.result import Result, conditions, counted, mebibytes, text
from ablations.bench.rivals import OURS
from ablations.bench.timing import Seconds, interleaved, spread
from ablations.planning import step_times
from ablations.planning.measure_steps import take_steps, with_steps
from ablations.study.design import Arm, Design
from ablations.study.naming import matching
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.runtime.device import computing, torch_device
from vitcore.training.loop import Training

WARM_UP = 5


def chosen(design: Design, globs: Sequence[str]) -> list[Arm]:
    """Return the arms of a study whose names match any of the globs. Raises ValueError if a glob matches no arm."""
    named = matching([arm.name for arm in design.arms], globs, design.name)
    return [arm for arm in design.arms if arm.name in named]


def bench(design: Design, arms: Sequence[Arm], rounds: int, calls: int, source: Source) -> Result:
    """Measure the step time and memory of arms of a study, in `rounds` turns of `calls` steps per arm.

    Arms with an equal step share a measurement. Raises ValueError if a process fails.
    """
    how = conditions(design.reference, source, rounds, calls)
    baselines = {arm.name: arm.config for arm in design.arms}
    pairs: dict[tuple[str, str], tuple[Seconds, Seconds]] = {}
    memories: dict[str, int | None] = {}
    found, rows = [], []
    for arm in arms:
        config, baseline = arm.config, baselines[arm.baseline]
        key, other = step_times.key(config.model_dump()), step_times.key(baseline.model_dump())
        if (key, other) not in pairs:
            pairs[key, other] = beside(config, None if key == other else baseline, rounds, calls, source)
        if key not in memories:
            memories[key] = memory.of_side(config, OURS, source)
        own, theirs = pairs[key, other]
        cost, before = measure(config), measure(baseline)
        seconds, baseline_seconds = spread(own), spread(theirs)
        ratio = None if key == other else spread(own / theirs)
        flops_ratio = cost.flops * config.batch / (before.flops * baseline.batch)
        found.append({
            "arm": arm.name,
            "baseline": arm.baseline,
            "seconds_per_step": seconds,
            "baseline_seconds_per_step": baseline_seconds,
            "ratio": ratio,
            "params": cost.params,
            "flops": cost.flops,  # of one image's forward pass
            "flops_ratio": flops_ratio,
            "memory_bytes": memories[key],
        })  # fmt: skip
        same = "baseline" if arm.name == arm.baseline else "the same step"
        rows.append({
            "arm": arm.name,
            "a step": text(seconds, "{:.3g}", 1000) + " ms",
            "baseline's in turn": text(baseline_seconds, "{:.3g}", 1000) + " ms" if ratio else "",
            "time / baseline": text(ratio, "{:.3f}x") or same,
            "FLOPs / baseline": f"{flops_ratio:.2f}x",
            "memory": mebibytes(memories[key]),
        })  # fmt: skip
    caption = f" in turn with the baseline, {counted(calls, 'step')} each. memory: what steps add at their peak."
    title = f"A step of each arm of {design.name}; its recipe"
    return Result("arms", how, {"study": design.name, "arms": found}, title, caption, rows)


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
