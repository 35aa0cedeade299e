"""Runs a command so that nothing it has started outlives it: `python supervisor.py SECONDS COMMAND...`.

Standard input is a pipe whose other end a worker holds. When the worker is gone, everything is killed at once. SIGTERM
is passed to the command, and everything is killed SECONDS later. The exit status is the command's, or 128 + the number
of the signal that ended it. This file imports nothing of the suite, so that it starts in milliseconds.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux
KILL_SECONDS = 10.0  # how long a killed process may take to end, as in a read from a lost file server


def prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def children() -> list[int]:
    """Return the children of this process. The processes that a dead descendant has left are among them."""
    child_ids: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            child_ids += map(int, path.read_text().split())
    return child_ids


def kill_descendants() -> None:
    """Kill the children of this process until it has none. The children of a killed child become its own."""
    deadline = time.monotonic() + KILL_SECONDS
    while (descendants := children()) and time.monotonic() < deadline:
        for pid in descendants:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def kill_with_worker() -> None:
    os.read(0, 1)
    kill_descendants()
    os._exit(1)


def wait_for(pid: int) -> int:
    """Return the exit status of a child, and collect all others that end before it."""
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:  # another thread killed and collected it
            return 128 + signal.SIGKILL
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main() -> int:
    seconds = float(sys.argv[1])
    command = sys.argv[2:]
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until there is a command to pass it to
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=prepare_command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127

    def stop(*_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)
        timer = threading.Timer(seconds, kill_descendants)
        timer.daemon = True
        timer.start()

    signal.signal(signal.SIGTERM, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    threading.Thread(target=kill_with_worker, daemon=True).start()
    status = wait_for(child.pid)
    kill_descendants()
    return status


def prepare_command() -> None:
    """Let the command end with this process, and receive SIGTERM. Runs in the command's process before it begins."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
