"""Leases: who holds an attempt, and whether the holder still lives. Safe on NFS; no locks, no clocks compared.

A holder is a process: host, boot, pid, start time. Dead means that this process is gone (seen from the same host
and boot), that it let go, or that its lease did not change for 60 s of the reader's own clock.
"""

import contextlib
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEAD_SECONDS = 60.0
NAME = "lease.json"


def holder() -> dict[str, Any]:
    """This process, as a lease names it."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "boot": boot(), "pid": pid, "started": started(pid)}


def boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux: leases are then judged by their changes alone
        return uuid.uuid4().hex


def started(pid: int) -> str | None:
    """The process's start time in clock ticks since boot; None if there is no such process (a zombie is none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def take(attempt: Path) -> bool:
    """Makes the attempt's folder with the lease in it, in one rename. False: somebody else made it first."""
    attempt.parent.mkdir(parents=True, exist_ok=True)
    nonce = uuid.uuid4().hex
    staging = attempt.with_name(f".claim-{nonce}")
    staging.mkdir()
    (staging / NAME).write_text(json.dumps({**holder(), "nonce": nonce}))
    try:
        os.rename(staging, attempt)  # fails where the folder exists: it is never empty
    except OSError:
        shutil.rmtree(staging, ignore_errors=True)
        return read(attempt).get("nonce") == nonce  # NFS: done, but the answer was lost
    return True


def touch(attempt: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(attempt / NAME)


def release(attempt: Path) -> None:
    """The holder lives on but has let go."""
    temporary = attempt / f".{NAME}"
    temporary.write_text(json.dumps({**read(attempt), "released": True}))
    os.rename(temporary, attempt / NAME)


def read(attempt: Path) -> dict[str, Any]:
    """Empty where there is none, or none that can be read."""
    try:
        content = json.loads((attempt / NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def known(content: dict[str, Any]) -> bool | None:
    """Whether the holder lives, where this host can tell at once; else None."""
    if content.get("released"):
        return False
    if content.get("host") == socket.gethostname() and content.get("boot") == boot():
        return bool(started(int(content.get("pid", 0))) == content.get("started", ""))
    return None


def changed(attempt: Path) -> int:
    try:
        return (attempt / NAME).stat().st_mtime_ns
    except OSError:
        return 0


def seems_alive(attempt: Path) -> bool:
    """For showing only: judged at once, for another host by the lease's age on this host's clock."""
    alive = known(read(attempt))
    return alive if alive is not None else time.time() - changed(attempt) / 1e9 < DEAD_SECONDS


class Watch:
    """One reader's memory of when it last saw each lease change."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.seen: dict[Path, tuple[int, float]] = {}

    def dead(self, attempt: Path) -> bool:
        alive = known(read(attempt))
        if alive is not None:
            return not alive
        change, now = changed(attempt), self.clock()
        if attempt not in self.seen or self.seen[attempt][0] != change:
            self.seen[attempt] = (change, now)
        return now - self.seen[attempt][1] >= DEAD_SECONDS
