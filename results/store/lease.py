"""Leases: files that record which process holds an attempt. They work on NFS without locks or synchronized clocks.

A holder is dead if its process is gone, has released the lease, or has not renewed the lease for 60 s of the reader's
clock. A reader in the holder's pid namespace sees whether the process is gone, and applies the 60 s only to a stopped
process (SIGSTOP). A holder that continues later finds its attempt superseded.
"""

import contextlib
import errno
import json
import os
import re
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from results.store import contents
from results.store.schemas.trials import Lease

HEARTBEAT_SECONDS = 15.0
DEAD_SECONDS = 60.0
TURN_SECONDS = 0.2
LOCK_SECONDS = 90.0  # longer than DEAD_SECONDS, in which a dead holder on another machine is replaced
STOPPED = "T"  # the state of a stopped process in /proc/PID/stat
NUMBER = re.compile("[0-9]{4,9}")
NAME = "lease.json"
RELEASED = "released.json"


def own_lease(pid: int | None = None) -> Lease:
    pid = pid or os.getpid()
    return Lease(host=socket.gethostname(), boot=boot_id(), pids=pid_namespace(), pid=pid, started=start_time(pid))


def boot_id() -> str:
    """Return the boot id, which is random outside Linux, so that only renewals show that a holder lives."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return uuid.uuid4().hex


def pid_namespace() -> str:
    """Return the id of the pid namespace, which differs between containers of a host, or "" outside Linux."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def process_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the process name, or [] for a missing process or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] in "ZX" else fields


def start_time(pid: int) -> str | None:
    fields = process_stat(pid)
    return fields[19] if fields else None


def numbered_folders(folder: Path) -> list[Path]:
    """Return the subfolders whose names are numbers, in ascending order."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if NUMBER.fullmatch(entry.name) and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(names, key=int)]


def take_next(folder: Path, watch: "Watch") -> Path | None:
    """Make and return the next numbered subfolder of `folder`, held by this process. Raises OSError.

    Returns None if the newest subfolder's holder may live, or another process was quicker.
    """
    taken = numbered_folders(folder)
    if taken and not watch.is_dead(taken[-1]):
        return None
    path = folder / f"{int(taken[-1].name) + 1 if taken else 1:04d}"
    if not NUMBER.fullmatch(path.name):
        raise OSError(errno.ERANGE, "No number is left after it", str(taken[-1]))
    if not take(path):
        return None
    if numbered_folders(folder)[-1] != path:  # the listing was stale, and the number had been used before
        shutil.rmtree(path, ignore_errors=True)
        return None
    return path


def take(attempt: Path) -> bool:
    """Make an attempt's folder and lease. Return whether this process made them. Raises OSError."""
    attempt.parent.mkdir(parents=True, exist_ok=True)
    nonce = uuid.uuid4().hex
    staging = attempt.with_name(f".claim-{nonce}")
    try:
        staging.mkdir()
        (staging / NAME).write_text(json.dumps({**own_lease().content(), "nonce": nonce}))
    except OSError:  # such as a full disk: leave nothing behind
        shutil.rmtree(staging, ignore_errors=True)
        raise
    try:
        os.rename(staging, attempt)  # fails if the folder exists, as it is never empty
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        if isinstance(error, NotADirectoryError):
            raise
        held = read(attempt)
        return held is not None and held.nonce == nonce  # NFS: renamed, but the answer was lost
    return True


class Heartbeat:
    """A background thread that renews the lease of an attempt. `release` ends it and releases the lease."""

    def __init__(self, attempt: Path) -> None:
        self.attempt = attempt
        self.released = threading.Event()
        self.thread = threading.Thread(target=self.beat, daemon=True)
        self.thread.start()

    def beat(self) -> None:
        while not self.released.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self.attempt / NAME)

    def release(self) -> None:
        self.released.set()
        self.thread.join()
        release(self.attempt)


