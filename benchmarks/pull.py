"""What it costs that many pools pull trials from one run directory: system calls, seconds, doubled attempts.

    python -m benchmarks.pull --folder /tmp/pull-bench

Each puller looks and claims as a pool and its worker do, and trains by sleeping. With `--cached SECONDS` each process
acts as a node of its own, with caches like those of NFS, and sees no other process.
"""

import argparse
import json
import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import time
import uuid
from collections import Counter
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

from ablations.execution import pool as pools
from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.execution.messages import Ended
from ablations.execution.pool import Pool, RunSummary
from ablations.jobs import Job
from benchmarks.node_cache import NodeCache
from results import store
from results.store import lease

ARMS = 10
TRACED = 5  # pullers whose system calls are counted
CALLS = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$")


class Quiet:
    """A display that shows nothing."""

    def show_end(self, job: Job, end: Ended) -> None: ...
    def say(self, text: str) -> None: ...
    def show_running(self, slot: int, job: Job, progress: object) -> None: ...
    def show_compiling(self, slot: int, job: Job) -> None: ...
    def show_idle(self, slot: int) -> None: ...


def jobs(count: int) -> list[Job]:
    """Return `count` jobs, by arm and then by seed."""
    made = []
    for number in range(count):
        config = {"seed": number // ARMS, "device": "cpu", "data": "digits", "steps": 1, "batch": 1}
        made.append(Job(f"{number:012x}", config, f"arm {number % ARMS}", "study"))
    return made


def pull(
    folder: Path, number: int, trials: list[Job], seconds: float, cached: float, ready: Barrier, go: Barrier
) -> None:
    """Pull trials until none is left, and write what it took."""
    if cached:
        NodeCache(cached).install(setattr)
        boot = uuid.uuid4().hex
        socket.gethostname = lambda: f"node{number}"
        lease.boot_id = lambda: boot
    place = Place(folder / "runs", None)
    watch = lease.Watch()
    Place.code = "code"  # type: ignore[assignment]  # no digest of the sources by each puller
    (folder / "pids" / f"{number}").write_text(str(os.getpid()))
    ready.wait()
    go.wait()  # strace is attached between the two
    began, first, lost = time.monotonic(), None, 0
    order = runner.pull_order(trials, f"task {number}")
    pool = Pool(order, place, [pools.Slot(0, {})], Quiet(), lambda job: None, RunSummary(), pulls=True)
    taken = 0
    while pool.has_work:
        pool.worked = time.monotonic()
        if (trial := next(pool.ready_trials(time.monotonic()), None)) is None:
            time.sleep(0.05)
            continue
        attempt = store.claim(store.trial(place.runs, trial.job.id), watch)
        if attempt is None:
            lost += 1
            pool.settle(trial, Ended("held"))
            continue
        if first is None:
            first = time.monotonic() - began
        taken += 1
        with attempt:
            time.sleep(seconds)
            attempt.publish({"status": "finished", "metrics": {}, "train_seconds": 1.0})
        pool.settle(trial, Ended("finished"))
    content = {"first": first, "lost": lost, "taken": taken, "seconds": time.monotonic() - began}
    (folder / "seen" / f"{number}").write_text(json.dumps(content))


def count_calls(path: Path) -> Counter[str]:
    """Return how often each system call appears in the table of `strace -c`."""
    rows = filter(None, map(CALLS.match, path.read_text().splitlines()))
    return Counter({name: int(calls) for calls, name in (row.groups() for row in rows) if name != "total"})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--pullers", type=int, default=100)
    options.add_argument("--trials", type=int, default=1000)
    options.add_argument("--seconds", type=float, default=1.0, help="of a training")
    options.add_argument("--cached", type=float, default=0.0, help="seconds for which a node's caches count")
    asked = options.parse_args()
    folder = asked.folder / uuid.uuid4().hex[:8]
    trials = jobs(asked.trials)
    for job in trials:
        (folder / "runs/trials" / job.id).mkdir(parents=True)
    for name in ("pids", "seen", "calls"):
        (folder / name).mkdir()
    context = multiprocessing.get_context("fork")
    ready, go = (context.Barrier(asked.pullers + 1) for _ in range(2))
    arguments = (trials, asked.seconds, asked.cached, ready, go)
    pullers = [context.Process(target=pull, args=(folder, number, *arguments)) for number in range(asked.pullers)]
    for puller in pullers:
        puller.start()
    ready.wait()
    tracers = []
    for number in range(0, asked.pullers, max(1, asked.pullers // TRACED))[:TRACED]:
        pid = (folder / "pids" / f"{number}").read_text()
        words = ["strace", "-c", "-f", "-p", pid, "-o", str(folder / "calls" / f"{number}")]
        tracers.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
    time.sleep(2.0)
    began = time.monotonic()
    go.wait()
    for process in pullers:
        process.join()
    wall = time.monotonic() - began
    for tracer in tracers:
        tracer.wait()
    seen = [json.loads(path.read_text()) for path in sorted((folder / "seen").iterdir())]
    first = sorted(one["first"] for one in seen if one["first"] is not None)
    attempts = Counter(len(store.Trial(path).attempts()) for path in (folder / "runs/trials").iterdir())
    published = sum(1 for _ in (folder / "runs/trials").glob("*/attempts/*/result.json"))
    calls = [count_calls(path) for path in (folder / "calls").iterdir()]
    asked_for = f"{asked.pullers} pullers, {asked.trials} trials of {asked.seconds:g} s"
    print(f"{asked_for}, caches of {asked.cached:g} s")
    counted = f"trials by attempts {dict(sorted(attempts.items()))}; lost claims {sum(one['lost'] for one in seen)}"
    print(f"  trained twice {published - asked.trials}; {counted}")
    when = f"{median(first):.2f} s (median), {first[-1]:.2f} s (last of {len(first)})"
    print(f"  first claim after {when}; all over after {wall:.1f} s")
    if calls:
        total = sum(calls, Counter[str]())
        named = ", ".join(f"{name} {number / len(calls):,.0f}" for name, number in total.most_common(8))
        print(f"  system calls of a puller {total.total() / len(calls):,.0f}: {named}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
