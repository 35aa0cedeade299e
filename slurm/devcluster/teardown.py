"""Functions that take a cluster down, whatever the state of its processes and its directory."""

import contextlib
import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from slurm.devcluster import processes, settings
from slurm.devcluster.waiting import until


def tear_down(folder: Path) -> None:
    """End all processes of the cluster in `folder`, even stopped ones, and remove the folder if it exists.

    If the cluster is being started, this function waits for it. Raises ValueError if the folder holds files but
    no cluster.
    """
    if folder.is_dir() and any(folder.iterdir()) and not (folder / settings.FILE).exists():
        raise ValueError(f"{folder}: holds no cluster, nothing is removed")
    with lock(folder):
        kill_all(folder)
        _remove(folder)


def kill_all(folder: Path) -> None:
    """Kill all processes of the cluster in `folder`, including children that start in the meantime."""
    until(lambda: not _killed(folder), f"{folder}: the end of its processes", every=0.05)


def _killed(folder: Path) -> bool:
    found = processes.owned(folder)
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return bool(found)


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the lock for starting or ending the cluster in `folder` within the block.

    Nothing is locked if the folder holds no cluster. The kernel releases the lock if the process is killed.
    """
    try:
        file = open(folder / settings.FILE)  # noqa: SIM115  # closed below
    except FileNotFoundError:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove(folder: Path) -> None:
    """Remove the directory. The settings go last, so that a half-removed cluster is still recognized."""
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.name != settings.FILE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (folder / settings.FILE).unlink(missing_ok=True)
        folder.rmdir()
