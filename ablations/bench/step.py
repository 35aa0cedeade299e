"""The benchmark of the training step against rivals, the floor and the input pipeline.

All implementations are timed in alternation, with the same images, threads and initial weights. Their first losses
must be equal.
"""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ablations.bench.floor import Floor, peak
from ablations.bench.memory import memory_of_steps
from ablations.bench.process import Source
from ablations.bench.result import Result, column, conditions, mebibytes
from ablations.bench.rivals import CHECKED, OURS, RIVALS, TUNED, checked_sides, next_batch, sensitive_config
from ablations.bench.timing import Call, Seconds, interleaved_seconds, ratios, repeat, spread
from ablations.planning.measure_steps import with_steps
from results.units import amount_text
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.data.splits import Data
from vitcore.runtime.device import compute_settings
from vitcore.training.state import Training

WARM_UP = 1  # steps between check and timing, in which models recompile with TF32
WATCHED = 3  # number of final steps in which synchronizations with the GPU are counted
WAITS = "called a synchronizing CUDA operation"  # start of PyTorch's warning about a synchronization


@dataclass(frozen=True)
class Timed:
    """The measured times. seconds: implementation, "input" or "floor" -> seconds per step in each round."""

    seconds: dict[str, Seconds]
    first_steps: dict[str, float]  # implementation -> seconds, compilation included; this suite's comes first
    floor: Floor | None
    waits: float | None  # how often this suite's step waits for the GPU; None on a CPU
    left_out: dict[str, str]  # name -> reason, for what could not be measured


def bench(config: Config, source: Source, rounds: int, calls: int, compiled: bool) -> Result:
    """Measure speed and memory of a config's training step, in `rounds` turns of `calls` steps per implementation.

    compiled: whether to time timm's compiled model too. Raises ValueError if a rival's losses differ from this suite's.
    """
    how = conditions(config, source, rounds, calls)
    with compute_settings(config):
        found = time_sides(config, source.images(config), rounds, calls, compiled)
    spreads = {name: spread(own) for name, own in found.seconds.items()}
    rates = {name: spread(config.batch / own) for name, own in found.seconds.items()}
    faster = ratios(found.seconds, OURS)
    floor, notes = floor_record(config, found)
    memory = {name: memory_of_steps(config, name, source) for name in found.first_steps}
    left_out = found.left_out | {f"memory of {name}": why for name, (_, why) in memory.items() if why}
    measured = {
        "sides": [
            {"name": n, "images_per_second": rates[n], "seconds_per_step": spreads[n], "ratio": faster.get(n)}
            for n in found.first_steps
        ],
        "first_steps_seconds": found.first_steps,
        "floor": floor,
        "input": {"images_per_second": rates["input"], "share": faster["input"]},
        "waits_per_step": found.waits,
        "left_out": left_out,
        "memory_bytes": {name: count for name, (count, _) in memory.items()},
    }
    columns = {
        "images/s": column(rates, "{:,.0f}"),
        "our speed / its": column(faster, "{:.3g}x"),
        "floor / its time": column(floor["share"] if floor else {}, "{:.0%}"),
        "memory": {name: mebibytes(count) for name, (count, _) in memory.items()},
    }
    caption = (
        f" in turn, {amount_text(calls, 'step')} each; equal losses in the first steps. input: the batches alone. "
        "floor: matrix products and attention alone. memory: what steps add."
    )
    if found.waits is not None:
        notes.append(f"The host waits for the GPU {found.waits:.3g} times a step.")
    if left_out:
        notes.append("\n".join(f"{name} is left out: {why}" for name, why in left_out.items()))
    return Result("step", how, measured, "Train step", caption, "side", columns, notes)


def floor_record(config: Config, found: Timed) -> tuple[dict[str, Any] | None, list[str]]:
    """Return (the floor's part of the JSON, the paragraphs below the table)."""
    if found.floor is None:
        return None, []
    seconds, share, most = found.seconds["floor"], found.floor.share_of_flops, peak(config)
    rate = 3 * measure(config).flops * config.batch / found.seconds[OURS]  # backward is twice forward
    share_of_peak = spread(rate / most) if most else None
    record = {
        "seconds_per_step": spread(seconds),
        "share": {name: spread(seconds / found.seconds[name]) for name in found.first_steps},
        "backends": found.floor.backends,
        "share_of_flops": share,
        "flops_per_second": spread(rate),
        "peak_flops_per_second": most,
        "share_of_peak": share_of_peak,
    }
    reached = share_of_peak.text("{:.1%} of the peak") if share_of_peak else "the peak is not known here"
    note = f"{spread(rate).text('{:.3g}')} training FLOP/s, {reached}. "
    return record, [f"{note}The floor computes {share:.1%} of the model's FLOPs."]


def time_sides(config: Config, data: Data, rounds: int, calls: int, compiled: bool) -> Timed:
    """Time all implementations, the floor and the input pipeline in alternation.

    Raises ValueError if a rival's losses differ from this suite's.
    """
    config = with_steps(sensitive_config(config), CHECKED + WARM_UP + rounds * calls + WATCHED)
    rivals = [name for name in RIVALS if compiled or name != TUNED]
    sides, first_steps, left_out = checked_sides(config, data, rivals)
    timed: dict[str, Call] = {name: side.advance for name, side in sides.items()}
    timed["input"] = partial(next_batch, Training(config, data))
    for advance in timed.values():
        repeat(advance, WARM_UP)
    floor = None
    try:
        floor = Floor(config)
        timed["floor"] = floor.run
    except ValueError as error:
        left_out["floor"] = str(error)
    seconds = interleaved_seconds(timed, rounds, calls, data.mean.device)
    waits = host_waits(sides[OURS].advance, WATCHED, data.mean.device)
    return Timed(seconds, first_steps, floor, waits, left_out)


def host_waits(call: Call, calls: int, device: torch.device) -> float | None:
    """Return how often a call makes the host wait for the GPU, averaged over `calls` calls, or None on a CPU."""
    if device.type != "cuda":
        return None
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            repeat(call, calls)
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum(str(warning.message).startswith(WAITS) for warning in caught) / calls
