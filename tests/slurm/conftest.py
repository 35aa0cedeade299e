"""A real SLURM for the tests that want one; where there can be none they are skipped and say why."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_study import CANCEL, Ablate, Wrap, command, on

from slurm.devcluster import Cluster, unmet

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all of these under `--dist loadgroup`, so that they share one cluster."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("slurm"))


@pytest.fixture(scope="session")
def slurm_installed() -> None:
    """Skips what needs SLURM where its packages are not installed, or we are not root."""
    if reason := unmet():
        pytest.skip(f"no SLURM: {reason}")


@pytest.fixture
def folder(slurm_installed: None) -> Iterator[Path]:
    """A place for a cluster. pytest's own directories have names too long for sockets."""
    path = Path(tempfile.mkdtemp(prefix="devcluster-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def session_cluster(slurm_installed: None) -> Iterator[Cluster]:
    with Cluster(Path(tempfile.mkdtemp(prefix="devcluster-"))) as running:
        yield running


@pytest.fixture
def cluster(session_cluster: Cluster) -> Iterator[Cluster]:
    """One cluster for the session; every test finds it answering, without jobs and without limits."""
    yield session_cluster
    for daemon in session_cluster.daemons:
        session_cluster.thaw(daemon.name)
    for daemon in session_cluster.daemons:
        session_cluster.start(daemon.name)  # waits: slurmctld does not start before slurmdbd answers
    session_cluster.wait()
    session_cluster.run("scontrol", "update", "PartitionName=main", "State=UP")
    session_cluster.clear()
    session_cluster.limit_submissions(None)


@pytest.fixture
def ablate(tmp_path: Path, cluster: Cluster) -> Iterator[Ablate]:
    """The command in a folder with a study s.yaml, a recipe r.yaml and a profile p.yaml, on the cluster."""
    environment = on(cluster.environment)

    def call(*words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            command(*words), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    yield call
    call(*CANCEL, check=False)  # or its jobs, told to end, see to it that others follow
    cluster.clear()


@pytest.fixture
def wrap(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Wrap:
    """Puts a wrapper first on the PATH of this process, which asks the cluster."""
    real, folder = os.environ["PATH"], tmp_path / "bin"
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    monkeypatch.setenv("PATH", f"{folder}:{real}")
    folder.mkdir()

    def put(name: str, shell: str) -> None:
        called = f'{shutil.which(name, path=real)} "$@"'
        (folder / name).write_text(f"#!/bin/bash\n{shell.replace('REAL', called)}\n")
        (folder / name).chmod(0o755)

    return put
