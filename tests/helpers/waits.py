"""Processes that end with their test; a dev cluster's queue; waits for results, a report or an empty queue."""

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from devcluster import Cluster, wait_until
from small_study import results, trials

MARK = "STARTED_BY_TEST"  # an environment variable, which children inherit and a new session keeps
PATIENCE = 900.0  # seconds to wait for an event, on a machine however busy; it only bounds a hang


@contextmanager
def started(
    words: Sequence[str], env: Mapping[str, str] = os.environ, **options: Any
) -> "Iterator[subprocess.Popen[str]]":
    """Yield a process with pipes for its output as text; kill it and all that it started when the block ends."""
    mark = uuid.uuid4().hex
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, env={**env, MARK: mark}, **pipes | options)
    try:
        yield process
    finally:
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()


def marked(mark: str) -> list[int]:
    """Return the processes that `started` with a mark, and their descendants."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is of another user
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def left(mark: str) -> list[int]:
    """Return the processes with a mark that are not this process or its worker threads."""
    return [pid for pid in marked(mark) if pid != os.getpid()]


def published(runs: Path) -> list[int]:
    """Return the number of attempts of each trial that reached its end: 1, unless work was done twice."""
    return [sum(map(reached_end, trial.attempts())) for trial in trials(runs)]


def reached_end(attempt: Path) -> bool:
    """Return whether an attempt has a result, and was not killed before it linked this result to its trial."""
    result = attempt / "result.json"
    return result.exists() and (result.stat().st_nlink > 1 or not (attempt / "lease.json").exists())


def logs(runs: Path) -> str:
    """Return the ends of the newest logs, for the message of a test that fails."""
    found = sorted(runs.glob("submissions/*/arrays/*/logs/*"), key=lambda path: path.stat().st_mtime)
    return " | ".join(path.read_text()[-300:] for path in found[-4:])


def queued(cluster: Cluster, form: str = "%i %T", *options: str) -> list[str]:
    """Return a line of the queue for each job, or for each array of waiting jobs."""
    return cluster.run("squeue", "--noheader", f"--format={form}", *options).stdout.splitlines()


def close(cluster: Cluster) -> None:
    """Let no further job start. The fixture `cluster` undoes it at the end of a test."""
    cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")


def reopen(cluster: Cluster) -> None:
    cluster.run("scontrol", "update", "PartitionName=main", "State=UP")


def await_empty_queue(cluster: Cluster, seconds: float = 60) -> None:
    wait_until(lambda: not queued(cluster), "an empty queue", seconds)


def await_results(runs: Path, number: int, seconds: float = 240) -> None:
    """Wait until `number` trials are over."""
    try:
        wait_until(lambda: len(results(runs)) == number, f"{number} results", seconds)
    except TimeoutError as error:
        raise TimeoutError(f"{error} (logs: {logs(runs)})") from None


def await_report(runs: Path, seconds: float = 200) -> None:
    wait_until(lambda: (runs / "report.html").exists(), f"the report of {runs}", seconds)


def await_training(runs: Path) -> None:
    begun = "trials/*/attempts/0001/metrics.jsonl"
    wait_until(lambda: any(runs.glob(begun)), f"a training (logs: {logs(runs)})", 120)
