"""A study of tiny models, submitted to a dev cluster: its files, the command, and what came of it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from devcluster import Cluster

from results import store

RECIPE = """
description: Small. For a dev cluster.
config: {data: digits, width: 16, depth: 1, heads: 2, patch: 2, pool: gap, steps: STEPS, batch: 16, lr: 2e-3}
seeds: SEEDS
"""
STUDY = "{question: 'Which?', baseline: {position: 1d}, factors: {position: [none, 1d]}}"
PROFILE = "{partition: main, gpus: 0, cpus: 1, memory: 2G, time: 5, task_minutes: 0.2}"
SUBMIT = ("submit", "s.yaml", "--recipe", "r.yaml", "--profile", "p.yaml")
CANCEL = ("cancel", "s", "--recipe", "r.yaml")
STATUS = ("status", "s", "--recipe", "r.yaml")
Result = tuple[str, Any]  # the weights' sha256, the metrics
Wrap = Callable[[str, str], None]  # replaces a command by a shell script, in which REAL is the command itself
Ablate = Callable[..., "subprocess.CompletedProcess[str]"]  # runs the command


def with_keys(more: str) -> str:
    """Return PROFILE with more keys."""
    return PROFILE.replace("}", f", {more}}}")


def write(folder: Path, steps: int = 400, profile: str = PROFILE, seeds: int = 5) -> None:
    """Write a study of two arms, its recipe and its profile."""
    (folder / "s.yaml").write_text(STUDY)
    (folder / "r.yaml").write_text(RECIPE.replace("STEPS", str(steps)).replace("SEEDS", str(seeds)))
    (folder / "p.yaml").write_text(profile)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ablations.cli", *words]


def launch(cluster: Cluster, folder: Path, *words: str) -> "subprocess.Popen[str]":
    """Start the command in a folder, as a user of the cluster, with the PATH of this process."""
    environment = {**cluster.environment, "PATH": os.environ["PATH"]}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command(*words), cwd=folder, env=environment, **pipes)


def run_on(cluster: Cluster, folder: Path, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run the command in a folder, as a user of the cluster. check: whether its exit status must be 0."""
    process = launch(cluster, folder, *words)
    output, errors = process.communicate(timeout=300)
    assert not check or process.returncode == 0, errors
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def run_here(folder: Path, name: str = "calm", *settings: str) -> dict[str, Result]:
    """Run the study on this machine, undisturbed; return its results."""
    words = command("run", "s.yaml", "--recipe", "r.yaml", "--runs", name, *settings)
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return results(folder / name)


def trials(runs: Path) -> list[store.Trial]:
    return [store.Trial(path) for path in sorted((runs / "trials").glob("*"))]


def results(runs: Path) -> dict[str, Result]:
    """Return the results of the trials that are over."""
    states = {trial.id: trial.state() for trial in trials(runs)}
    return {key: (s.result.weights_sha256, s.result.metrics) for key, s in states.items() if s.result}
