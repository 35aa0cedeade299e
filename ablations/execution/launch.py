"""Starting worker processes: their command line and environment."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ablations.execution import provenance
from ablations.execution.cleaning import Keep
from ablations.execution.machine import cores, default_workers, gpus, nodes
from ablations.execution.messages import WorkerSettings

VISIBLE = "CUDA_VISIBLE_DEVICES"

Process = subprocess.Popen[str]
Environment = dict[str, str]


@dataclass(frozen=True)
class Place:
    """Where workers run, and with which settings."""

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
        return "+".join([provenance.source_digest(), *sorted(self.plugin_digests)])


def start_worker(place: Place, own: Environment, on_cpu: bool) -> Process:
    """Start a worker that runs this process's code, with additional environment variables `own`."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "ablations.execution.worker", json.dumps(asdict(worker_settings(place, on_cpu)))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=worker_environment(place, own),
        start_new_session=True,  # Ctrl-C reaches this process alone, which then tells the workers
    )


def worker_settings(place: Place, on_cpu: bool) -> WorkerSettings:
    """The settings on a worker's command line."""
    return WorkerSettings(
        runs=str(place.runs),
        data_dir=str(place.data_dir.absolute()) if place.data_dir else None,
        plugins=[str(path) for path in place.plugins],
        gpu=place.gpu and not on_cpu,
        checkpoints=str(place.checkpoints) if place.checkpoints else None,
        keep_weights=place.keep_weights,
    )


def worker_environment(place: Place, own: Environment) -> Environment:
    """A worker's environment variables: this process's, its own, and the paths of code and data."""
    path = [str(provenance.HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    data = {"ABLATE_DATA": str(place.data_dir.absolute())} if place.data_dir else {}
    return dict(os.environ) | own | data | {"PYTHONPATH": os.pathsep.join(path)}


def worker_environments(ranks: int, on_cpu: bool, asked: int | None, trials_per_gpu: int = 1) -> Iterator[Environment]:
    """The environment variables of each worker. asked: number of workers, by default machine.default_workers.

    Workers are spread evenly over the GPUs and share them if there are more workers than GPUs.
    """
    devices = [] if on_cpu else gpus()
    spread = nodes() if ranks > 1 else 1
    groups = list(zip(*[iter(devices)] * (ranks // spread), strict=False))  # what is left over stays idle
    number = (asked or default_workers(ranks, trials_per_gpu * len(devices), cores())) if spread == 1 else 1
    for worker in range(number):
        own = {VISIBLE: ",".join(groups[worker % len(groups)])} if groups else {}
        yield {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} | own


def close_stdin(process: Process) -> None:
    """Send no more jobs: the worker ends after its current one."""
    assert process.stdin is not None
    with suppress(OSError):  # it is gone already
        process.stdin.close()
