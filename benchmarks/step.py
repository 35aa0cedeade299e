"""The benchmark of the training step against rivals, the floor and the input pipeline, timed in alternation."""

from collections.abc import Mapping
from functools import partial

import torch

from ablations.trainables.vit.planned import with_steps
from benchmarks.floor import Floor, peak
from benchmarks.process import Source, measure_in_process, print_measurement
from benchmarks.result import Result, column, conditions
from benchmarks.rivals import CHECKED, OURS, RIVALS, TUNED, Ours, Rival, checked_sides, next_batch, sensitive_config
from benchmarks.timing import Call, Seconds, interleaved_seconds, ratios, repeat, spread
from results.units import amount_text
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.data.splits import Data
from vitcore.runtime.device import compute_settings, device_of
from vitcore.training.state import Training

INPUT, FLOOR = "input", "floor"  # what is timed besides the implementations
MEMORY_STEPS = 3
WARM_UP = 1  # steps between check and timing, in which models recompile with TF32


def bench(config: Config, source: Source, rounds: int, calls: int, compiled: bool) -> Result:
    """Measure speed and memory of a config's training step, in `rounds` turns of `calls` steps per implementation.

    compiled: whether to time timm's compiled model too. Raises ValueError if losses differ or images cannot be loaded.
    """
    how = conditions(config, source, rounds, calls)
    with compute_settings(config):
        seconds, floor, left_out = time_sides(config, source.images(config), rounds, calls, compiled)
    sides = [name for name in seconds if name not in (INPUT, FLOOR)]
    spreads = {name: spread(own) for name, own in seconds.items()}
    rates = {name: spread(config.batch / own) for name, own in seconds.items()}
    faster = ratios(seconds, OURS)
    shares = {name: spread(seconds[FLOOR] / seconds[name]) for name in sides if floor}
    record, notes = floor_record(config, floor, seconds) if floor else (None, [])
    memory = {name: memory_of_steps(config, name, source) for name in sides}
    left_out |= {f"memory of {name}": why for name, (_, why) in memory.items() if why}
    measured = {
        "sides": [
            {"name": n, "images_per_second": rates[n], "seconds_per_step": spreads[n], "ratio": faster.get(n)}
            for n in sides
        ],
        "floor": record and {"seconds_per_step": spreads[FLOOR], "share": shares, **record},
        "input": {"images_per_second": rates[INPUT], "share": faster[INPUT]},
        "left_out": left_out,
        "memory_bytes": {name: count for name, (count, _) in memory.items()},
    }
    columns = {
        "images/s": column(rates, "{:,.0f}"),
        "our speed / its": column(faster, "{:.3g}x"),
        "floor / its time": column(shares, "{:.0%}"),
        "memory that steps add": {
            name: f"{count / 2**20:,.1f} MiB" for name, (count, _) in memory.items() if count is not None
        },
    }
    caption = (
        f" in turn, {amount_text(calls, 'step')} each; equal losses in the first steps. input: the batches alone. "
        "floor: matrix products and attention alone."
    )
    if left_out:
        notes.append("\n".join(f"{name} is left out: {why}" for name, why in left_out.items()))
    return Result("step", how, measured, "Train step", caption, "side", columns, notes)


def floor_record(config: Config, floor: Floor, seconds: Mapping[str, Seconds]) -> tuple[dict[str, object], list[str]]:
    """Return (entries of the JSON about the floor and the FLOP/s, paragraphs to print below the table)."""
    rate, most = 3 * measure(config).flops * config.batch / seconds[OURS], peak(config)  # backward is twice forward
    share_of_peak = spread(rate / most) if most else None
    record = {
        "backends": floor.backends,
        "share_of_flops": floor.share_of_flops,
        "flops_per_second": spread(rate),
        "peak_flops_per_second": most,
        "share_of_peak": share_of_peak,
    }
    reached = share_of_peak.text("{:.1%} of the peak") if share_of_peak else "the peak is not known here"
    note = f"{spread(rate).text('{:.3g}')} training FLOP/s, {reached}. "
    return record, [f"{note}The floor computes {floor.share_of_flops:.1%} of the model's FLOPs."]


def time_sides(
    config: Config, data: Data, rounds: int, calls: int, compiled: bool
) -> tuple[dict[str, Seconds], Floor | None, dict[str, str]]:
    """Time all implementations, the floor and the input pipeline in alternation.

    Returns (name -> seconds per step in each round, the floor or None, name -> why it was left out). Names are those of
    implementations, this suite's first, INPUT and FLOOR.
    """
    config = with_steps(sensitive_config(config), CHECKED + WARM_UP + rounds * calls)
    rivals = [name for name in RIVALS if compiled or name != TUNED]
    sides, left_out = checked_sides(config, data, rivals)
    timed: dict[str, Call] = {name: side.advance for name, side in sides.items()}
    timed[INPUT] = partial(next_batch, Training(config, data))
    for advance in timed.values():
        repeat(advance, WARM_UP)
    floor = None
    try:
        floor = Floor(config)
        timed[FLOOR] = floor.run
    except ValueError as error:
        left_out[FLOOR] = str(error)
    return interleaved_seconds(timed, rounds, calls, data.mean.device), floor, left_out


def memory_of_steps(config: Config, name: str, source: Source) -> tuple[int | None, str]:
    """Return (peak bytes of GPU memory that steps of an implementation add, why they were not measured).

    The bytes are None without a reason on a CPU.
    """
    if device_of(config) == "cpu":
        return None, ""
    try:
        return measure_in_process("benchmarks.step", config, source, {}, name=name), ""
    except ValueError as error:
        return None, str(error)


def added_memory(config: Config, source: Source, name: str) -> int:
    """Return the bytes that `memory_of_steps` reports, in the process that it starts."""
    config = with_steps(config, MEMORY_STEPS)
    with compute_settings(config):
        data = source.images(config)
        side = Ours(config, data) if name == OURS else Rival(name, config, data)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        repeat(side.advance, MEMORY_STEPS)
        return torch.cuda.max_memory_allocated() - before


if __name__ == "__main__":
    print_measurement(added_memory)
