"""The processes of workers: their command, their environment, and how one is started."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ablations.execution import provenance
from ablations.execution.cleaning import Keep
from ablations.execution.machine import at_once, cores, gpus, nodes

VISIBLE = "CUDA_VISIBLE_DEVICES"

Process = subprocess.Popen[str]
Environment = dict[str, str]


@dataclass(frozen=True)
class Place:
    """Where and with what workers run."""

    runs: Path
    data_dir: Path | None
    plugins: tuple[Path, ...] = ()
    plugin_digests: tuple[str, ...] = ()
    gpu: bool = False  # workers refuse to run without one
    checkpoints: Path | None = None  # scratch space; None: in the run directory
    keep_weights: Keep = "all"
    trials_per_gpu: int = 1

    @property
    def code(self) -> str:
        return "+".join([provenance.sources(), *sorted(self.plugin_digests)])


def start(place: Place, own: Environment, on_cpu: bool) -> Process:
    """Start a worker with variables of its `own`, in the code of this process."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "ablations.execution.worker", json.dumps(order(place, on_cpu))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment(place, own),
        start_new_session=True,  # Ctrl-C reaches this process alone, which then tells the workers
    )


def order(place: Place, on_cpu: bool) -> dict[str, object]:
    """The settings of a worker, as its command line has them."""
    return {
        "runs": str(place.runs),
        "data_dir": str(place.data_dir.absolute()) if place.data_dir else None,
        "plugins": [str(path) for path in place.plugins],
        "gpu": place.gpu and not on_cpu,
        "checkpoints": str(place.checkpoints) if place.checkpoints else None,
        "keep_weights": place.keep_weights,
    }


def environment(place: Place, own: Environment) -> Environment:
    """The variables of a worker: this process's, its own, and where code and data lie."""
    path = [str(provenance.HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    data = {"ABLATE_DATA": str(place.data_dir.absolute())} if place.data_dir else {}
    return dict(os.environ) | own | data | {"PYTHONPATH": os.pathsep.join(path)}


def environments(ranks: int, on_cpu: bool, asked: int | None, trials_per_gpu: int = 1) -> Iterator[Environment]:
    """The environments of as many workers as are asked for, else `machine.at_once`.

    Workers share GPUs where there are more of them, the same number on each.
    """
    devices = [] if on_cpu else gpus()
    spread = nodes() if ranks > 1 else 1
    groups = list(zip(*[iter(devices)] * (ranks // spread), strict=False))  # what is left over stays idle
    number = (asked or at_once(ranks, trials_per_gpu * len(devices), cores())) if spread == 1 else 1
    for worker in range(number):
        own = {VISIBLE: ",".join(groups[worker % len(groups)])} if groups else {}
        yield {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} | own


def hang_up(process: Process) -> None:
    """No more jobs: the worker ends after the one it has."""
    assert process.stdin is not None
    with suppress(OSError):  # it is gone already
        process.stdin.close()