@contextlib.contextmanager
def lock(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[Path]:
    """Hold a lock that all machines sharing `folder` respect, and yield the subfolder that holds the lease.

    Raises TimeoutError, which names the holder, after `seconds`. A dead holder is replaced within about a minute.
    """
    watch = Watch(fenced=False)
    deadline = time.monotonic() + seconds
    path = take_next(folder, watch)
    while path is None:
        if time.monotonic() > deadline:
            held = read(numbered_folders(folder)[-1])
            who = f"process {held.pid} on {held.host}" if held else "another process"
            raise TimeoutError(f"{folder} is held by {who}")
        time.sleep(TURN_SECONDS)
        path = take_next(folder, watch)
    heartbeat = Heartbeat(path)
    try:
        yield path
    finally:
        heartbeat.release()
        for past in numbered_folders(folder)[:-1]:
            shutil.rmtree(past, ignore_errors=True)


def release(attempt: Path) -> None:
    """Release the lease of an attempt by renaming its file, which works on a full disk too."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(attempt / NAME, attempt / RELEASED)


def read(attempt: Path, name: str = NAME) -> Lease | None:
    """Return the lease of an attempt, or None if it is missing or invalid. name: RELEASED for a past lease."""
    try:
        return contents.read(attempt / name, Lease)
    except (OSError, ValueError):
        return None


def nonce(attempt: Path) -> str:
    """Return the random id of an attempt's lease, or "" if it has none. No two attempts share an id."""
    held = read(attempt) or read(attempt, RELEASED)
    return held.nonce if held else ""


def holder_state(held: Lease | None) -> str:
    """Return "lives", "stopped" (by SIGSTOP) or "gone" for the holder of a lease, or "" if this host cannot tell."""
    if held is None or (held.host, held.boot, held.pids) != (socket.gethostname(), boot_id(), pid_namespace()):
        return ""
    fields = process_stat(held.pid)
    if not fields or fields[19] != held.started:
        return "gone"
    return "stopped" if fields[0] == STOPPED else "lives"


def stopped_holder(attempt: Path) -> str:
    """Return text that names the stopped process holding an attempt, or "" if this host sees none."""
    held = read(attempt)
    return f"stopped (pid {held.pid} on {held.host})" if held and holder_state(held) == "stopped" else ""


def renewal_time(attempt: Path) -> int:
    """Return when a lease was last renewed, in ns on the file server's clock, or 0 if the lease is missing."""
    try:
        return (attempt / NAME).stat().st_mtime_ns
    except OSError:
        return 0


def is_held(attempt: Path) -> bool | None:
    """Return whether a running process holds the attempt, or None if the process is stopped or cannot be seen."""
    if (attempt / RELEASED).exists():
        return False
    return {"lives": True, "gone": False}.get(holder_state(read(attempt)))


def seems_alive(attempt: Path) -> bool:
    """Return whether an attempt's holder seems alive. If unknown, the lease's age on the local clock decides."""
    alive = is_held(attempt)
    return alive if alive is not None else time.time() - renewal_time(attempt) / 1e9 < DEAD_SECONDS


class Watch:
    """A reader of leases that remembers when it last saw each lease change.

    fenced: whether a holder that lost its lease cannot publish. If False, a stopped holder here keeps its lease.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, fenced: bool = True) -> None:
        self.clock = clock
        self.fenced = fenced
        self.seen: dict[Path, tuple[int, float]] = {}

    def is_dead(self, attempt: Path) -> bool:
        """Return whether the holder is known to be dead. By renewals, this takes calls over DEAD_SECONDS."""
        alive = is_held(attempt)
        if alive is not None:
            return not alive
        if not self.fenced and stopped_holder(attempt):
            return False
        change = renewal_time(attempt)
        now = self.clock()
        if attempt not in self.seen or self.seen[attempt][0] != change:
            self.seen[attempt] = (change, now)
        return now - self.seen[attempt][1] >= DEAD_SECONDS
