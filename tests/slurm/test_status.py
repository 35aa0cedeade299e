"""What `ablate status` tells on a real SLURM: disk first, queue second, accounting third, and unknown is unknown."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from disturbance import processes

from ablations.execution.faults import BUG
from ablations.execution.retry import advice
from ablations.reporting import status
from slurm.devcluster import Cluster, until

BROKEN = """
from vitcore.model.position import POSITION, Learned1D

class Broken(Learned1D):
    def tokens(self, x, layer, grid):
        return x if x.is_meta else 1 / 0

POSITION["broken"] = Broken
"""
STUDY = "{question: 'Which?', baseline: {position: 1d}, factors: {position: [1d, none]}}"
RECIPE = """
description: Small. For a dev cluster.
config: {data: digits, width: 16, depth: 1, heads: 2, patch: 2, pool: gap, steps: STEPS, batch: 16, lr: 2e-3}
seeds: 3
"""
PROFILE = "{partition: main, gpus: 0, cpus: 1, memory: 2G, time: 5, task_minutes: 0.2, parallel: 2}"
Ablate = Callable[..., str]
ANSWER_SECONDS = 30  # 15 are promised, and printed; on a machine that is busy with other tests twice that


@pytest.fixture
def ablate(tmp_path: Path, cluster: Cluster) -> Iterator[Ablate]:
    """The command in a folder with a study of six trials, on the cluster; its standard output."""
    (tmp_path / "s.yaml").write_text(STUDY)
    (tmp_path / "p.yaml").write_text(PROFILE)
    recipe(tmp_path, 20_000)

    def call(*words: str, path: str = os.environ["PATH"]) -> str:
        command = [sys.executable, "-m", "ablations.cli", *words]
        environment = cluster.environment | {"PATH": path}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield call
    for submission in (tmp_path / "runs/submissions").glob("[0-9]*"):  # or its jobs see to it that others follow
        (submission / "cancelled.json").touch()


def recipe(folder: Path, steps: int) -> None:
    (folder / "r.yaml").write_text(RECIPE.replace("STEPS", str(steps)))


SUBMIT = ("submit", "s.yaml", "--recipe", "r.yaml", "--profile", "p.yaml")


def viewed(ablate: Ablate, **environment: str) -> dict[str, Any]:
    view: dict[str, Any] = json.loads(ablate("status", "--json", **environment))
    return view


def counts(view: dict[str, Any]) -> dict[str, int]:
    kinds = ("finished", "diverged", "running", "queued", "unknown", "interrupted", "failed", "missing")
    return {kind: view[kind] for kind in kinds if view[kind]}


def close(cluster: Cluster) -> None:
    """Nothing starts any more; what runs goes on."""
    cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")


def test_running_queued_and_ended_trials_are_told_apart(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    """Running with step and accuracy, queued with SLURM's reason, and of a killed task what became of it and where."""
    ablate(*SUBMIT)
    logged = (tmp_path / "runs/trials").glob
    until(lambda: len([*logged("*/attempts/*/metrics.jsonl")]) == 2, "two running trials", 120)
    close(cluster)
    share = next(process.parent for process in processes(tmp_path / "runs") if process.kind == "worker")
    os.kill(share, signal.SIGKILL)
    until(lambda: counts(viewed(ablate)) == {"running": 1, "queued": 4, "interrupted": 1}, "the end of a task", 60)
    until(lambda: [arm["ended"] for arm in viewed(ablate)["arms"] if arm["ended"]], "its accounting", 60)
    view = viewed(ablate)
    (running,) = (one for arm in view["arms"] for one in arm["now_running"])
    assert 0 < running["step"] < running["steps"] == 20_000
    assert 0 <= running["accuracy"] <= 1
    (ended,) = (one for arm in view["arms"] for one in arm["ended"])
    assert ended["job"] in ("FAILED on node1", "FAILED on node2")
    assert ended["followed"]
    assert {one["reason"] for arm in view["arms"] for one in arm["now_queued"]} == {"PartitionDown"}
    shown = ablate("status")
    print(shown)
    assert "queued    4 trials: pending (PartitionDown)" in shown
    assert f"ended     1 trial: {ended['job']}" in shown
    assert "the submission's last job resubmits these" in shown
    assert "\x1b" not in shown  # no colours off a terminal


def test_trials_whose_waiting_jobs_were_cancelled_say_by_whom(ablate: Ablate, cluster: Cluster) -> None:
    """scancel by hand, by `ablate cancel`: the trials are not begun, and the accounting or the disk says why."""
    close(cluster)
    ablate(*SUBMIT)
    assert counts(viewed(ablate)) == {"queued": 6}
    cluster.clear()
    until(lambda: "CANCELLED by 0" in ablate("status"), "the accounting", 30)
    assert counts(viewed(ablate)) == {"missing": 6}
    assert "the same `ablate submit` again" in ablate("status")
    ablate(*SUBMIT)
    ablate("cancel", "s@r")
    until(lambda: counts(viewed(ablate)) == {"missing": 6}, "an empty queue", 30)
    assert "6 trials: cancelled by `ablate cancel`" in ablate("status")


