"""Seconds, and calls of slurmctld by kind, which submissions of many trials cost on a closed dev cluster.

PYTHONPATH=tests:tests/helpers python -m benchmarks.submission 500 1500
"""

import re
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from devcluster import Cluster
from small_study import CANCEL, PROFILE, STATUS, SUBMIT, run_on, write
from waits import close

COMMANDS = {"submit": SUBMIT, "submit again": SUBMIT, "status": STATUS, "cancel": CANCEL}
OURS = "REQUEST_STATS_INFO"  # what sdiag itself calls


def calls(cluster: Cluster) -> Counter[str]:
    """Return how often slurmctld was called since its start, by kind of call, without those of nodes."""
    statistics = cluster.run("sdiag").stdout.partition("by message type")[2].partition("by user")[0]
    counts = re.findall(r"(REQUEST_\w+)\s*\(\s*\d+\) count:(\d+)", statistics)
    return Counter({kind: int(count) for kind, count in counts if kind != OURS})


def cpu_seconds() -> float:
    """Return the CPU time of all ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(trials: int) -> None:
    """Print the cost of each command for a study of this many trials, one a task."""
    with Cluster(Path(tempfile.mkdtemp(prefix="devcluster-"))) as cluster:
        close(cluster)
        folder = Path(tempfile.mkdtemp(prefix="submission-"))
        write(folder, seeds=trials // 2, profile=PROFILE.replace("task_minutes: 0.2", "task_minutes: 0.0001"))
        for name, words in COMMANDS.items():
            before = calls(cluster)
            began = time.monotonic()
            used = cpu_seconds()
            output = run_on(cluster, folder, *words).stdout
            seconds = f"{time.monotonic() - began:.1f} s, {cpu_seconds() - used:.1f} s of CPU"
            after = calls(cluster) - before
            print(f"{trials} trials, {name}: {seconds}, {after.total()} calls {dict(after)}", flush=True)
            print(f"    {output.splitlines()[0]}")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        measure(int(argument))
