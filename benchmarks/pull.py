"""What it costs that many pools pull trials from one run directory: system calls, seconds, doubled attempts.

    python -m benchmarks.pull --folder /tmp/pull-bench

Each puller is a process without torch. It looks and claims as a pool and its worker do, and trains by sleeping. With
`--cached SECONDS` each process acts as a node of its own, with caches like those of NFS, and sees no other process.
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

CALLS = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$")


class Quiet:
    """A display that shows nothing."""

    def show_end(self, job: Job, end: Ended) -> None: ...
    def say(self, text: str) -> None: ...
    def show_running(self, slot: int, job: Job, progress: object) -> None: ...
    def show_compiling(self, slot: int, job: Job) -> None: ...
    def show_idle(self, slot: int) -> None: ...


def jobs(count: int, arms: int) -> list[Job]:
    """Return `count` jobs of `arms` arms, by arm and then by seed."""
    found = []
    for number in range(count):
        config = {"seed": number // arms, "device": "cpu", "data": "digits", "steps": 1, "batch": 1}
        found.append(Job(f"{number:012x}", config, f"arm {number % arms}", "study"))
    return found


def pull(
    folder: Path, number: int, some: list[Job], seconds: float, cached: float, ready: Barrier, go: Barrier
) -> None:
    """Pull trials until none is left, and write what it took."""
    if cached:
        NodeCache(cached).install(setattr)
        boot = uuid.uuid4().hex
        socket.gethostname = lambda: f"node{number}"
        lease.boot_id = lambda: boot
    place, summary, watch = Place(folder / "runs", None), RunSummary(), lease.Watch()
    Place.code = "code"  # type: ignore[assignment]  # no digest of the sources by each puller
    (folder / "pids" / f"{number}").write_text(str(os.getpid()))
    ready.wait()
    go.wait()  # strace is attached between the two
    began, first, lost = time.monotonic(), None, 0
    slot = pools.Slot(0, {})
    made = Pool(
        runner.pull_order(some, f"task {number}"), place, [slot], Quiet(), lambda job: None, summary, pulls=True
    )
    taken = 0
    while made.has_work:
        made.worked = time.monotonic()
        if (trial := next(made.ready_trials(time.monotonic()), None)) is None:
            time.sleep(0.05)
            continue
        attempt = store.claim(store.trial(place.runs, trial.job.id), watch)
        if attempt is None:
            lost += 1
            made.settle(trial, Ended("held"))
            continue
        first = first if first is not None else time.monotonic() - began
        taken += 1
        with attempt:
            time.sleep(seconds)
            attempt.publish({"status": "finished", "metrics": {}, "train_seconds": 1.0})
        made.settle(trial, Ended("finished"))
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
    options.add_argument("--arms", type=int, default=10)
    options.add_argument("--seconds", type=float, default=1.0, help="of a training")
    options.add_argument("--cached", type=float, default=0.0, help="seconds for which a node's caches count")
    options.add_argument("--spread", type=int, default=runner.SPREAD)
    options.add_argument("--traced", type=int, default=5, help="pullers whose system calls are counted")
    asked = options.parse_args()
    runner.SPREAD = asked.spread
    folder = asked.folder / uuid.uuid4().hex[:8]
    some = jobs(asked.trials, asked.arms)
    for job in some:
        (folder / "runs/trials" / job.id).mkdir(parents=True)
    for name in ("pids", "seen", "calls"):
        (folder / name).mkdir()
    context = multiprocessing.get_context("fork")
    ready, go = (context.Barrier(asked.pullers + 1) for _ in range(2))
    arguments = (some, asked.seconds, asked.cached, ready, go)
    pullers = [context.Process(target=pull, args=(folder, number, *arguments)) for number in range(asked.pullers)]
    for puller in pullers:
        puller.start()
    ready.wait()
    tracers = []
    for number in range(0, asked.pullers, max(1, asked.pullers // max(1, asked.traced)))[: asked.traced]:
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
    print(f"{asked_for}, caches of {asked.cached:g} s, spread {asked.spread}")
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