def test_failures_are_grouped_by_cause_with_the_command_that_helps(ablate: Ablate, tmp_path: Path) -> None:
    """Three trials of one arm fail alike: once the cause, its seeds, the commands; and logs has the traceback."""
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "ablate.toml").write_text('plugins = ["broken.py"]')
    (tmp_path / "s.yaml").write_text(STUDY.replace("none", "broken"))
    recipe(tmp_path, 100)
    ablate(*SUBMIT)
    until(lambda: counts(viewed(ablate)) == {"finished": 3, "failed": 3}, "the end of six trials", 180)
    shown = ablate("status")
    assert "failed    3 trials: ZeroDivisionError: division by zero" in shown
    assert "position=broken seeds 0, 1, 2" in shown
    assert " ".join(shown.split()).count(advice(BUG, "s@r")) == 1
    assert ablate("logs", "s@r", "--failed").count("ZeroDivisionError: division by zero") == 3
    assert "3 trials may be run again" in ablate("retry", "s@r")


def timed(ablate: Ablate, what: str, **environment: str) -> dict[str, Any]:
    """The view, which must come in time."""
    began = time.monotonic()
    view = viewed(ablate, **environment)
    print(f"{what}: status took {time.monotonic() - began:.1f} s")
    assert time.monotonic() - began < ANSWER_SECONDS
    return view


def test_with_slurmdbd_dead_the_accounting_is_unknown(ablate: Ablate, cluster: Cluster) -> None:
    """The queue is told as ever; of trials that left it nothing is said but that the accounting is unknown."""
    close(cluster)
    ablate(*SUBMIT)
    cluster.freeze("slurmdbd")
    view = timed(ablate, "slurmdbd frozen, queue full")
    assert (counts(view), view["accounting"]) == ({"queued": 6}, "")
    cluster.clear()
    for silence in ("frozen", "killed"):
        view = timed(ablate, f"slurmdbd {silence}, queue empty")
        assert (counts(view), view["slurm"]) == ({"missing": 6}, "")
        assert view["accounting"] == "accounting unknown: sacct does not answer"
        cluster.kill("slurmdbd")


def test_with_slurmctld_dead_submitted_trials_are_unknown(ablate: Ablate, cluster: Cluster) -> None:
    """Neither queued nor missing: unknown, since when; never an empty queue."""
    close(cluster)
    ablate(*SUBMIT)
    cluster.freeze("slurmctld")
    for silence in ("frozen", "killed"):
        view = timed(ablate, f"slurmctld {silence}")
        assert counts(view) == {"unknown": 6}
        assert "SLURM does not answer" in view["slurm"]
        assert "what is queued is unknown (since " in view["slurm"]
        cluster.kill("slurmctld")


def test_without_slurm_the_disk_is_told(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    """On a machine that only sees the directory: finished is finished, what was submitted and is not over unknown."""
    close(cluster)
    recipe(tmp_path, 20)
    ablate(*SUBMIT)
    cluster.clear()
    ablate("run", "s.yaml", "--recipe", "r.yaml", "--arm", "position=1d")
    view = timed(ablate, "no SLURM", path="/nowhere")
    assert counts(view) == {"finished": 3, "unknown": 3}
    assert view["slurm"].startswith("no SLURM on this machine: what is queued is unknown")


SHIM = """#!/bin/sh
echo "$0 $*" >> {calls}
exec {real} "$@"
"""


def recording(folder: Path) -> tuple[str, Callable[[], list[str]]]:
    """A PATH on which SLURM's commands note that they were called before they are run; and the notes."""
    calls = folder / "calls"
    (folder / "shims").mkdir()
    for name in ("squeue", "sacct", "scontrol", "sinfo", "sacctmgr", "sbatch"):
        shim = folder / "shims" / name
        real = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        shim.write_text(SHIM.format(calls=calls, real=real))
        shim.chmod(0o755)
    calls.touch()
    return f"{folder / 'shims'}:{os.environ['PATH']}", lambda: calls.read_text().split("\n")[:-1]


def test_a_minute_later_slurm_is_asked_again(tmp_path: Path) -> None:
    """By the reader's own clock: not before 60 s, at 60 s."""
    clock = [0.0]
    asker = status.RateLimitedAsker(tmp_path, clock=lambda: clock[0])
    first = asker()
    for now, again in ((59.9, False), (60.0, True), (119.9, False), (120.0, True)):
        clock[0] = now
        second = asker()
        assert (second is not first) == again
        first = second


def test_status_asks_slurm_nothing_where_nothing_was_submitted(tmp_path: Path, ablate: Ablate) -> None:
    """A local study is told from the disk alone."""
    path, calls = recording(tmp_path)
    recipe(tmp_path, 20)
    ablate("run", "s.yaml", "--recipe", "r.yaml", "--seeds", "1")
    assert counts(viewed(ablate, path=path)) == {"finished": 2}
    assert calls() == []
