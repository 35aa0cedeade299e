"""When a compiled trial has taken its first step: with an empty compile cache, and with what that left in it.

Each start is a process of its own, timed from its command on: what it imports is part of it. It trains two seeds, so
that graphs that are compiled once a shape can be told from graphs that are compiled once a trial.
"""

import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ablations.bench_clock import progress, spread
from ablations.bench_images import images
from ablations.bench_process import Source, answer, asked
from ablations.probing import with_steps
from vitcore.config import Config, merge
from vitcore.device import computing
from vitcore.train import Training

Json = dict[str, Any]
COLD, WARM, EAGER = "empty compile cache", "the same cache again", "not compiled"
TRIALS = 2


def bench(config: Config, rounds: int, source: Source) -> Json:
    """Raises ValueError where a process fails."""
    compiled, eager = (Config(**merge(config.model_dump(), {"compile": whether})) for whether in (True, False))
    seconds, graphs = defaultdict(list), list[list[int]]()
    sides = ((COLD, compiled), (WARM, compiled), (EAGER, eager))
    with progress(rounds * len(sides)) as begin:
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="ablate-bench-") as cache:
                for name, one in sides:
                    begin(name)
                    took, counted = start(one, source, cache)
                    seconds[name].append(took)
                    if name == COLD:
                        graphs.append(counted)
    values = {name: np.array(found) for name, found in seconds.items()}
    return {
        "seconds": {name: spread(found) for name, found in values.items()},
        "ratio": {name: spread(values[name] / values[COLD]) for name in (WARM, EAGER)},
        "graphs": graphs[0],
    }


def start(config: Config, source: Source, cache: str) -> tuple[float, list[int]]:
    """Seconds until the first step was taken, and the graphs compiled after each trial."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": str(Path(cache) / "triton")}
    began = time.time()
    found = asked("ablations.bench_start", config, source, caches)
    return found["first"] - began, found["graphs"]


def measured(config: Config, source: Source) -> Json:
    """first: when the first step was through, on the clock of all processes; graphs: how many after each trial."""
    first, graphs = 0.0, list[int]()
    with computing(config):
        data = images(config, source.data_dir, source.random)
        for seed in range(TRIALS):
            training = Training(with_steps(config.model_copy(update={"seed": config.seed + seed}), 2), data)
            training.advance()
            training.losses[0].item()  # waits for a GPU
            first = first or time.time()
            training.evaluate()
            graphs.append(compiled())
    return {"first": first, "graphs": graphs}


def compiled() -> int:
    """How many graphs this process has compiled, or taken from a cache."""
    from torch._dynamo.utils import counters  # late: takes as long as torch, which a step without it need not wait for

    return int(counters["stats"]["unique_graphs"])


if __name__ == "__main__":
    answer(measured)
