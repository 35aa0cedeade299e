"""The benchmark of the training step against rivals, the floor and the input pipeline.

All implementations are timed in alternation, with the same images, threads and initial weights. Their first losses
must be equal.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from ablations.bench import memory
from ablations.bench.floor import Floor, peak
from ablations.bench.input import Input
from ablations.bench.process import Source
from ablations.bench.result import Result, column, conditions, mebibytes, spread_text
from ablations.bench.rivals import CHECKED, OURS, available, check_equal, check_in_float32, sensitive_config
from ablations.bench.timing import Call, Seconds, Spread, interleaved_seconds, ratios, repeat, spread
from ablations.planning.measure_steps import with_steps
from results.units import amount_text
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.data.splits import Data
from vitcore.runtime.device import compute_settings

WARM_UP = 1  # steps between check and timing, in which models recompile with TF32
WATCHED = 3  # number of final steps in which synchronizations with the GPU are counted
WAITS = "called a synchronizing CUDA operation"  # start of PyTorch's warning about a synchronization


@dataclass(frozen=True)
class Side:
    """The speed of one implementation."""

    name: str
    images_per_second: Spread
    seconds_per_step: Spread
    ratio: Spread | None  # how many times faster this suite's step is; None for this suite


@dataclass(frozen=True)
class FloorMeasured:
    """The time of the floor, and the throughput of this suite's step."""

    seconds_per_step: Spread
    share: dict[str, Spread]  # implementation -> the floor as a fraction of its step time
    backends: dict[str, str]
    share_of_flops: float
    flops_per_second: Spread
    peak_flops_per_second: float | None
    share_of_peak: Spread | None


@dataclass(frozen=True)
class InputMeasured:
    """The speed of the input pipeline alone. share: its time as a fraction of this suite's step time."""

    images_per_second: Spread
    share: Spread


@dataclass(frozen=True)
class Measured:
    """The measurements. Field names are keys of the JSON. Seconds and bytes: implementation -> value."""

    sides: list[Side]
    first_steps_seconds: dict[str, float]  # compilation included
    floor: FloorMeasured | None
    input: InputMeasured
    waits_per_step: float | None  # how often the host waits for the GPU; None on a CPU
    left_out: dict[str, str]  # name -> reason, for what could not be measured
    memory_bytes: dict[str, int | None] = field(default_factory=dict)


def bench(config: Config, source: Source, rounds: int, calls: int, compiled: bool) -> Result:
    """Measure speed and memory of a config's training step, in `rounds` turns of `calls` steps per implementation.

    compiled: whether to time timm's compiled model too. Raises ValueError if a rival's losses differ from this suite's.
    """
    how = conditions(config, source, rounds, calls)
    with compute_settings(config):
        found = time_sides(config, source.images(config), rounds, calls, compiled)
    memory_bytes, unmeasured = memory.memory_of_sides(config, [side.name for side in found.sides], source)
    found = replace(found, memory_bytes=memory_bytes, left_out=found.left_out | unmeasured)
    caption = (
        f" in turn, {amount_text(calls, 'step')} each; equal losses in the first steps. "
        "floor: its matrix products and attention alone. memory: what steps add."
    )
    columns = {
        "images/s": column({side.name: side.images_per_second for side in found.sides}, "{:,.0f}"),
        "our speed / its": column({side.name: side.ratio for side in found.sides if side.ratio}, "{:.2f}x"),
        "floor / its time": column(found.floor.share if found.floor else {}, "{:.0%}"),
        "memory": {name: mebibytes(count) for name, count in found.memory_bytes.items()},
    }
    return Result("step", how, found, "Train step", caption, "side", columns, notes(found))


def notes(found: Measured) -> list[str]:
    """Return the paragraphs below the table."""
    notes, floor = [], found.floor
    if floor:
        whole = "" if floor.share_of_flops > 0.9995 else f", {floor.share_of_flops:.1%} of the model's FLOPs"
        reached = spread_text(floor.share_of_peak, "{:.1%} of the peak") or "the peak is not known here"
        took, rate = spread_text(floor.seconds_per_step, "{:.3g}", 1000), spread_text(floor.flops_per_second, "{:.3g}")
        notes.append(f"Floor: {took} ms a step{whole}. {rate} training FLOP/s, {reached}.")
    speed, share = spread_text(found.input.images_per_second, "{:,.0f}"), spread_text(found.input.share, "{:.1%}")
    notes.append(f"Input alone: {speed} images/s, {share} of a step.")
    if found.waits_per_step is not None:
        notes.append(f"The host waits for the GPU {found.waits_per_step:.3g} times a step.")
    if found.left_out:
        notes.append("\n".join(f"{name} is left out: {why}" for name, why in found.left_out.items()))
    return notes


def time_sides(config: Config, data: Data, rounds: int, calls: int, compiled: bool) -> Measured:
    """Return the speeds of all implementations, the floor and the input pipeline, measured in alternation.

    Raises ValueError if a rival's losses differ from this suite's.
    """
    config = with_steps(sensitive_config(config), CHECKED + WARM_UP + rounds * calls + WATCHED)
    if config.precision != "float32":
        check_in_float32(config, data)
    sides, left_out = available(config, data, compiled)
    first_steps = check_equal(config, sides)
    timed: dict[str, Call] = {name: side.advance for name, side in sides.items()}
    timed["input"] = Input(config, data).advance
    for advance in timed.values():
        repeat(advance, WARM_UP)
    floor = None
    try:
        floor = Floor(config)
        timed["floor"] = floor.run
    except ValueError as error:
        left_out["floor"] = str(error)
    seconds = interleaved_seconds(timed, rounds, calls, data.mean.device)
    steps = {name: seconds[name] for name in sides}
    rates = {name: spread(config.batch / took) for name, took in seconds.items()}
    faster = ratios(seconds, OURS)
    return Measured(
        sides=[Side(name, rates[name], spread(took), faster.get(name)) for name, took in steps.items()],
        first_steps_seconds=first_steps,
        floor=measure_floor(floor, config, seconds["floor"], steps) if floor else None,
        input=InputMeasured(rates["input"], faster["input"]),
        waits_per_step=host_waits(sides[OURS].advance, WATCHED, data.mean.device),
        left_out=left_out,
    )


def measure_floor(floor: Floor, config: Config, seconds: Seconds, steps: Mapping[str, Seconds]) -> FloorMeasured:
    rate = 3 * measure(config).flops * config.batch / steps[OURS]  # backward is twice forward
    most = peak(config)
    return FloorMeasured(
        seconds_per_step=spread(seconds),
        share={name: spread(seconds / own) for name, own in steps.items()},
        backends=floor.backends,
        share_of_flops=floor.share_of_flops,
        flops_per_second=spread(rate),
        peak_flops_per_second=most,
        share_of_peak=spread(rate / most) if most else None,
    )


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
