"""Nodes that cannot start tasks, so that SLURM holds them, or whose hardware breaks every trial."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from devcluster import Cluster, Settings, wait_until
from disturbance import resume
from small_study import PROFILE, STATUS, SUBMIT, Ablate, results, run_here, run_on, trials, with_keys, write
from waits import await_results, published, queued

from results import store
from slurm.queue import is_held

pytestmark = pytest.mark.slow

BROKEN = """
import os

import torch

if os.environ.get("SLURMD_NODENAME") == "node1":

    def broken(*_, **__):
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    torch.nn.functional.cross_entropy = broken
"""


@pytest.fixture
def broken(folder: Path) -> Path:
    """Return a file that makes the prolog of jobs fail, so that SLURM drains their node."""
    return folder.with_name(f"{folder.name}-broken")


@pytest.fixture
def fragile(folder: Path, broken: Path) -> Iterator[Cluster]:
    prolog = folder.with_name(f"{folder.name}-prolog")
    prolog.write_text(f"#!/bin/sh\n[ ! -e {broken} ]\n")
    prolog.chmod(0o755)
    with Cluster(folder, Settings(requeue_delay=8, extra={"Prolog": str(prolog)})) as running:
        yield running
    prolog.unlink()
    broken.unlink(missing_ok=True)


def await_held(cluster: Cluster) -> None:
    wait_until(lambda: any(map(is_held, queued(cluster, "%r", "--array"))), "a held task", 120)


def mend(cluster: Cluster, broken: Path) -> None:
    broken.unlink()
    resume(cluster)


def test_held_tasks_are_released_by_the_submission(tmp_path: Path, fragile: Cluster, broken: Path) -> None:
    """The job that watches releases the task, which is held after its node failed."""
    profile = PROFILE.replace("time: 5", "time: 1, parallel: 1").replace("0.2", "0.001")
    write(tmp_path, steps=100, profile=profile, seeds=2)
    calm = run_here(tmp_path)
    broken.touch()
    run_on(fragile, tmp_path, *SUBMIT)
    runs = tmp_path / "runs"
    await_held(fragile)
    mend(fragile, broken)
    await_results(runs, 4, 300)
    assert results(runs) == calm
    assert published(runs) == [1] * 4


def test_held_tasks_are_told_and_released_by_submit(tmp_path: Path, fragile: Cluster, broken: Path) -> None:
    """If no task could start, `status` shows it and names `submit`, which releases the tasks."""
    broken.touch()
    write(tmp_path, steps=50, seeds=1)
    run_on(fragile, tmp_path, *SUBMIT)
    await_held(fragile)
    status = " ".join(run_on(fragile, tmp_path, *STATUS, check=False).stdout.split())
    assert "held by SLURM" in status
    assert "`ablate submit`" in status
    mend(fragile, broken)
    assert ", 0 submitted" in run_on(fragile, tmp_path, *SUBMIT).stdout
    await_results(tmp_path / "runs", 2)
    assert published(tmp_path / "runs") == [1] * 2


def test_trials_leave_a_broken_node(tmp_path: Path, ablate: Ablate) -> None:
    write(tmp_path, steps=100, profile=with_keys("environment: {ABLATE_PAUSE_SECONDS: 1}"), seeds=2)
    (tmp_path / "broken.py").write_text(BROKEN)
    calm = run_here(tmp_path)
    (tmp_path / "ablate.toml").write_text('plugins = ["broken.py"]')
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_results(runs, 4, 300)
    assert results(runs) == calm
    assert published(runs) == [1] * 4
    failed = [attempt for trial in trials(runs) for attempt in trial.attempts() if (attempt / "failure.json").exists()]
    last = [trial.attempts()[-1] for trial in trials(runs)]
    assert len(failed) >= 2
    for node, attempts in (("node1", failed), ("node2", last)):
        assert {store.read_json(attempt / "env.json")["node"] for attempt in attempts} == {node}
    scripts = [path.read_text() for path in sorted(runs.glob("submissions/*/arrays/*/script.sh"))]
    assert "exclude" not in scripts[0]
    assert any("#SBATCH --exclude=node1" in script for script in scripts[1:])
