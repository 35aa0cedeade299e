"""The benchmark of memory: the peak memory that training steps need beyond the model and the images.

Each implementation is measured in a separate process.
"""

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch

from ablations.bench.process import Source, answer, measure_in_process
from ablations.bench.rivals import compiles, side_of
from ablations.bench.timing import Call, repeat
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config
from vitcore.runtime.device import computing, device_of

STEPS = 3
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # psutil knows no peak that can be reset


def of_sides(config: Config, names: Iterable[str], source: Source, left_out: dict[str, str]) -> dict[str, int | None]:
    """Return the memory in bytes that each implementation's steps need; None if it cannot be measured.

    names: names of implementations (ablations.bench.rivals). left_out: receives the reasons for missing values, by
    name.
    """
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
    """Return the memory in bytes that one implementation's steps need, measured in a new process.

    Returns None if the system does not report it. Raises ValueError if the process fails.
    """
    found: int | None = measure_in_process("ablations.bench.memory", config, source, {}, name=name)
    return found


def measure(config: Config, source: Source, name: str) -> int | None:
    """Return the peak memory in bytes that steps add to this process; None if the system does not report it.

    name: the name of an implementation (ablations.bench.rivals).
    """
    config = with_steps(config, STEPS)
    with computing(config):
        steps = partial(repeat, side_of(name, config, source.images(config)).advance, STEPS)
        return added_on_gpu(steps) if device_of(config) == "cuda" else added(steps)


def added_on_gpu(call: Call) -> int:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


def added(call: Call) -> int | None:
    if not RESET.exists():
        return None
    RESET.write_text("5")
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def resident(key: str) -> int:
    """Return a memory size of this process in bytes.

    key: a line of /proc/self/status, VmRSS for the current size or VmHWM for the peak.
    """
    found = re.search(rf"^{key}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    assert found
    return 1024 * int(found[1])


if __name__ == "__main__":
    answer(measure)
