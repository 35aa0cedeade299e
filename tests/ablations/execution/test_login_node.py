"""Login nodes: sbatch exists and this process is in no job, so local training uses two processes."""

import os
from pathlib import Path

import pytest
from in_process import called

from ablations.execution import runner

RECIPE = "{description: d, config: {data: digits, width: 16, depth: 1, heads: 2, patch: 2, steps: 2, batch: 16}}"
STUDY = "{question: q, baseline: {position: 1d}, factors: {position: [none, 1d]}}"


@pytest.mark.parametrize(("job", "workers"), [("", 2), ("1", 4)])
def test_a_login_node_gets_two_processes_and_is_told_why(
    job: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--jobs counts only inside a job, which SLURM_JOB_ID shows; a message names `submit`."""
    for name, text in (("s.yaml", STUDY), ("r.yaml", RECIPE), ("sbatch", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", job)
    asked: list[int] = []

    def run(jobs: object, place: object, display: object, workers: int, on_over: object) -> runner.RunSummary:
        asked.append(workers)
        return runner.RunSummary()

    monkeypatch.setattr(runner, "run", run)
    errors = called(monkeypatch, "run", "s.yaml", "--recipe", "r.yaml", "--seeds", "2", "--jobs", "4")[2]
    assert asked == [workers]
    said = "(there is sbatch, and no allocation): 2 trials at a time instead of 4; for more: `ablate submit`"
    assert (said in errors) == (workers == 2)
