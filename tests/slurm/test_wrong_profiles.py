"""Profiles that a real SLURM would not run: one line that names the key, and nothing submitted or written."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import called
from small_study import SUBMIT, write
from waits import await_empty_queue, queued

from ablations.cluster import submit as submitting
from slurm.devcluster import Cluster

GOOD = {"partition": "main", "gpus": 0, "cpus": 1, "memory": "2G", "time": 5}
WRONG: list[tuple[dict[str, Any], str, str]] = [  # changed keys, the beginning of the message, and a later part
    ({"partition": "nope"}, "partition=nope: SLURM says 'invalid partition specified: nope", "there are main"),
    ({"account": "nobody"}, "account=nobody: SLURM says 'Invalid account", "yours are lab"),
    ({"qos": "platinum"}, "qos=platinum: ", "normal"),
    ({"gpus": 1, "gpu_type": "h100"}, "gpu_type=h100: SLURM says", "a node has 4 GPUs of type fake"),
    ({"gpus": 99}, "gpus=99: SLURM says", "a node has 4 GPUs of type fake"),
    ({"cpus": 999}, "cpus=999: SLURM says", "a node has at most 8"),
    ({"memory": "900G"}, "memory=900G: SLURM says", "a node has at most 16000M"),
    ({"time": "3-00:00:00"}, "time=3-00:00:00: SLURM says", "allows is 1-00:00:00"),
    ({"constraint": "infiniband"}, "constraint=infiniband: SLURM says", "features are dev"),
    ({"extra": {"nodelist": "node99"}}, "extra.nodelist=node99: SLURM says", "node99"),
    ({"extra": {"reservation": "tomorrow"}}, "extra.reservation=tomorrow: SLURM says", "reservation"),
    ({"cpu": 1}, "unknown key 'cpu'", "did you mean 'cpus'?"),
]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def submit(tmp_path: Path, here: Cluster, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Call `ablate` with a profile: GOOD with changes; by default `submit`."""
    monkeypatch.chdir(tmp_path)

    def call(changes: dict[str, Any], *words: str) -> tuple[int, str, str]:
        write(tmp_path, steps=20, seeds=1, profile=json.dumps(GOOD | changes))
        return called(monkeypatch, *(words or SUBMIT))

    return call


def nothing_happened(folder: Path, cluster: Cluster) -> bool:
    return not (folder / "runs").exists() and not queued(cluster)


def test_every_wrong_setting_is_named_and_nothing_is_submitted(
    tmp_path: Path, cluster: Cluster, submit: Command
) -> None:
    for change, start, rest in WRONG:
        status, output, errors = submit(change)
        print(errors, end="")
        assert (status, output, errors.count("\n")) == (2, "", 1), errors
        assert errors.removeprefix("ablate: ").removeprefix("p.yaml: ").startswith(start)
        assert rest in errors
        assert nothing_happened(tmp_path, cluster)


def test_what_sbatch_refuses_in_the_end_leaves_no_submission(tmp_path: Path, cluster: Cluster, submit: Command) -> None:
    """`--test-only` names no key, and the nodes' state could be the reason, so sbatch decides."""
    status, output, errors = submit({"extra": {"exclude": "node[1-2]"}})
    assert (status, output, errors.count("\n")) == (2, "", 2)
    assert "Batch job submission failed: Requested node configuration is not available" in errors
    assert not list((tmp_path / "runs/submissions").glob("[0-9]*"))
    assert not queued(cluster)


@pytest.fixture
def drained(cluster: Cluster) -> Iterator[None]:
    """Drain all nodes, as before maintenance: sbatch queues jobs, and `--test-only` refuses them."""
    cluster.run("scontrol", "update", "NodeName=ALL", "State=DRAIN", "Reason=maintenance")
    yield
    cluster.clear()
    cluster.run("scontrol", "update", "NodeName=ALL", "State=RESUME")
    cluster.wait()


def test_profile_of_drained_nodes_is_submitted_with_a_warning(
    tmp_path: Path, cluster: Cluster, submit: Command, drained: None
) -> None:
    status, output, errors = submit({})
    assert (status, errors.count("\n")) == (0, 1), errors
    assert "2 submitted" in output
    assert "'Requested node configuration is not available'; nodes: 2 drained" in errors
    assert not any(f"{key}=" in errors for key in GOOD)


def test_check_of_drained_nodes_warns_before_it_waits(
    cluster: Cluster, submit: Command, drained: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "answer", lambda *_: {"gpu": "not tried"})
    status, output, errors = submit({}, "profile", "check", "p.yaml")
    assert (status, output, errors.count("\n")) == (1, "FAILED  gpu: not tried\n", 1)
    assert "'Requested node configuration is not available'; nodes: 2 drained" in errors
    await_empty_queue(cluster)


def test_wrong_setting_is_named_where_the_nodes_are_drained_too(
    tmp_path: Path, cluster: Cluster, submit: Command, drained: None
) -> None:
    """Settings that no node satisfies, drained or not, and settings that SLURM names."""
    for change, start, _ in WRONG[:9]:
        status, output, errors = submit(change)
        assert (status, output, errors.count("\n")) == (2, "", 1), errors
        assert errors.removeprefix("ablate: ").startswith(start.partition(":")[0]), errors
        assert nothing_happened(tmp_path, cluster)
