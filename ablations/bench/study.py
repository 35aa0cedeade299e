"""The benchmark of a study: the step time and memory of each arm, alternating with its baseline."""

from collections.abc import Collection, Mapping
from functools import cache

from ablations.bench.memory import memory_of_steps
from ablations.bench.process import Source
from ablations.bench.result import MEMORY, Result, conditions, mebibytes
from ablations.bench.rivals import OURS
from ablations.bench.timing import Seconds, interleaved_seconds, ratios, repeat, spread
from ablations.planning import step_times
from ablations.planning.measure_steps import with_steps
from ablations.study.design import Design
from results.units import amount_text
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.runtime.device import compute_settings, torch_device
from vitcore.training.state import Training

WARM_UP = 5
HEADER = ("a step", "baseline's in turn", "time / baseline", "FLOPs / baseline", MEMORY)


def bench(design: Design, names: Collection[str], rounds: int, calls: int, source: Source) -> Result:
    """Measure the step time of the named arms of a study, each in turn with its baseline, and the memory of its steps.

    A pair takes `rounds` turns of `calls` steps a side. Arms with equal steps and equal baselines are measured once.
    """
    how = conditions(design.reference, source, rounds, calls)
    configs, first = {arm.name: arm.config for arm in design.arms}, dict[str, str]()
    same = {name: first.setdefault(step_times.key(one.model_dump()), name) for name, one in configs.items()}

    @cache
    def measure_pair(side: str, reference: str) -> tuple[dict[str, Seconds], int | None, str]:
        seconds = time_in_turn({side: configs[side], reference: configs[reference]}, rounds, calls, source)
        return seconds, *memory_of_steps(configs[side], OURS, source)

    arms, notes = [], set[str]()
    columns: dict[str, dict[str, str]] = {name: {} for name in HEADER}
    for arm in (arm for arm in design.arms if arm.name in names):
        side, reference = same[arm.name], same[arm.baseline]  # the first arms with these steps
        seconds, memory, why = measure_pair(side, reference)
        notes |= {f"memory is left out: {why}"} if why else set()
        own, theirs, ratio = spread(seconds[side]), spread(seconds[reference]), ratios(seconds, reference).get(side)
        cost, before, baseline = measure(arm.config), measure(configs[arm.baseline]), configs[arm.baseline]
        flops_ratio = cost.flops * arm.config.batch / (before.flops * baseline.batch)
        arms.append({
            "arm": arm.name,
            "baseline": arm.baseline,
            "seconds_per_step": own,
            "baseline_seconds_per_step": theirs,
            "ratio": ratio,  # None if the steps are equal
            "params": cost.params,
            "flops": cost.flops,  # of a forward pass of one image
            "flops_ratio": flops_ratio,
            "memory_bytes": memory,
        })  # fmt: skip
        equal = "baseline" if arm.name == arm.baseline else "the same step"
        cells = (
            f"{own.text('{:.3g}', 1000)} ms",
            f"{theirs.text('{:.3g}', 1000)} ms" if ratio else "",
            ratio.text("{:.3f}x") if ratio else equal,
            f"{flops_ratio:.2f}x",
            mebibytes(memory),
        )
        for column, cell in zip(columns.values(), cells, strict=True):
            column[arm.name] = cell
    caption = f" in turn with the baseline, {amount_text(calls, 'step')} each."
    title = f"A step of each arm of {design.name}; its recipe"
    return Result("arms", how, {"study": design.name, "arms": arms}, title, caption, "arm", columns, sorted(notes))


def time_in_turn(configs: Mapping[str, Config], rounds: int, calls: int, source: Source) -> dict[str, Seconds]:
    """Return name -> seconds per step of a config in each round (rounds,). All configs have equal compute settings."""
    config, steps = next(iter(configs.values())), {}
    with compute_settings(config):
        for name, one in configs.items():
            training = Training(with_steps(one, WARM_UP + rounds * calls), source.images(one))
            repeat(training.advance, WARM_UP)
            steps[name] = training.advance
        return interleaved_seconds(steps, rounds, calls, torch_device(config))
