"""The processes of workers: how one is started, and some that are before there is anything to do.

A worker imports torch first, which takes seconds: those that are started ahead do it while there is nothing else to do.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ablations import login, provenance
from ablations.cleaning import Keep
from ablations.machine import at_once, cores, gpus, nodes
from results import store

VISIBLE = "CUDA_VISIBLE_DEVICES"
MOST_AHEAD = 8  # how many trials there will be is not known yet

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


@dataclass(frozen=True)
class Start:
    """What a worker is started with."""

    command: list[str]
    environment: Environment

    def process(self) -> Process:
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=self.environment,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then tells the workers
        )


def start(place: Place, own: Environment, on_cpu: bool, inherited: Environment | None = None) -> Start:
    """Of a worker with an environment of its `own` over what it inherits, in the code of this process.

    inherited: this process's environment as it was before libraries wrote into it; None: as it is.
    """
    order = {
        "runs": str(place.runs),
        "data_dir": str(place.data_dir.absolute()) if place.data_dir else None,
        "plugins": [str(path) for path in place.plugins],
        "gpu": place.gpu and not on_cpu,
        "checkpoints": str(place.checkpoints) if place.checkpoints else None,
        "keep_weights": place.keep_weights,
    }
    inherited = inherited or dict(os.environ)
    path = [str(provenance.HOME), *filter(None, [inherited.get("PYTHONPATH")])]
    data = {"ABLATE_DATA": str(place.data_dir.absolute())} if place.data_dir else {}
    return Start(
        [sys.executable, "-P", "-m", "ablations.worker", json.dumps(order)],
        inherited | own | data | {"PYTHONPATH": os.pathsep.join(path)},
    )


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


@dataclass
class Ahead:
    """Workers that nobody took yet, and the environment that they and all later ones inherit."""

    waiting: list[tuple[Start, Process]] = field(default_factory=list)
    environment: Environment = field(default_factory=lambda: dict(os.environ))

    def processes(self) -> list[Process]:
        return [process for _, process in self.waiting]

    def keep(self, count: int) -> None:
        """No more than so many."""
        for process in self.processes()[count:]:
            self.end(process)

    def end(self, process: Process) -> None:
        """It has nothing to save."""
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError):  # what was not sent yet
                if pipe is not None:
                    pipe.close()  # not read to their ends: a process of its own may keep them open
        self.waiting = [entry for entry in self.waiting if entry[1] is not process]

    def process(self, wanted: Start) -> Process:
        """One that was started just so, else a new one."""
        for entry in self.waiting:
            if entry[0] == wanted:
                self.waiting.remove(entry)
                return entry[1]
        return wanted.process()


@contextmanager
def ahead(place: Place, studies: Sequence[str], asked: int | None) -> Iterator[Ahead]:
    """Workers for trials that each take one GPU, or a core; what nobody took is gone at the end."""
    found = Ahead()
    most = min(MOST_AHEAD, login.MOST if login.here() else MOST_AHEAD, len(gpus()) or MOST_AHEAD)
    if not finished(place.runs, studies):
        for own in islice(environments(1, False, asked), most):
            begun = start(place, own, False, found.environment)
            found.waiting.append((begun, begun.process()))
    try:
        yield found
    finally:
        found.keep(0)


def finished(runs: Path, studies: Sequence[str]) -> bool:
    """Whether all that was ever planned of these studies has its result: there may well be nothing to do."""
    names = {Path(study).stem for study in studies}
    with suppress(store.Broken, store.NewerSchema):  # which the command itself tells of
        plans = [plan for plan in store.plans(runs) if plan["study"] in names]
        ids = {trial["id"] for plan in plans for arm in plan["arms"] for trial in arm["trials"]}
        known = {plan["study"] for plan in plans}
        return known == names and all((runs / "trials" / each / "result.json").exists() for each in ids)
    return False


def hang_up(process: Process) -> None:
    """No more jobs: the worker ends after the one it has."""
    assert process.stdin is not None
    with suppress(OSError):  # it is gone already
        process.stdin.close()
