"""Trials on several GPUs on a real SLURM, with fake GPUs and real processes on real nodes."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
import safetensors.torch
import torch
from devcluster import Cluster, processes, wait_until
from small_study import SUBMIT, Ablate, run_here, trials, write
from waits import await_results

from results import store

ONE_NODE = "{partition: main, gpus: 2, cpus: 2, memory: 4G, time: 5}"
TWO_NODES = "{partition: main, nodes: 2, gpus: 1, cpus: 1, memory: 2G, time: 5}"
RANKS = ("gpus=2", "device=cpu")


def weights(runs: Path) -> dict[str, torch.Tensor]:
    """Return the weights of every trial as one vector."""
    found = {}
    for trial in trials(runs):
        (path,) = trial.path.glob("attempts/*/weights.safetensors")
        tensors = sorted(safetensors.torch.load_file(path).items())
        found[trial.id] = torch.cat([tensor.flatten().float() for _, tensor in tensors])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("profile", [ONE_NODE, TWO_NODES])
def test_two_ranks_train_as_one_process(profile: str, tmp_path: Path, ablate: Ablate) -> None:
    write(tmp_path, steps=60, profile=profile, seeds=1)
    ablate(*SUBMIT, *RANKS)
    runs = tmp_path / "runs"
    await_results(runs, 2)
    run_here(tmp_path, "calm", "device=cpu")
    calm, found = weights(tmp_path / "calm"), weights(runs)
    assert calm.keys() == found.keys()
    for key, vector in calm.items():
        assert (found[key] - vector).norm() < 1e-3 * vector.norm()
    for trial in trials(runs):
        (attempt,) = trial.attempts()
        environment = store.read_json(attempt / "env.json")
        assert environment["ranks"] == 2
        (said,) = [line for line in (attempt / "log").read_text().splitlines() if line.startswith("rank 1 of 2 on ")]
        assert (environment["node"] in said) == (profile == ONE_NODE)


@pytest.mark.slow
def test_rank_lost_on_another_node_ends_the_attempt(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    """After SIGKILL of a rank, and then of the worker, the trials resume from checkpoints, and no rank stays."""
    quick = TWO_NODES.replace("}", ", environment: {ABLATE_PAUSE_SECONDS: 1}}")
    write(tmp_path, steps=400, profile=quick, seeds=1)
    ablate(*SUBMIT, *RANKS)
    runs = tmp_path / "runs"
    for victim in ("ablations.trainables.vit.rank", "ablations.execution.worker"):
        saved = set(runs.glob("trials/*/attempts/*/checkpoints/*"))
        wait_until(lambda saved=saved: set(runs.glob("trials/*/attempts/*/checkpoints/*")) - saved, "a checkpoint", 180)
        (pid,) = running(cluster, victim)
        os.kill(pid, signal.SIGKILL)
    await_results(runs, 2, 300)
    causes = [store.read_json(path)["cause"] for path in runs.glob("trials/*/attempts/*/failure.json")]
    assert len(causes) == 1
    assert causes[0].startswith("RankLost: rank 1 was lost")
    assert not running(cluster, "ablations.trainables.vit.rank")


def running(cluster: Cluster, module: str) -> list[int]:
    """Return the ids of the cluster's processes that run a module."""
    found = []
    for process in processes.cluster_processes(cluster.folder):
        with suppress(OSError):  # gone meanwhile
            if Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[1:4] == ["-P", "-m", module]:
                found.append(process.pid)
    return found


def test_more_gpus_than_a_job_has_are_refused(tmp_path: Path, ablate: Ablate) -> None:
    write(tmp_path, profile=ONE_NODE)
    done = ablate(*SUBMIT, "gpus=4", check=False)
    assert done.returncode == 2
    assert "gpus=4: only 2 GPUs in a job of the profile" in done.stderr
    assert not (tmp_path / "runs").exists()
