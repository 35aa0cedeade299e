"""The running processes of a cluster, found in /proc.

Pid files are not enough, because the system reuses process ids and jobs have no pid file. A process belongs to the
cluster in any of these cases:

- The variable DEVCLUSTER in its environment names the cluster's directory.
- It runs in a job, and SLURM_CONF names the cluster's slurm.conf.
- It is a daemon with open files in the directory. slurmstepd overwrites its environment, so the files identify it.
- Its parent process belongs to the cluster.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "DEVCLUSTER"
DAEMONS = frozenset({"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmscriptd", "slurmd", "slurmstepd"})


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    name: str


def owned(folder: Path) -> list[Process]:
    """Return the processes of the cluster in `folder`: daemons, jobs and all processes that these have started.

    This process and its ancestors are left out, so that a shell in a job can take the cluster down.
    """
    processes = {process.pid: process for process in running()}
    ours = {pid for pid, process in processes.items() if _belongs(process, folder)}
    while children := {pid for pid, process in processes.items() if process.parent in ours} - ours:
        ours |= children
    return [processes[pid] for pid in sorted(ours - _callers(processes))]


def running() -> Iterator[Process]:
    """Yield every process of this machine except zombies."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # gone meanwhile
                before, _, after = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")
                state, parent = after.split()[:2]
                if state not in "ZX":
                    yield Process(int(entry.name), int(parent), before.partition("(")[2])


def _belongs(process: Process, folder: Path) -> bool:
    with contextlib.suppress(OSError):
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        if f"{MARK}={folder}".encode() in environment:
            return True
        if f"SLURM_CONF={folder}/slurm.conf".encode() in environment:
            return any(entry.startswith(b"SLURM_JOB_ID=") for entry in environment)
        return process.name in DAEMONS and any(path.is_relative_to(folder) for path in _open_files(process.pid))
    return False


def _open_files(pid: int) -> Iterator[Path]:
    yield Path(os.readlink(f"/proc/{pid}/cwd"))
    for descriptor in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            yield Path(os.readlink(descriptor.path))


def _callers(processes: dict[int, Process]) -> set[int]:
    """Return the ids of this process and its ancestors."""
    callers, pid = set(), os.getpid()
    while pid in processes and pid not in callers:
        callers.add(pid)
        pid = processes[pid].parent
    return callers
