"""Tasks that SLURM holds because it could not start them: released by last jobs, or by `ablate submit`."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from disturbance import resume
from small_study import PROFILE, SUBMIT, command, logs, on, published, results, run_here, write

from slurm.devcluster import Cluster, Settings, until
from slurm.queries.queue import is_held

pytestmark = pytest.mark.slow

STATUS = ("status", *SUBMIT[1:-2])


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


def held(cluster: Cluster) -> bool:
    reasons = cluster.run("squeue", "--noheader", "--array", "--format=%r").stdout.splitlines()
    return any(map(is_held, reasons))


def mend(cluster: Cluster, broken: Path) -> None:
    broken.unlink()
    resume(cluster)


def test_held_tasks_are_released_by_the_submission(tmp_path: Path, fragile: Cluster, broken: Path) -> None:
    """The watching job releases the second task, which is held after the first has ended."""
    profile = PROFILE.replace("time: 5", "time: 1, parallel: 1").replace("0.2", "0.001")
    write(tmp_path, steps=100, profile=profile, seeds=2)
    calm = run_here(tmp_path)
    subprocess.run(command(*SUBMIT), cwd=tmp_path, env=on(fragile.environment), check=True, capture_output=True)
    runs = tmp_path / "runs"
    until(lambda: len(list(runs.glob("submissions/*/arrays/*"))) == 3, "the job that watches", 60)
    broken.touch()
    until(lambda: held(fragile), "a held task", 120)
    mend(fragile, broken)
    until(lambda: len(results(runs)) == 4, f"4 results (logs: {logs(runs)})", 300)
    assert results(runs) == calm
    assert published(runs) == [1] * 4


def test_held_tasks_are_told_and_released_by_submit(tmp_path: Path, fragile: Cluster, broken: Path) -> None:
    """If no task could start, `status` shows it and names `submit`, which releases the tasks."""
    broken.touch()
    write(tmp_path, steps=50, profile=PROFILE, seeds=1)
    said = {"cwd": tmp_path, "env": on(fragile.environment), "check": True, "capture_output": True, "text": True}
    subprocess.run(command(*SUBMIT), **said)
    until(lambda: held(fragile), "a held task", 120)
    status = subprocess.run(command(*STATUS), **{**said, "check": False}).stdout
    assert "held by SLURM" in " ".join(status.split())
    assert "`ablate submit`" in " ".join(status.split())
    mend(fragile, broken)
    again = subprocess.run(command(*SUBMIT), **said).stdout
    assert "0 submitted" in again
    until(lambda: len(results(tmp_path / "runs")) == 2, "2 results", 120)
    assert published(tmp_path / "runs") == [1] * 2
