"""A node whose hardware breaks every trial: the study finishes on the other node."""

from pathlib import Path

import pytest
from small_study import PROFILE, SUBMIT, Ablate, published, results, run_here, trials, write
from waits import await_results

from results import store

pytestmark = pytest.mark.slow

BROKEN = """
import os

import torch

if os.environ.get("SLURMD_NODENAME") == "node1":

    def broken(*_, **__):
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    torch.nn.functional.cross_entropy = broken
"""


def test_trials_leave_a_broken_node(tmp_path: Path, ablate: Ablate) -> None:
    write(tmp_path, steps=100, profile=PROFILE.replace("}", ", environment: {ABLATE_PAUSE_SECONDS: 1}}"), seeds=2)
    (tmp_path / "broken.py").write_text(BROKEN)
    calm = run_here(tmp_path)
    (tmp_path / "ablate.toml").write_text('plugins = ["broken.py"]')
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_results(runs, 4, 300)
    assert results(runs) == calm
    assert published(runs) == [1] * 4
    nodes = {store.read_json(trial.attempts()[-1] / "env.json")["node"] for trial in trials(runs)}
    assert nodes == {"node2"}
    broken = [attempt for trial in trials(runs) for attempt in trial.attempts() if (attempt / "failure.json").exists()]
    assert len(broken) >= 2
    assert {store.read_json(attempt / "env.json")["node"] for attempt in broken} == {"node1"}
    scripts = [path.read_text() for path in sorted(runs.glob("submissions/*/arrays/*/script.sh"))]
    assert "exclude" not in scripts[0]
    assert any("#SBATCH --exclude=node1" in script for script in scripts[1:])
