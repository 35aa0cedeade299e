"""Run directories with hostile names on a real SLURM: refused in one line, or used as they are."""

import os
from pathlib import Path

import pytest
from hostile import CANARY, TEXTS
from waits import await_empty_queue

from slurm.devcluster import Cluster
from slurm.profiles.profile import Profile, submitit_parameters
from slurm.submission import arrays

NAMES = [text for text in TEXTS if "/" not in text and "\0" not in text and text not in ("", ".", "..")]
CHEAP = Profile(partition="main", gpus=0, memory="100M", time=1)


def refused(folder: Path, tag: str) -> str:
    """Submit a task that makes `folder`/ran; return why it was refused, or ""."""
    array = folder / "submissions" / "0001"
    tasks = arrays.Tasks("os:mkdir", [str(folder / "ran")], [[]])
    try:
        arrays.send(array, tag, tasks, submitit_parameters(CHEAP, tag), Path(__file__).parents[2])
    except ValueError as error:
        return str(error)
    return ""


def test_tasks_run_in_directories_of_hostile_names(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each directory that is not refused, the task runs and leaves its log, and nothing else is made."""
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    monkeypatch.chdir(tmp_path)
    short = [name for name in NAMES if len(name) < 200]
    why = {name: refused(tmp_path / name, f"ablate:hostile:{number:04d}") for number, name in enumerate(short)}
    assert all(line.isprintable() and "SLURM needs a run directory without" in line for line in why.values() if line)
    taken = [name for name, line in why.items() if not line]
    assert len(taken) >= 40
    assert not [name for name in taken if "%" in name or "\n" in name]
    await_empty_queue(cluster, 300)
    assert sorted(os.listdir(tmp_path)) == sorted(taken)
    for name in taken:
        folder = tmp_path / name
        assert sorted(os.listdir(folder)) == ["ran", "submissions"], name
        made = {path.name for path in (folder / "submissions" / "0001").iterdir()}
        assert made == {"intent.json", "script.sh", "ack.json", "logs"}
        assert list((folder / "submissions" / "0001" / "logs").glob("*_0_0_log.out")), name
    assert not list(cluster.folder.rglob(CANARY))
