"""The running processes of a cluster, which are found in /proc and killed.

Pid files are not enough, because the system reuses process ids and jobs have no pid file. A process belongs to the
cluster in any of these cases:

- SLURM_CONF in its environment names the cluster's slurm.conf, and it is a daemon or runs in a job.
- It is a daemon whose working directory or open files are in the directory. slurmstepd overwrites its environment, so
  only these identify it.
- Its parent process belongs to the cluster.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

DAEMONS = frozenset({"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmscriptd", "slurmd", "slurmstepd"})
T = TypeVar("T")


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    name: str


def cluster_processes(folder: Path) -> list[Process]:
    """Return the processes of the cluster in `folder`: daemons, jobs and their descendants.

    This process and its ancestors are left out, so that a shell in a job can take the cluster down.
    """
    processes = {process.pid: process for process in live_processes()}
    ours = {pid for pid, process in processes.items() if _belongs(process, folder)}
    while children := {pid for pid, process in processes.items() if process.parent in ours} - ours:
        ours |= children
    caller = os.getpid()
    while caller in processes:
        ours.discard(caller)
        caller = processes[caller].parent
    return [processes[pid] for pid in sorted(ours)]


def live_processes() -> Iterator[Process]:
    """Yield every process of this machine except zombies."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            before, _, after = (entry / "stat").read_text(errors="replace").rpartition(")")
            state, parent = after.split()[:2]
            if state not in "ZX":
                yield Process(int(entry.name), int(parent), before.partition("(")[2])


def _belongs(process: Process, folder: Path) -> bool:
    place, is_daemon = Path(f"/proc/{process.pid}"), process.name in DAEMONS
    with contextlib.suppress(OSError):
        environment = (place / "environ").read_bytes().split(b"\0")
        if f"SLURM_CONF={folder}/slurm.conf".encode() in environment:
            return is_daemon or any(entry.startswith(b"SLURM_JOB_ID=") for entry in environment)
        links = [place / "cwd", *(place / "fd").iterdir()] if is_daemon else []
        return any(Path(os.path.realpath(link)).is_relative_to(folder) for link in links)
    return False


def kill_all(folder: Path) -> None:
    """Kill all processes of the cluster, and any that start meanwhile. Raises TimeoutError if some stay for 30 s."""

    def all_ended() -> bool:
        found = cluster_processes(folder)
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return not found

    wait_until(all_ended, f"{folder}: the end of its processes", every=0.05)


def wait_until(check: Callable[[], T], what: str, timeout: float = 30.0, every: float = 0.1) -> T:
    """Call `check` until it returns a true value, and return this value.

    timeout, every: in seconds. Raises a TimeoutError that names `what`.
    """
    deadline = time.monotonic() + timeout
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(every)
    return answer
