"""The benchmark of the time to a process's first step, with an empty and a filled compile cache, and uncompiled.

The process trains two seeds to show whether a graph is compiled once per shape or once per trial.
"""

import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from ablations.bench.process import Source, measure_in_process, print_measurement
from ablations.bench.result import Result, column, conditions
from ablations.bench.timing import call_alternately, ratios, spread
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config, merge
from vitcore.runtime.device import compute_settings
from vitcore.training.evaluation import evaluate
from vitcore.training.state import Training

COLD, WARM, EAGER = "empty compile cache", "the same cache again", "not compiled"
TRIALS = 2


def bench(config: Config, rounds: int, source: Source) -> Result:
    """Measure the seconds from a process's command to the end of its first step, imports included.

    Raises ValueError if a process fails.
    """
    how = conditions(config, source, rounds, 1)
    graphs: list[int] = []  # number of graphs compiled so far, after each trial

    def start(name: str) -> float:
        if name == COLD:
            shutil.rmtree(cache, ignore_errors=True)
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
        own = Config(**merge(config.model_dump(), {"compile": name != EAGER}))
        began = time.time()
        first, counts = measure_in_process("ablations.bench.startup", own, source, caches)
        graphs[:] = graphs or counts
        return float(first - began)

    with tempfile.TemporaryDirectory(prefix="ablate-bench-") as folder:
        cache = Path(folder) / "cache"
        seconds = call_alternately({name: partial(start, name) for name in (COLD, WARM, EAGER)}, rounds)
    spreads, ratio = {name: spread(own) for name, own in seconds.items()}, ratios(seconds, COLD)
    columns = {"first step": column(spreads, "{:.1f}", unit=" s"), "of the empty one's": column(ratio, "{:.0%}")}
    caption = (
        " of a process, from its command to the end of its first step. Graphs compiled for one trial: "
        f"{graphs[0]}; for {len(graphs)} of one shape: {graphs[-1]}."
    )
    measured = {"seconds": spreads, "ratio": ratio, "graphs": graphs}
    return Result("start", how, measured, "Start", caption, "cache", columns)


def measure(config: Config, source: Source) -> tuple[float, list[int]]:
    """Take one training step and evaluate, with each of TRIALS seeds.

    Returns (end of the first step in seconds since the epoch, number of graphs compiled so far after each seed).
    """
    first, graphs = 0.0, list[int]()
    with compute_settings(config):
        data = source.images(config)
        for seed in range(TRIALS):
            training = Training(with_steps(config.model_copy(update={"seed": config.seed + seed}), 2), data)
            training.advance()
            training.losses[0].item()  # waits for a GPU
            first = first or time.time()
            evaluate(training)
            from torch._dynamo.utils import counters  # imported here so that an eager step does not wait for it

            graphs.append(int(counters["stats"]["unique_graphs"]))  # compiled or taken from a cache
    return first, graphs


if __name__ == "__main__":
    print_measurement(measure)
