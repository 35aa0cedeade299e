"""How much memory the step of one side takes, measured in a process of its own that does nothing else.

What counts is what the steps add to a process that holds the model and the images: activations, gradients, the
optimiser's averages.
"""

from collections.abc import Iterable
from pathlib import Path

import torch

from ablations.bench_images import images
from ablations.bench_process import Source, answer, asked
from ablations.bench_rivals import KINDS, Rival
from ablations.probing import with_steps
from vitcore.config import Config
from vitcore.device import computing, device_of
from vitcore.train import Training

STEPS = 3
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def taken(config: Config, names: Iterable[str], source: Source, left_out: dict[str, str]) -> dict[str, int | None]:
    """Bytes that steps add at their peak, a side; None where the system does not tell, or `left_out` why."""
    found: dict[str, int | None] = {}
    for name in names:
        try:
            refuse_compiling(config, name)
            found[name] = one(config, name, source)
        except ValueError as error:
            found[name], left_out[f"memory of {name}"] = None, str(error)
    return found


def refuse_compiling(config: Config, name: str) -> None:
    """Raises ValueError for a side that is compiled where compiling takes more of the same memory."""
    if device_of(config) == "cpu" and (KINDS[name].tuned if name in KINDS else config.compile):
        raise ValueError("on a CPU compiling takes more of it than the steps")


def one(config: Config, name: str, source: Source) -> int | None:
    """Of one side. Raises ValueError where its process fails."""
    found: int | None = asked("ablations.bench_memory", config, source, {}, name=name)
    return found


def measured(config: Config, source: Source, name: str) -> int | None:
    """The same, in this process."""
    config = with_steps(config, STEPS)
    with computing(config):
        data = images(config, source.data_dir, source.random)
        side = Rival(KINDS[name], config, data) if name in KINDS else Training(config, data)
        device = data.mean.device
        before = held(device)
        for _ in range(STEPS):
            side.advance()
        peak = highest(device)
    return None if before is None or peak is None else peak - before


def held(device: torch.device) -> int | None:
    """Bytes in use now; from here on their peak is new."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    if not RESET.exists():
        return None
    RESET.write_text("5")
    return resident("VmRSS")


def highest(device: torch.device) -> int | None:
    """The peak since then."""
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else resident("VmHWM")


def resident(key: str) -> int | None:
    """Of this process, in bytes; None where the system has no such file."""
    if not STATUS.exists():
        return None
    found = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return 1024 * int(found[key].split()[0])


if __name__ == "__main__":
    answer(measured)
