"""The further processes of a trial on several GPUs: started by its worker, which is the first rank, watched, ended.

    worker (rank 0) --starts--> python -m ablations.execution.rank (ranks 1 ... N - 1)

In a job of SLURM's on several nodes those on the other nodes are the tasks of one srun, a task a GPU.
Where one ends before its time, the attempt does: its trial goes on from the checkpoint in another one. None outlives
the worker.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ablations.execution import faults
from ablations.execution.faults import MACHINE, Fault, RankLost
from ablations.execution.machine import nodes
from vitcore.config import Config
from vitcore.runtime.device import device_of
from vitcore.training.distributed import ALONE, Alone, TCPStore, exchange_failed, joined

Json = dict[str, Any]
READY, WORD = "ready", "word"  # keys of the store, with the rank; with a number, in the order in which they were said
FOLLOWED = 4  # exit status of a rank that ended because another one was gone
START_SECONDS = 300.0  # until all are there: imports from a busy file system
WORDS_SECONDS = 10.0  # for the lost one to be seen as such, or to say why
GRACE_SECONDS = 30.0  # for an exchange to notice that a rank is lost
END_SECONDS = 30.0


@dataclass(frozen=True)
class Word:
    """What a rank says of the exception that ends it. followed: it met that another rank was gone."""

    rank: int
    cause: str
    kind: str
    fatal: bool
    where: Sequence[str]
    trace: str
    node: str
    followed: bool

    def error(self) -> RankLost:
        fault = Fault(self.kind, self.fatal or self.kind == MACHINE)
        return RankLost(f"rank {self.rank}: {self.cause}", fault, self.where, self.trace, self.node)


def tell(store: TCPStore, rank: int, error: Exception) -> bool:
    """Says why this rank ends, so that the first one can put it on record; whether it failed of itself."""
    fault, cause = faults.classify(error), f"{type(error).__name__}: {error}"
    trace, node = "".join(traceback.format_exception(error)), os.environ.get("SLURMD_NODENAME", "")
    followed = exchange_failed(error)
    word = Word(rank, cause, fault.kind, fault.fatal, faults.where(error), trace, node, followed)
    with suppress(RuntimeError):  # the first one is gone, and nobody asks
        store.set(f"{WORD}/{store.add(WORD, 1)}", json.dumps(asdict(word)))
    return not followed


def told(store: TCPStore) -> list[Word]:
    """What was said until now, in its order."""
    words: list[Word] = []
    while store.check([key := f"{WORD}/{len(words) + 1}"]):
        words.append(Word(**json.loads(store.get(key))))
    return words


@dataclass(frozen=True)
class Order:
    """What a further rank is told. `local`: which of the GPUs that its node sees is its own.

    `tasks`: it is for all tasks of an srun, the first of which is `rank`.
    """

    config: Json
    plugins: Sequence[str]
    data_dir: str | None
    accelerator: str
    host: str
    port: int
    rank: int
    local: int
    tasks: bool = False

    def placed(self) -> "Order":
        """That of this process, where it is one of such tasks."""
        if not self.tasks:
            return self
        rank, local = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_LOCALID"])
        return replace(self, rank=self.rank + rank, local=local, tasks=False)

    @property
    def device(self) -> torch.device:
        if self.accelerator != "cuda":
            return torch.device("cpu")
        return torch.device("cuda", self.local % torch.cuda.device_count())  # a task may see its own alone


@contextmanager
def together(
    config: Config,
    plugins: Iterable[str],
    data_dir: Path | None,
    hung: Callable[[RankLost], None] = lambda lost: None,
) -> Iterator[Alone]:
    """All ranks of a trial, of which this process is the first; this one alone where the config asks for no more.

    Raises RankLost where another one does not come or goes: with the reason of the one that failed first. Where this
    process hangs in an exchange with one that is gone, `hung` is told in a thread, and then the process is killed.
    """
    if config.gpus == 1:
        yield ALONE
        return
    crew = Crew(config, list(plugins), data_dir, hung)
    try:
        crew.wait()
        with joined(crew.store, 0, config.gpus, crew.order(0).device) as ranks:
            yield ranks
        crew.settle()
    except Exception as error:
        if not isinstance(error, RankLost) and exchange_failed(error) and (lost := crew.loss()):
            raise lost from error
        raise
    finally:
        crew.end()


def command(order: Order) -> list[str]:
    return [sys.executable, "-P", "-m", "ablations.execution.rank", json.dumps(asdict(order))]


class Crew:
    """The further ranks, seen from the first."""

    def __init__(
        self, config: Config, plugins: Sequence[str], data_dir: Path | None, hung: Callable[[RankLost], None]
    ) -> None:
        self.config, self.plugins, self.data_dir, self.hung = config, plugins, data_dir, hung
        self.here = config.gpus // nodes()  # of the ranks
        self.host = "127.0.0.1" if self.here == config.gpus else socket.gethostname()
        self.store = TCPStore(self.host, 0, is_master=True, wait_for_workers=False)
        self.words = TCPStore(self.host, self.store.port, is_master=False)  # while this process waits at the other one
        self.others = range(1, config.gpus)
        self.over = threading.Event()
        self.processes = {rank: self.start(rank) for rank in range(1, self.here)}
        if self.here < config.gpus:
            self.processes[self.here] = self.start_elsewhere()
        threading.Thread(target=self.watch, daemon=True).start()

    def order(self, rank: int) -> Order:
        data_dir = str(self.data_dir.absolute()) if self.data_dir else None
        accelerator, config = device_of(self.config), self.config.model_dump()
        return Order(config, self.plugins, data_dir, accelerator, self.host, self.store.port, rank, rank)

    def start(self, rank: int) -> "subprocess.Popen[bytes]":
        """It writes where this process does, and ends when the pipe to it closes, at the latest with this process."""
        return subprocess.Popen(command(self.order(rank)), stdin=subprocess.PIPE)

    def start_elsewhere(self) -> "subprocess.Popen[bytes]":
        """All on the other nodes of the job, whose standard inputs are that of srun."""
        others, cores = nodes() - 1, int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
        options = {
            "relative": 1,
            "nodes": others,
            "ntasks": others * self.here,
            "ntasks-per-node": self.here,
            "cpus-per-task": max(1, cores // self.here),
            "kill-on-bad-exit": 1,
        }
        srun = ["srun", "--overlap", "--unbuffered", *(f"--{name}={value}" for name, value in options.items())]
        order = replace(self.order(self.here), tasks=True)
        return subprocess.Popen([*srun, *command(order)], stdin=subprocess.PIPE)

    def wait(self) -> None:
        """Until all are there. Raises RankLost."""
        deadline = time.monotonic() + START_SECONDS
        while not self.store.check([f"{READY}/{rank}" for rank in self.others]):
            if (self.lost() or told(self.words)) and (error := self.loss()):
                raise error
            if time.monotonic() > deadline:
                raise RankLost(f"a rank was lost: not there after {START_SECONDS:.0f} s")
            time.sleep(0.02)

    def lost(self) -> list[int]:
        """The ranks that ended of themselves before their time."""
        return [rank for rank, process in self.processes.items() if process.poll() not in (None, 0, FOLLOWED)]

    def loss(self) -> RankLost | None:
        """Which rank failed first, and how; None where none did.

        One that says that another is gone counts only where nobody is known to have failed of itself.
        """
        deadline = time.monotonic() + WORDS_SECONDS
        while True:
            lost = self.lost()  # asked before the words: who is gone has had the last one
            words = told(self.words)
            if own := [word for word in words if not word.followed]:
                return own[0].error()
            if lost:
                return self.silent(lost[0])
            if time.monotonic() > deadline:
                return words[0].error() if words else None
            time.sleep(0.02)

    def silent(self, rank: int) -> RankLost:
        """A rank that ended without a word. On other nodes it is one of all there, which are one srun's."""
        code = self.processes[rank].returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
        elsewhere, last = rank == self.here, self.config.gpus - 1
        name = f"a rank of {rank} to {last}" if elsewhere and rank < last else f"rank {rank}"
        return RankLost(f"{name} was lost ({how})", node="" if elsewhere else None)

    def watch(self) -> None:
        """A thread: an exchange that does not notice that a rank is lost would hang, so this process ends too."""
        while not self.over.wait(0.5):
            failed = bool(self.lost()) or not all(word.followed for word in told(self.words))
            if failed and not self.over.wait(GRACE_SECONDS) and (lost := self.loss()):
                print(f"{lost}; the exchange with it hangs", file=sys.stderr, flush=True)
                lost.fault = replace(lost.fault, fatal=True)
                with suppress(Exception):  # whatever cannot be put on record: this process has to end
                    self.hung(lost)
                os.kill(os.getpid(), signal.SIGKILL)

    def settle(self) -> None:
        """They end of themselves."""
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)

    def end(self) -> None:
        self.over.set()
        for process in self.processes.values():
            assert process.stdin is not None
            with suppress(OSError):  # it is gone
                process.stdin.close()
        for process in self.processes.values():
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
