"""The memory that training steps add to a process with the model and the images, measured in a process of its own."""

from collections.abc import Iterable
from pathlib import Path

import torch

from ablations.bench.process import Source, answer, measure_in_process
from ablations.bench.rivals import compiles, side_of
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config
from vitcore.runtime.device import computing, device_of

STEPS = 3
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def of_sides(config: Config, names: Iterable[str], source: Source, left_out: dict[str, str]) -> dict[str, int | None]:
    """Peak bytes that steps of each side add; None if unknown, with the reason in `left_out`."""
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
    """Peak bytes of one side. Raises ValueError if its process fails."""
    found: int | None = measure_in_process("ablations.bench.memory", config, source, {}, name=name)
    return found


def measure(config: Config, source: Source, name: str) -> int | None:
    """Peak bytes of one side in this process; None if the system does not report them."""
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
    """Start a new peak; bytes in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    if not RESET.exists():
        return None
    RESET.write_text("5")
    return resident("VmRSS")


def resident(key: str) -> int | None:
    """A memory figure of this process in bytes; None if the system has no such file."""
    if not STATUS.exists():
        return None
    found = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return 1024 * int(found[key].split()[0])


if __name__ == "__main__":
    answer(measure)
