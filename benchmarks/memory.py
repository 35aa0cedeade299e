"""The peak GPU memory that training steps need beyond the model and the images, measured in separate processes."""

import torch

from ablations.trainables.vit.planned import with_steps
from benchmarks.process import Source, measure_in_process, print_measurement
from benchmarks.rivals import OURS, Ours, Rival
from benchmarks.timing import repeat
from vitcore.config import Config
from vitcore.runtime.device import compute_settings, device_of

STEPS = 3


def memory_of_steps(config: Config, name: str, source: Source) -> tuple[int | None, str]:
    """Return (peak bytes of GPU memory that steps of an implementation add, why they were not measured).

    The bytes are None without a reason on a CPU. name: as in benchmarks.rivals.
    """
    if device_of(config) == "cpu":
        return None, ""
    try:
        return measure_in_process("benchmarks.memory", config, source, {}, name=name), ""
    except ValueError as error:
        return None, str(error)


def measure(config: Config, source: Source, name: str) -> int:
    """Return the bytes that `memory_of_steps` reports. Runs in the process that it starts."""
    config = with_steps(config, STEPS)
    with compute_settings(config):
        data = source.images(config)
        side = Ours(config, data) if name == OURS else Rival(name, config, data)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        repeat(side.advance, STEPS)
        return torch.cuda.max_memory_allocated() - before


if __name__ == "__main__":
    print_measurement(measure)
