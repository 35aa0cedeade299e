"""Taking a cluster down, in any state of its processes and its directory."""

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
    """End all processes of a cluster, even stopped ones, and remove its directory if that still exists.

    Waits for an `up` in progress there. Raises ValueError for a directory that holds something else.
    """
    if folder.is_dir() and any(folder.iterdir()) and not (folder / settings.FILE).exists():
        raise ValueError(f"{folder}: holds no cluster, nothing is removed")
    with lock(folder):
        kill_all(folder)
        _remove(folder)


def kill_all(folder: Path) -> None:
    """Kill all processes of the cluster, including children that start in the meantime."""
    until(lambda: not _killed(folder), f"{folder}: the end of its processes", every=0.05)


def _killed(folder: Path) -> bool:
    found = processes.owned(folder)
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return bool(found)


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the lock for starting or ending the cluster. The kernel releases it if the holder is killed."""
    try:
        file = open(folder / settings.FILE)  # noqa: SIM115  # closed below
    except FileNotFoundError:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove(folder: Path) -> None:
    """Remove the directory, the settings last, so that a half-removed cluster is still recognized."""
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.name != settings.FILE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (folder / settings.FILE).unlink(missing_ok=True)
        folder.rmdir()
