"""Profiles that a real SLURM would not run: one line that names the key, and nothing submitted or written."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from in_process import called

from ablations.cluster import submit as submitting
from slurm.devcluster import Cluster

STUDY = "{question: 'Which?', baseline: {position: 1d}, factors: {position: [1d, none]}}"
RECIPE = """
description: Small. For a dev cluster.
config: {data: digits, width: 16, depth: 1, heads: 2, patch: 2, pool: gap, steps: 20, batch: 16, lr: 2e-3}
seeds: 1
"""
GOOD = {"partition": "main", "gpus": "0", "cpus": "1", "memory": "2G", "time": "5"}
WRONG = [  # what differs from the good one; the line
    ({"partition": "nope"}, "partition=nope: SLURM says 'invalid partition specified: nope", "there are main"),
    ({"account": "nobody"}, "account=nobody: SLURM says 'Invalid account", "yours are lab"),
    ({"qos": "platinum"}, "qos=platinum: ", "normal"),
    ({"gpus": "1", "gpu_type": "h100"}, "gpu_type=h100: SLURM says", "a node has 4 GPUs of type fake"),
    ({"gpus": "99"}, "gpus=99: SLURM says", "a node has 4 GPUs of type fake"),
    ({"cpus": "999"}, "cpus=999: SLURM says", "a node has at most 8"),
    ({"memory": "900G"}, "memory=900G: SLURM says", "a node has at most 16000M"),
    ({"time": "3-00:00:00"}, "time=3-00:00:00: SLURM says", "allows is 1-00:00:00"),
    ({"constraint": "infiniband"}, "constraint=infiniband: SLURM says", "features are dev"),
    ({"extra": "{nodelist: node99}"}, "extra.nodelist=node99: SLURM says", "node99"),
    ({"extra": "{reservation: tomorrow}"}, "extra.reservation=tomorrow: SLURM says", "reservation"),
    ({"extra": "{wrap: 'touch x'}"}, "unknown option 'extra.wrap'", "one of exclude"),
    ({"memory": "2GB"}, "memory=2GB: ", "as in 16G"),
    ({"cpu": "1"}, "unknown key 'cpu'", "did you mean 'cpus'?"),
]
Submit = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def submit(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """`ablate submit` with a profile of this text: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    (tmp_path / "s.yaml").write_text(STUDY)
    (tmp_path / "r.yaml").write_text(RECIPE)

    def call(profile: str) -> tuple[int, str, str]:
        (tmp_path / "p.yaml").write_text(profile)
        return called(monkeypatch, "submit", "s.yaml", "--recipe", "r.yaml", "--profile", "p.yaml")

    return call


def nothing_happened(folder: Path, cluster: Cluster) -> bool:
    return not (folder / "runs").exists() and not cluster.run("squeue", "--noheader").stdout


def test_every_wrong_setting_is_named_and_nothing_is_submitted(
    tmp_path: Path, cluster: Cluster, submit: Submit
) -> None:
    """Each in turn: status 2, one line with the key, its value, SLURM's reason and what there is instead."""
    for change, start, rest in WRONG:
        settings = GOOD | change
        status, output, errors = submit("".join(f"{key}: {value}\n" for key, value in settings.items()))
        print(errors, end="")
        assert (status, output, errors.count("\n")) == (2, "", 1), errors
        assert errors.removeprefix("ablate: ").removeprefix("p.yaml: ").startswith(start)
        assert rest in errors
        assert nothing_happened(tmp_path, cluster)


def test_a_profile_that_is_no_mapping_says_so(tmp_path: Path, cluster: Cluster, submit: Submit) -> None:
    """A list, a word, nothing at all."""
    for text in ("[main]", "main", ""):
        assert submit(text) == (2, "", "ablate: p.yaml: is not a mapping of keys to values\n")
    assert nothing_happened(tmp_path, cluster)


def test_the_good_profile_is_taken(tmp_path: Path, cluster: Cluster, submit: Submit) -> None:
    """The others differ from it in what is wrong alone."""
    cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")
    status, output, errors = submit("".join(f"{key}: {value}\n" for key, value in GOOD.items()))
    assert (status, errors) == (0, "")
    assert "2 submitted" in output
    for submission in (tmp_path / "runs/submissions").glob("[0-9]*"):
        (submission / "cancelled.json").touch()


def test_what_sbatch_refuses_in_the_end_leaves_no_submission(tmp_path: Path, cluster: Cluster, submit: Submit) -> None:
    """`--test-only` names no key and could mean the nodes' state: sbatch has the last word."""
    settings = GOOD | {"extra": "{exclude: 'node[1-2]'}"}
    status, output, errors = submit("".join(f"{key}: {value}\n" for key, value in settings.items()))
    assert (status, output, errors.count("\n")) == (2, "", 2)
    assert "Batch job submission failed: Requested node configuration is not available" in errors
    assert not list((tmp_path / "runs/submissions").glob("[0-9]*"))
    assert not cluster.run("squeue", "--noheader").stdout


@pytest.fixture
def drained(cluster: Cluster) -> Iterator[None]:
    """All nodes are, as before maintenance: sbatch queues jobs, and `--test-only` refuses them."""
    cluster.run("scontrol", "update", "NodeName=ALL", "State=DRAIN", "Reason=maintenance")
    yield
    cluster.clear()
    cluster.run("scontrol", "update", "NodeName=ALL", "State=RESUME")
    cluster.wait()


def test_profile_of_drained_nodes_is_submitted_with_a_warning(
    tmp_path: Path, cluster: Cluster, submit: Submit, drained: None
) -> None:
    """SLURM's words and the nodes' state, and no key is blamed."""
    status, output, errors = submit("".join(f"{key}: {value}\n" for key, value in GOOD.items()))
    assert (status, errors.count("\n")) == (0, 1), errors
    assert "2 submitted" in output
    assert "'Requested node configuration is not available'; nodes: 2 drained" in errors
    assert not any(f"{key}=" in errors for key in GOOD)


def test_check_of_drained_nodes_warns_before_it_waits(
    tmp_path: Path, submit: Submit, drained: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning of `submit`, printed before the job is handed over."""

    def no_wait(*_: object) -> dict[str, str]:
        return {"gpu": "not tried"}

    monkeypatch.setattr(submitting, "answer", no_wait)
    (tmp_path / "p.yaml").write_text("".join(f"{key}: {value}\n" for key, value in GOOD.items()))
    status, output, errors = called(monkeypatch, "profile", "check", "p.yaml")
    assert (status, output, errors.count("\n")) == (1, "FAILED  gpu: not tried\n", 1)
    assert "'Requested node configuration is not available'; nodes: 2 drained" in errors


def test_wrong_setting_is_named_where_the_nodes_are_drained_too(
    tmp_path: Path, cluster: Cluster, submit: Submit, drained: None
) -> None:
    """What no node has, drained or not, and what SLURM names itself."""
    for change, start, _ in WRONG[:9]:
        settings = GOOD | change
        status, output, errors = submit("".join(f"{key}: {value}\n" for key, value in settings.items()))
        assert (status, output, errors.count("\n")) == (2, "", 1), errors
        assert errors.removeprefix("ablate: ").startswith(start.partition(":")[0]), errors
        assert nothing_happened(tmp_path, cluster)
