"""The time to the first step of a compiled trial, with an empty and with a warm compile cache.

Each start is a process of its own, timed from its command, imports included. It trains two seeds, so that a graph
compiled once per shape can be told from one compiled once per trial.
"""

import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ablations.bench.process import Source, answer, measure_in_process
from ablations.bench.timing import progress, spread
from ablations.planning.measure_steps import with_steps
from vitcore.config import Config, merge
from vitcore.runtime.device import computing
from vitcore.training.loop import Training

Json = dict[str, Any]
COLD, WARM, EAGER = "empty compile cache", "the same cache again", "not compiled"
TRIALS = 2


def bench(config: Config, rounds: int, source: Source) -> Json:
    """Time both starts. Raises ValueError if a process fails."""
    compiled, eager = (Config(**merge(config.model_dump(), {"compile": whether})) for whether in (True, False))
    sides = {COLD: compiled, WARM: compiled, EAGER: eager}
    seconds: dict[str, list[float]] = defaultdict(list)
    graphs: list[int] = []
    with progress(rounds * len(sides)) as begin:
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="ablate-bench-") as cache:
                for name, one in sides.items():
                    begin(name)
                    took, counts = first_step(one, source, cache)
                    seconds[name].append(took)
                    graphs = graphs or counts
    values = {name: np.array(found) for name, found in seconds.items()}
    return {
        "seconds": {name: spread(found) for name, found in values.items()},
        "ratio": {name: spread(values[name] / values[COLD]) for name in (WARM, EAGER)},
        "graphs": graphs,
    }


def first_step(config: Config, source: Source, cache: str) -> tuple[float, list[int]]:
    """Seconds until the first step is done, and the number of compiled graphs after each trial."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": str(Path(cache) / "triton")}
    began = time.time()
    found = measure_in_process("ablations.bench.startup", config, source, caches)
    return found["first"] - began, found["graphs"]


def measure(config: Config, source: Source) -> Json:
    """first: time of the first step on the system's monotonic clock; graphs: number after each trial."""
    first, graphs = 0.0, list[int]()
    with computing(config):
        data = source.images(config)
        for seed in range(TRIALS):
            training = Training(with_steps(config.model_copy(update={"seed": config.seed + seed}), 2), data)
            training.advance()
            training.losses[0].item()  # waits for a GPU
            first = first or time.time()
            training.evaluate()
            graphs.append(compiled_graphs())
    return {"first": first, "graphs": graphs}


def compiled_graphs() -> int:
    """The number of graphs that this process has compiled or taken from a cache."""
    from torch._dynamo.utils import counters  # late: an eager step need not wait for its import

    return int(counters["stats"]["unique_graphs"])


if __name__ == "__main__":
    answer(measure)
