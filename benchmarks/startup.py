"""The benchmark of the time to a process's first step, with an empty and a filled compile cache, and uncompiled."""

import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from ablations.trainables.vit.planned import with_steps
from benchmarks.process import Source, measure_in_process, print_measurement
from benchmarks.result import Result, column, conditions
from benchmarks.timing import call_alternately, ratios, spread
from vitcore.config import Config, merge
from vitcore.runtime.device import compute_settings
from vitcore.training.state import Training

COLD, WARM, EAGER = "empty compile cache", "the same cache again", "not compiled"


def bench(config: Config, rounds: int, source: Source) -> Result:
    """Measure the seconds from a process's command to the end of its first step; raise ValueError if it fails."""
    how = conditions(config, source, rounds, 1)

    def start(name: str) -> float:
        if name == COLD:
            shutil.rmtree(cache, ignore_errors=True)
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
        own = Config(**merge(config.model_dump(), {"compile": name != EAGER}))
        began = time.time()
        return float(measure_in_process("benchmarks.startup", own, source, caches) - began)

    with tempfile.TemporaryDirectory(prefix="ablate-bench-") as folder:
        cache = Path(folder) / "cache"
        seconds = call_alternately({name: partial(start, name) for name in (COLD, WARM, EAGER)}, rounds)
    spreads, ratio = {name: spread(own) for name, own in seconds.items()}, ratios(seconds, COLD)
    columns = {"first step": column(spreads, "{:.1f}", unit=" s"), "of the empty one's": column(ratio, "{:.0%}")}
    caption = " of a process, from its command to the end of its first step."
    return Result("start", how, {"seconds": spreads, "ratio": ratio}, "Start", caption, "cache", columns)


def measure(config: Config, source: Source) -> float:
    """Take a training step, and return when it ended, in seconds since the epoch."""
    with compute_settings(config):
        training = Training(with_steps(config, 1), source.images(config))
        training.advance()
        training.losses[0].item()  # waits for a GPU
        return time.time()


if __name__ == "__main__":
    print_measurement(measure)
