"""The training step of a config as `train` runs it, beside rivals, its floor and its input pipeline.

All sides alternate on the same images, threads and initial weights. Their first losses must be equal, so that nothing
is fast by being wrong. A zero head and a warm-up would hide the model from its first losses; both are left out.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ablations.bench.floor import Floor, matmul_precision, peak
from ablations.bench.input import Input
from ablations.bench.rivals import KINDS, OURS, Ours, Rival
from ablations.bench.timing import Call, Seconds, interleaved, spread
from ablations.planning.measure_steps import with_steps
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.data.splits import Data
from vitcore.runtime.device import device_of

Json = dict[str, Any]
CHECKED = 5  # first steps, whose losses are compared
WARM_UP = 1  # steps between the check and the timing: what was compiled without TF32 is compiled again with it
WATCHED = 3  # last steps, in which the host's waits for a GPU are counted
WAITS = "called a synchronizing CUDA operation"  # PyTorch's warning of one
TOLERANCE = {"float32": 1e-5, "bf16": 2e-2}  # relative; two roundings to bf16 grow apart
TELLING = {"head_init": "lecun-normal", "warmup": 0.0}  # the first losses then depend on all of the model
IMAGES = 64  # a batch at most, where a bf16 training is checked in float32 too


def bench(config: Config, data: Data, rounds: int, calls: int, compiled: bool) -> Json:
    """Rates, ratios, floor and input of `config`. Raises ValueError if a rival's losses differ from ours."""
    config = with_steps(telling(config), CHECKED + WARM_UP + rounds * calls + WATCHED)
    if config.precision != "float32":
        check_in_float32(config, data)
    ours = Ours(config, data)
    rivals, left_out = available(config, data, compiled)
    first_steps = check_equal(config, {OURS: ours, **rivals})
    sides: dict[str, Call] = {OURS: ours.advance, **{name: rival.advance for name, rival in rivals.items()}}
    sides["input"] = Input(config, data).advance
    for advance in sides.values():
        for _ in range(WARM_UP):
            advance()
    floor = None
    try:
        floor = Floor(config)
        sides["floor"] = floor.run
    except ValueError as error:
        left_out["floor"] = str(error)
    seconds = interleaved(sides, rounds, calls, ours.device)
    return {
        "sides": [side(name, seconds, config) for name in (OURS, *rivals)],
        "first_steps_seconds": first_steps,  # compilation included
        "floor": floor and floor_share(floor, config, seconds),
        "input": {
            "images_per_second": spread(config.batch / seconds["input"]),
            "share": spread(seconds["input"] / seconds[OURS]),
        },
        "waits_per_step": waits(ours.advance, WATCHED, ours.device),
        "left_out": left_out,
    }


def waits(call: Call, calls: int, device: torch.device) -> float | None:
    """How often a call makes the host wait for the GPU; None on a CPU."""
    if device.type != "cuda":
        return None
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(calls):
                call()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum(str(warning.message).startswith(WAITS) for warning in caught) / calls


def available(config: Config, data: Data, compiled: bool) -> tuple[dict[str, Rival], dict[str, str]]:
    """The rivals that can train this config, and why the others cannot."""
    rivals, left_out = {}, {}
    for name, kind in KINDS.items():
        if kind.tuned and not compiled:
            continue
        try:
            rivals[name] = Rival(kind, config, data)
        except ValueError as error:
            left_out[name] = str(error)
    return rivals, left_out


def telling(config: Config) -> Config:
    """The same steps from weights whose first losses depend on the model."""
    return config.model_copy(update=TELLING)


def check_in_float32(config: Config, data: Data) -> None:
    """Compare first losses in float32, uncompiled. Raises ValueError for a rival that differs."""
    update = {"precision": "float32", "compile": False, "batch": min(config.batch, IMAGES)}
    exact = config.model_copy(update=update)
    rivals, _ = available(exact, data, compiled=False)
    check_equal(exact, {OURS: Ours(exact, data), **rivals})


def check_equal(config: Config, sides: dict[str, Ours | Rival]) -> dict[str, float]:
    """Seconds of the first steps of each side. Raises ValueError unless all losses equal ours."""
    losses: dict[str, list[float]] = {name: [] for name in sides}
    seconds = {}
    for name, one in sides.items():
        began = time.perf_counter()
        with without_tf32(device_of(config)):
            for _ in range(CHECKED):
                one.advance()
                losses[name].append(one.last_loss().item())
        seconds[name] = time.perf_counter() - began
    for name, theirs in losses.items():
        refuse_unequal(name, losses[OURS], theirs, TOLERANCE[config.precision])
    return seconds


@contextmanager
def without_tf32(device: str) -> Iterator[None]:
    """Compute float32 exactly: by default, convolutions on a GPU use TF32, timm's patch embedding too."""
    if device != "cuda":
        yield
        return
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        with matmul_precision("highest"):
            yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def refuse_unequal(name: str, ours: list[float], theirs: list[float], tolerance: float) -> None:
    """Raises ValueError with the first step whose losses differ by more than `tolerance`."""
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        if not abs(a - b) <= tolerance * abs(b):  # nor NaN
            raise ValueError(
                f"step {step}: losses differ ({a:.7g}, with {name} {b:.7g}): speeds of different trainings "
                "are not compared"
            )


def side(name: str, seconds: dict[str, Seconds], config: Config) -> Json:
    """The result of a side. ratio: how much faster ours is, per round."""
    own = seconds[name]
    return {
        "name": name,
        "images_per_second": spread(config.batch / own),
        "seconds_per_step": spread(own),
        "ratio": None if name == OURS else spread(own / seconds[OURS]),
    }


def floor_share(floor: Floor, config: Config, seconds: dict[str, Seconds]) -> Json:
    """The floor's share of our step and of each rival's; the share of the peak where that is known."""
    rate = 3 * measure(config)["flops"] * config.batch / seconds[OURS]  # backward is twice forward
    most = peak(config)
    steps = {name: own for name, own in seconds.items() if name not in ("floor", "input")}
    return {
        "seconds_per_step": spread(seconds["floor"]),
        "share": {name: spread(seconds["floor"] / own) for name, own in steps.items()},
        "backends": floor.backends,
        "share_of_flops": floor.share_of_flops,
        "flops_per_second": spread(rate),
        "peak_flops_per_second": most,
        "share_of_peak": most and spread(rate / most),
    }
