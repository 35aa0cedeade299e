"""A real SLURM for tests, which are skipped with a reason where it cannot run."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from devcluster import Cluster, unmet_requirement
from small_study import CANCEL, Ablate, Wrap, run_on
from waits import close, reopen

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run all these tests under `--dist loadgroup`, so that they share a cluster."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("slurm"))


@pytest.fixture(scope="session")
def slurm_installed() -> None:
    if reason := unmet_requirement():
        pytest.skip(f"no SLURM: {reason}")


@pytest.fixture
def folder(slurm_installed: None) -> Iterator[Path]:
    """Make a directory for a cluster. pytest's own directories have names too long for sockets."""
    path = Path(tempfile.mkdtemp(prefix="devcluster-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def session_cluster(slurm_installed: None) -> Iterator[Cluster]:
    with Cluster(Path(tempfile.mkdtemp(prefix="devcluster-"))) as running:
        yield running


@pytest.fixture
def cluster(session_cluster: Cluster) -> Iterator[Cluster]:
    """Yield the session's cluster. Each test finds it answering, without jobs and without limits."""
    yield session_cluster
    for daemon in session_cluster.daemons:
        session_cluster.thaw(daemon.name)
    for daemon in session_cluster.daemons:
        session_cluster.start(daemon.name)  # waits: slurmctld does not start before slurmdbd answers
    session_cluster.wait()
    reopen(session_cluster)
    session_cluster.clear()
    session_cluster.limit_submissions(None)


@pytest.fixture
def closed(cluster: Cluster) -> Cluster:
    """Return the cluster, which accepts jobs and starts none."""
    close(cluster)
    return cluster


@pytest.fixture
def ablate(tmp_path: Path, cluster: Cluster) -> Iterator[Ablate]:
    """Return the command `ablate`, run on the cluster in a folder with s.yaml, r.yaml and p.yaml."""

    def call(*words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        return run_on(cluster, tmp_path, *words, check=check)

    yield call
    call(*CANCEL, check=False)  # else jobs that `cluster` cancels afterwards would submit others


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Let this process use the cluster."""
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    return cluster


@pytest.fixture
def wrap(tmp_path: Path, here: Cluster, monkeypatch: pytest.MonkeyPatch) -> Wrap:
    """Return a function that puts a wrapper of a command of SLURM first on this process's PATH."""
    real, folder = os.environ["PATH"], tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{real}")
    folder.mkdir()

    def put(name: str, shell: str) -> None:
        called = f'{shutil.which(name, path=real)} "$@"'
        (folder / name).write_text(f"#!/bin/bash\n{shell.replace('REAL', called)}\n")
        (folder / name).chmod(0o755)

    return put
