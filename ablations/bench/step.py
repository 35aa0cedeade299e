"""The benchmark of the training step: this suite's implementation, rivals, the floor and the input pipeline.

A rival is a reference implementation (ablations.bench.rivals). The floor is a lower bound on step time
(ablations.bench.floor). All implementations alternate on equal images, threads and initial weights. Their first losses
must be equal, because a wrong step may be fast. A head of zeros and a warm-up are replaced, because first losses would
not depend on the model.
"""

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from ablations.bench import memory
from ablations.bench.floor import Floor, matmul_precision, peak
from ablations.bench.input import Input
from ablations.bench.process import Source
from ablations.bench.result import Result, conditions, counted, mebibytes, text
from ablations.bench.rivals import OURS, RIVALS, TUNED, Ours, Rival
from ablations.bench.timing import Call, Seconds, Spread, interleaved, ratios, repeat, spread
from ablations.planning.measure_steps import with_steps
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.data.splits import Data
from vitcore.runtime.device import computing

CHECKED = 5  # first steps, whose losses are compared
WARM_UP = 1  # steps between the check and the timing, which recompile with TF32
WATCHED = 3  # last steps, in which synchronizations with the GPU are counted
WAITS = "called a synchronizing CUDA operation"  # PyTorch's warning of one
TOLERANCE = {"float32": 1e-5, "bf16": 2e-2}  # relative; two roundings to bf16 grow apart
IMAGES = 64  # largest batch of the check in float32


@dataclass(frozen=True)
class Side:
    """The speed of one implementation of the training step."""

    name: str
    images_per_second: Spread
    seconds_per_step: Spread
    ratio: Spread | None  # how many times faster this suite's step is; None for that step


@dataclass(frozen=True)
class FloorMeasured:
    """The time of the lower bound on step time, and the throughput of this suite's step.

    share: the bound relative to each implementation's step time. backends: name of the work -> fastest backend.
    share_of_flops: the part of the model's FLOPs that the bound covers. flops_per_second: of this suite's step.
    """

    seconds_per_step: Spread
    share: dict[str, Spread]
    backends: dict[str, str]
    share_of_flops: float
    flops_per_second: Spread
    peak_flops_per_second: float | None
    share_of_peak: Spread | None

    def note(self) -> str:
        whole = "" if self.share_of_flops > 0.9995 else f", {self.share_of_flops:.1%} of the model's FLOPs"
        reached = text(self.share_of_peak, "{:.1%} of the peak") if self.share_of_peak else "the peak is not known here"
        took, rate = text(self.seconds_per_step, "{:.3g}", 1000), text(self.flops_per_second, "{:.3g}")
        return f"Floor: {took} ms a step{whole}. {rate} training FLOP/s, {reached}."


@dataclass(frozen=True)
class InputMeasured:
    """The speed of the input pipeline alone.

    share: its time relative to the time of this suite's training step.
    """

    images_per_second: Spread
    share: Spread


@dataclass(frozen=True)
class Measured:
    """The measurements of the training step.

    first_steps_seconds, memory_bytes: by implementation. left_out: name -> reason, for what could not be measured.
    """

    sides: list[Side]
    first_steps_seconds: dict[str, float]  # compilation included
    floor: FloorMeasured | None
    input: InputMeasured
    waits_per_step: float | None  # how often the host waits for the GPU; None on a CPU
    left_out: dict[str, str]  # reasons by name
    memory_bytes: dict[str, int | None] = field(default_factory=dict)

    def row(self, side: Side) -> dict[str, str]:
        return {
            "side": side.name,
            "images/s": text(side.images_per_second, "{:,.0f}"),
            "our speed / its": text(side.ratio, "{:.2f}x"),
            "floor / its time": text(self.floor.share[side.name] if self.floor else None, "{:.0%}"),
            "memory": mebibytes(self.memory_bytes[side.name]),
        }

    def notes(self) -> list[str]:
        speed, share = text(self.input.images_per_second, "{:,.0f}"), text(self.input.share, "{:.1%}")
        notes = [self.floor.note()] if self.floor else []
        notes.append(f"Input alone: {speed} images/s, {share} of a step.")
        if self.waits_per_step is not None:
            notes.append(f"The host waits for the GPU {self.waits_per_step:.3g} times a step.")
        if self.left_out:
            notes.append("\n".join(f"{name} is left out: {why}" for name, why in self.left_out.items()))
        return notes


