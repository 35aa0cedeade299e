"""The processes of ranks 1 to N - 1 of a trial on N GPUs. The worker is rank 0 and starts, watches and ends them.

On several nodes of a SLURM job, one srun starts the ranks elsewhere. If one ends early, the attempt ends too.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from ablations.faults import MACHINE, Fault, RankLost
from ablations.machine import ended_by, nodes
from results.store.schemas.base import Settings
from vitcore.config import Config
from vitcore.runtime.device import device_of
from vitcore.training.distributed import ALONE, Ranks, TCPStore, exchange_failed, join

# Keys of the store: READY/rank; REPORT/number, for reports in their order; BEAT/rank, the number of heartbeats.
READY, REPORT, BEAT = "ready", "report", "beat"
FOLLOWED = 4  # exit status of a rank that ended because another rank was lost
START_SECONDS = 300.0  # until all ranks are ready: imports from a busy file system take minutes
REPORT_SECONDS = 10.0  # for a lost rank to be noticed, or to report why
GRACE_SECONDS = 30.0  # for a collective operation to notice that a rank is lost
END_SECONDS = 30.0
LOOK_SECONDS = 0.5
BEAT_SECONDS = 5.0
SILENT_SECONDS = 300.0  # without a heartbeat until a rank is killed, as for a worker


@dataclass(frozen=True)
class RankFailure:
    rank: int
    cause: str
    kind: str
    fatal: bool
    where: Sequence[str]  # the type and innermost frames of the exception
    trace: str
    node: str
    followed: bool  # whether the rank ended because another rank was lost

    def error(self) -> RankLost:
        fault = Fault(self.kind, self.fatal or self.kind == MACHINE)
        return RankLost(f"rank {self.rank}: {self.cause}", fault, self.where, self.trace, self.node)


def read_failures(store: TCPStore) -> list[RankFailure]:
    reports: list[RankFailure] = []
    while store.check([key := f"{REPORT}/{len(reports) + 1}"]):
        reports.append(RankFailure(**json.loads(store.get(key))))
    return reports


@dataclass(frozen=True)
class RankOrder:
    config: Settings
    plugins: Sequence[str]
    data_dir: str | None
    accelerator: str
    host: str  # of the store that connects the ranks
    port: int
    rank: int = 0
    local: int = 0  # the index of the rank's GPU among those visible on its node
    tasks: bool = False  # whether all tasks of an srun get this order; `rank` is then the first task's

    def with_own_rank(self) -> "RankOrder":
        """Return the order for this process. In a task of an srun, it has the rank and GPU of the task."""
        if not self.tasks:
            return self
        rank = self.rank + int(os.environ["SLURM_PROCID"])
        return replace(self, rank=rank, local=int(os.environ["SLURM_LOCALID"]), tasks=False)

    @property
    def device(self) -> torch.device:
        if self.accelerator != "cuda":
            return torch.device("cpu")
        return torch.device("cuda", self.local % torch.cuda.device_count())  # a task of srun may see only one GPU


@contextmanager
def join_ranks(
    config: Config, plugins: Iterable[str], data_dir: Path | None, hung: Callable[[RankLost], None] = lambda lost: None
) -> Iterator[Ranks]:
    """Start the other ranks of a trial, if any, and yield the communicator of this process, which is rank 0.

    hung: called before this process is killed as a lost rank makes it hang. Raises RankLost with the first failure.
    """
    if config.gpus == 1:
        yield ALONE
        return
    others = RankProcesses(config, list(plugins), data_dir, hung)
    try:
        others.wait()
        with join(others.store, 0, config.gpus, others.own_order.device) as ranks:
            yield ranks
        for process in others.processes.values():
            with suppress(subprocess.TimeoutExpired):  # `end` kills it below
                process.wait(END_SECONDS)
    except Exception as error:  # raised again, as RankLost if a lost rank is the cause
        lost = None
        if not isinstance(error, RankLost) and exchange_failed(error):
            lost = others.first_failure()
        if lost is not None:
            raise lost from error
        raise
    finally:
        others.end()


def rank_command(order: RankOrder) -> list[str]:
    return [sys.executable, "-P", "-m", "ablations.trainables.vit.rank", json.dumps(asdict(order))]


class RankProcesses:
    def __init__(
        self, config: Config, plugins: Sequence[str], data_dir: Path | None, hung: Callable[[RankLost], None]
    ) -> None:
        self.config = config
        self.hung = hung
        self.here = config.gpus // nodes()  # ranks on this node
        self.host = "127.0.0.1" if self.here == config.gpus else socket.gethostname()
        self.store = TCPStore(self.host, 0, is_master=True, wait_for_workers=False)
        # a second connection: the first may be blocked in a collective operation
        self.watched = TCPStore(self.host, self.store.port, is_master=False)
        self.own_order = RankOrder(
            config=config.model_dump(),
            plugins=plugins,
            data_dir=str(data_dir.absolute()) if data_dir else None,
            accelerator=device_of(config),
            host=self.host,
            port=self.store.port,
        )
        self.others = range(1, config.gpus)
        self.over = threading.Event()
        self.beats = dict.fromkeys(self.others, (0, 0.0))  # rank -> heartbeats, seconds since the last
        self.silent: set[int] = set()  # ranks that were killed for lack of heartbeats
        # each process shares standard output and ends when its standard input closes
        self.processes = {
            rank: subprocess.Popen(rank_command(replace(self.own_order, rank=rank, local=rank)), stdin=subprocess.PIPE)
            for rank in range(1, self.here)
        }
        if self.here < config.gpus:
            self.processes[self.here] = self.start_elsewhere()
        threading.Thread(target=self.watch, daemon=True).start()

    def start_elsewhere(self) -> "subprocess.Popen[bytes]":
        others = nodes() - 1
        cores = int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
        srun = ["srun", "--overlap", "--unbuffered", "--kill-on-bad-exit=1", "--relative=1", f"--nodes={others}"]
        srun += [f"--ntasks={others * self.here}", f"--ntasks-per-node={self.here}"]
        srun += [f"--cpus-per-task={max(1, cores // self.here)}"]
        order = replace(self.own_order, rank=self.here, local=self.here, tasks=True)
        return subprocess.Popen([*srun, *rank_command(order)], stdin=subprocess.PIPE)

    def wait(self) -> None:
        """Wait until all ranks are ready. Raises RankLost if a rank fails or is not ready after START_SECONDS."""
        deadline = time.monotonic() + START_SECONDS
        while not self.store.check([f"{READY}/{rank}" for rank in self.others]):
            if self.lost_ranks() or read_failures(self.watched):
                error = self.first_failure()
                if error is not None:
                    raise error
            if time.monotonic() > deadline:
                raise RankLost(f"a rank was lost: not ready after {START_SECONDS:.0f} s")
            time.sleep(0.02)

    def lost_ranks(self) -> list[int]:
        """Return the ranks, or the first of an srun, that failed unless another lost rank was the cause."""
        return [rank for rank, process in self.processes.items() if process.poll() not in (None, 0, FOLLOWED)]

    def first_failure(self) -> RankLost | None:
        """Return the failure that caused the others, after REPORT_SECONDS the first reported, or None."""
        deadline = time.monotonic() + REPORT_SECONDS
        while True:
            lost = self.lost_ranks()  # before the reports: a rank that is gone has reported already
            reports = read_failures(self.watched)
            causes = [report for report in reports if not report.followed]
            if causes:
                return causes[0].error()
            if lost:
                return self.unreported_failure(lost[0])
            if time.monotonic() > deadline:
                return reports[0].error() if reports else None
            time.sleep(0.02)

    def unreported_failure(self, rank: int) -> RankLost:
        """Return the failure of a process that ended without a report. For an srun, the failed rank may be unknown."""
        is_elsewhere = rank == self.here
        last = self.config.gpus - 1
        name = f"a rank of {rank} to {last}" if is_elsewhere and rank < last else f"rank {rank}"
        code = self.processes[rank].returncode
        text = f"{name} was lost ({ended_by(code)})"
        if self.silent:
            text = f"rank {min(self.silent)} gave no sign of life for {SILENT_SECONDS:.0f} s: killed"
        return RankLost(text, node="" if is_elsewhere else None)

    def watch(self) -> None:
        """Watch the ranks, and kill this process if it hangs because of a lost rank. Runs in a thread."""
        while not self.over.wait(LOOK_SECONDS):
            self.end_silent()
            failed = bool(self.lost_ranks()) or not all(report.followed for report in read_failures(self.watched))
            if failed and not self.over.wait(GRACE_SECONDS) and (lost := self.first_failure()):
                print(f"{lost}; the collective operation with it hangs", file=sys.stderr, flush=True)
                lost.fault = replace(lost.fault, fatal=True)
                with suppress(Exception):  # even if the failure cannot be recorded, this process has to end
                    self.hung(lost)
                os.kill(os.getpid(), signal.SIGKILL)

    def end_silent(self) -> None:
        """Kill the ranks without a heartbeat for SILENT_SECONDS, such as suspended processes."""
        for rank, (beats, seconds) in self.beats.items():
            now = int(self.watched.add(f"{BEAT}/{rank}", 0))
            waits = now == beats > 0  # `wait` handles a rank that has not begun to beat
            self.beats[rank] = now, seconds + LOOK_SECONDS if waits else 0.0
            if self.beats[rank][1] > SILENT_SECONDS and rank not in self.silent:
                self.silent.add(rank)
                process = self.processes[min(rank, self.here)]
                if rank < self.here:
                    process.kill()
                else:
                    process.terminate()  # srun forwards the signal to all its ranks

    def end(self) -> None:
        self.over.set()
        for process in self.processes.values():
            assert process.stdin is not None
            with suppress(OSError):  # the process has ended
                process.stdin.close()
        for process in self.processes.values():
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
