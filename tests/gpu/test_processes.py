"""Processes on a GPU: SIGKILL and resume, a compile cache that another process uses, one rank of NCCL."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from vitcore import Config, train
from vitcore.training.distributed import TCPStore, join
from vitcore.training.run import Memory

SETTINGS = ["device=cuda", "steps=6000", "width=64", "depth=2", "heads=2", "pool=gap", "evaluations=4", "compile=false"]
COMPILED = """
import sys, time
from torch._dynamo.utils import counters
from vitcore import Config, train
from vitcore.training.run import Memory
run = Memory()
train(Config(width=64, depth=2, heads=2, pool="gap", steps=8, evaluations=1, device="cuda", compile=True), run)
print(run.facts["compile_seconds"], counters["inductor"]["fxgraph_cache_hit"], run.facts["cuda_graph"])
"""


def ablate(runs: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ablations.cli", "train", *SETTINGS, "--runs", str(runs)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def result(runs: Path) -> dict[str, float]:
    (file,) = (runs / "trials").glob("*/result.json")
    return json.loads(file.read_text())["metrics"]


def test_a_killed_training_resumes_within_tolerance(tmp_path: Path) -> None:
    """SIGKILL after a checkpoint of steps that a graph took; the next attempt captures anew."""
    whole = ablate(tmp_path / "whole")
    assert whole.wait(timeout=240) == 0
    killed = ablate(tmp_path / "killed")
    deadline = time.monotonic() + 120
    while not any((tmp_path / "killed").rglob("checkpoints/*")):
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert ablate(tmp_path / "killed").wait(timeout=240) == 0
    ours, theirs = result(tmp_path / "killed"), result(tmp_path / "whole")
    assert ours["val_loss"] == pytest.approx(theirs["val_loss"], rel=0.1, abs=0.02)
    assert ours["test_accuracy"] == pytest.approx(theirs["test_accuracy"], abs=0.03)


def test_a_second_process_uses_what_the_first_compiled(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "c"), "TRITON_CACHE_DIR": str(tmp_path / "t")}
        command = [sys.executable, "-c", COMPILED]
        done = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        seconds, hits, graph = done.stdout.strip().split(maxsplit=2)
        assert graph == "the whole step"
        found.append((float(seconds), int(hits)))
    assert found[0][1] == 0 < found[1][1]
    assert found[1][0] < found[0][0]


def test_one_rank_of_nccl_trains_as_alone() -> None:
    """With DistributedDataParallel around the model, by eager steps."""
    sizes = {"width": 32, "depth": 2, "heads": 2, "pool": "gap", "steps": 12, "batch": 16, "evaluations": 2}
    config = Config(**sizes, device="cuda", cuda_graph="off", attention="pinned")
    alone, ranked = Memory(), Memory()
    train(config, alone)
    store = TCPStore("127.0.0.1", 0, is_master=True)
    with join(store, 0, 1, torch.device("cuda", 0)) as ranks:
        train(config, ranked, ranks=ranks)
    assert ranked.lines[-1]["val_loss"] == pytest.approx(alone.lines[-1]["val_loss"], rel=1e-4)
