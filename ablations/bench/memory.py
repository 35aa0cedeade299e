"""Measures the memory that training steps add to a process with the model and the images, each side in its own."""

from collections.abc import Iterable
from pathlib import Path

import torch

from ablations.bench.process import Source, answer, measure_in_process
from ablations.bench.rivals import compiles, side_of
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config
from vitcore.runtime.device import computing, device_of

STEPS = 3
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # psutil knows no peak that can be reset


def of_sides(config: Config, names: Iterable[str], source: Source, left_out: dict[str, str]) -> dict[str, int | None]:
    """Return the peak bytes that steps of each side add; None if unknown, with the reason in `left_out`."""
    found: dict[str, int | None] = {}
    for name in names:
        try:
            if device_of(config) == "cpu" and compiles(name, config):
                raise ValueError("on a CPU compiling takes more of it than the steps")
            found[name] = of_side(config, name, source)
        except ValueError as error:
            found[name], left_out[f"memory of {name}"] = None, str(error)
    return found


def of_side(config: Config, name: str, source: Source) -> int | None:
    """Return the peak bytes of one side. Raises ValueError if its process fails."""
    found: int | None = measure_in_process("ablations.bench.memory", config, source, {}, name=name)
    return found


def measure(config: Config, source: Source, name: str) -> int | None:
    """Return the peak bytes that steps add in this process; None if the system does not report them."""
    config = with_steps(config, STEPS)
    with computing(config):
        data = source.images(config)
        side, device = side_of(name, config, data), data.mean.device
        before = begin_peak(device)
        for _ in range(STEPS):
            side.advance()
        peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else resident("VmHWM")
    return None if before is None or peak is None else peak - before


def begin_peak(device: torch.device) -> int | None:
    """Start a new peak and return the bytes in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    if RESET.exists():
        RESET.write_text("5")
    return resident("VmRSS") if RESET.exists() else None


def resident(key: str) -> int | None:
    """Return a memory figure of this process in bytes; None if the system does not report it."""
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(key)), None)


if __name__ == "__main__":
    answer(measure)
