"""The peak memory that training steps need beyond the model and the images, measured in separate processes."""

from pathlib import Path

import torch

from ablations.bench.process import Source, measure_in_process, print_measurement
from ablations.bench.rivals import OURS, TUNED, Ours, Rival
from ablations.bench.timing import repeat
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config
from vitcore.runtime.compile_cache import compiles
from vitcore.runtime.device import compute_settings, device_of

STEPS = 3
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # psutil has no peak that can be reset


def memory_of_steps(config: Config, name: str, source: Source) -> tuple[int | None, str]:
    """Return (peak bytes that steps of an implementation add, why they were not measured).

    The bytes are of GPU memory, or of a process's memory on a CPU. They are None without a reason if the system does
    not report them. name: as in ablations.bench.rivals.
    """
    if device_of(config) == "cpu" and (name == TUNED or (name == OURS and compiles(config, "cpu"))):
        return None, "on a CPU compiling takes more of it than the steps"
    try:
        return measure_in_process("ablations.bench.memory", config, source, {}, name=name), ""
    except ValueError as error:
        return None, str(error)


def measure(config: Config, source: Source, name: str) -> int | None:
    """Return the bytes of `memory_of_steps`, in its process, or None if the system does not report them."""
    config = with_steps(config, STEPS)
    with compute_settings(config):
        data = source.images(config)
        side = Ours(config, data) if name == OURS else Rival(name, config, data)
        if device_of(config) == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            repeat(side.advance, STEPS)
            return torch.cuda.max_memory_allocated() - before
        if not RESET.exists():
            return None
        RESET.write_text("5")
        before = resident_bytes("VmRSS")
        repeat(side.advance, STEPS)
        return resident_bytes("VmHWM") - before


def resident_bytes(key: str) -> int:
    """Return the resident memory of this process in bytes. key: "VmRSS" for current or "VmHWM" for peak memory."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return 1024 * int(lines[key].removesuffix("kB"))


if __name__ == "__main__":
    print_measurement(measure)