def bench(config: Config, source: Source, rounds: int, calls: int, compiled: bool) -> Result:
    """Measure speed and memory of a config's training step; return the benchmark's result.

    rounds: the number of timed turns per implementation. calls: the number of steps per turn. compiled: True to time
    timm's compiled model too. Raises ValueError if a rival's losses differ from this suite's.
    """
    how = conditions(config, source, rounds, calls)
    with computing(config):
        found = time_sides(config, source.images(config), rounds, calls, compiled)
    memories = memory.of_sides(config, [side.name for side in found.sides], source, found.left_out)
    found = replace(found, memory_bytes=memories)
    caption = (
        f" in turn, {counted(calls, 'step')} each; equal losses in the first steps. "
        "floor: its matrix products and attention alone. memory: what steps add."
    )
    return Result("step", how, found, "Train step", caption, [*map(found.row, found.sides)], found.notes())


def time_sides(config: Config, data: Data, rounds: int, calls: int, compiled: bool) -> Measured:
    """Return the speeds of all implementations, the floor and the input pipeline, measured alternately.

    rounds: the number of timed turns for each of them. calls: the number of steps per turn. Raises ValueError if a
    rival's losses differ from this suite's.
    """
    config = with_steps(telling(config), CHECKED + WARM_UP + rounds * calls + WATCHED)
    if config.precision != "float32":
        check_in_float32(config, data)
    ours = Ours(config, data)
    rivals, left_out = available(config, data, compiled)
    sides: dict[str, Ours | Rival] = {OURS: ours, **rivals}
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
    seconds = interleaved(timed, rounds, calls, ours.device)
    steps = {name: seconds[name] for name in sides}
    rates = {name: spread(config.batch / took) for name, took in seconds.items()}
    faster = ratios(seconds, OURS)
    return Measured(
        sides=[Side(name, rates[name], spread(took), faster.get(name)) for name, took in steps.items()],
        first_steps_seconds=first_steps,
        floor=floor_measured(floor, config, seconds["floor"], steps) if floor else None,
        input=InputMeasured(rates["input"], faster["input"]),
        waits_per_step=waits(ours.advance, WATCHED, ours.device),
        left_out=left_out,
    )


def floor_measured(floor: Floor, config: Config, seconds: Seconds, steps: Mapping[str, Seconds]) -> FloorMeasured:
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


def waits(call: Call, calls: int, device: torch.device) -> float | None:
    """Return how often a call makes the host wait for the GPU; None on a CPU.

    The count is averaged over `calls` calls.
    """
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


def available(config: Config, data: Data, compiled: bool) -> tuple[dict[str, Rival], dict[str, str]]:
    """Return the rivals that can train this config, and the reasons why others cannot, both by name.

    compiled: True to include timm's compiled model.
    """
    rivals, left_out = {}, {}
    for name in RIVALS:
        if compiled or name != TUNED:
            try:
                rivals[name] = Rival(name, config, data)
            except ValueError as error:
                left_out[name] = str(error)
    return rivals, left_out


def telling(config: Config) -> Config:
    """Return the config with settings that make the first losses depend on the whole model.

    The head is not initialized with zeros, and the warm-up is left out.
    """
    return config.model_copy(update={"head_init": "lecun-normal", "warmup": 0.0})


def check_in_float32(config: Config, data: Data) -> None:
    """Check that the first losses of all implementations agree in float32, without compilation.

    Raises ValueError if a rival's losses differ from this suite's.
    """
    update = {"precision": "float32", "compile": False, "batch": min(config.batch, IMAGES)}
    exact = config.model_copy(update=update)
    rivals, _ = available(exact, data, compiled=False)
    check_equal(exact, {OURS: Ours(exact, data), **rivals})


def check_equal(config: Config, sides: Mapping[str, Ours | Rival]) -> dict[str, float]:
    """Check that the first losses of all implementations agree; return the seconds of these steps, by name.

    Raises ValueError if the losses of an implementation differ from this suite's.
    """
    losses: dict[str, list[float]] = {name: [] for name in sides}
    seconds = {}
    for name, one in sides.items():
        began = time.perf_counter()
        with without_tf32():
            for _ in range(CHECKED):
                one.advance()
                losses[name].append(one.last_loss().item())
        seconds[name] = time.perf_counter() - began
    for name, theirs in losses.items():
        refuse_unequal(name, losses[OURS], theirs, TOLERANCE[config.precision])
    return seconds


@contextmanager
def without_tf32() -> Iterator[None]:
    """Compute matrix products and convolutions within the block in full float32.

    By default, convolutions on a GPU use TF32.
    """
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        with matmul_precision("highest"):
            yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def refuse_unequal(name: str, ours: list[float], theirs: list[float], tolerance: float) -> None:
    """Check that two sequences of losses agree at each step.

    name: the implementation with the losses `theirs`. tolerance: relative to `theirs`. Raises ValueError, with the
    number of the step, if losses differ by more.
    """
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        if not abs(a - b) <= tolerance * abs(b):  # nor NaN
            raise ValueError(
                f"step {step}: losses differ ({a:.7g}, with {name} {b:.7g}): speeds of different trainings "
                "are not compared"
            )
