"""Login nodes: where jobs can be submitted and this process is in none, local training keeps to two processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RECIPE = """
description: Small. For tests.
config: {data: digits, width: 16, depth: 1, heads: 2, patch: 2, pool: gap, steps: 1000000, batch: 16, lr: 2e-3}
seeds: 2
"""
STUDY = "{question: 'Which?', baseline: {position: 1d}, factors: {position: [none, 1d]}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study of four trials without end, and a command called sbatch."""
    (tmp_path / "s.yaml").write_text(STUDY)
    (tmp_path / "r.yaml").write_text(RECIPE)
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    return tmp_path


def workers(folder: Path, **environment: str) -> Iterator[int]:
    """How many workers a run with --jobs 4 has, looked at until it is told to stop; then its words, in `said`."""
    known = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
    path = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "ablations.cli", "run", "s.yaml", "--recipe", "r.yaml", "--jobs", "4"]
    with open(folder / "said", "w") as said:
        process = subprocess.Popen(command, cwd=folder, env=known | path | environment, stdout=said, stderr=said)
    try:
        while process.poll() is None:
            yield len(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


@pytest.mark.slow
def test_a_login_node_gets_two_processes_and_is_told_why(folder: Path) -> None:
    """Whatever --jobs says; the line names submit and allocations."""
    for number in workers(folder):
        assert number <= 2
        if number == 2:
            break
    said = (folder / "said").read_text()
    assert "a login node (there is sbatch, and no allocation): 2 trials at a time instead of 4" in said
    assert "ablate submit" in said


@pytest.mark.slow
def test_inside_an_allocation_jobs_are_what_was_asked(folder: Path) -> None:
    """SLURM_JOB_ID says that the machine is ours."""
    assert any(number == 4 for number in workers(folder, SLURM_JOB_ID="1"))
    assert "login node" not in (folder / "said").read_text()
