"""gpus=N: several processes take the steps of one, here on the CPU with gloo."""

import itertools
import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import safetensors.torch
import torch
import trainings
from run_trials import Quiet, job_of, workers_of
from torch import Tensor
from trainings import after

from ablations import faults
from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.faults import BUG, INPUT, MACHINE, RankLost
from ablations.trainables.vit import plugins
from ablations.trainables.vit import rank_processes as ranks
from ablations.trainables.vit.rank_processes import join_ranks
from commonfloor.options import ConfigError
from results import store
from results.store import lease
from vitcore import Config, train
from vitcore.model.position import POSITION
from vitcore.training.distributed import Ranks
from vitcore.training.run import Memory, Outcome

CPU = torch.device("cpu")


tiny = partial(trainings.tiny, depth=2, pool="cls", steps=30, batch=33, evaluations=10, device="cpu")


def trained(config: Config, run: Memory, at: int = 1000, files: tuple[str, ...] = ()) -> Outcome:
    with join_ranks(config, files, None) as ranks:
        return train(config, run, ranks=ranks, stop=after(at))


def weights(run: Memory) -> dict[str, Tensor]:
    """Return the weights without the keys' biases: Adam scales their gradient, mere rounding, to a full step."""
    found = safetensors.torch.load(run.weights)
    for name in found:
        if name.endswith("qkv.bias"):
            found[name] = torch.cat([found[name].chunk(3)[0], found[name].chunk(3)[2]])
    return found


def difference(one: Memory, other: Memory) -> float:
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    return max(((a[name] - b[name]).norm() / a[name].norm().clamp(min=1e-9)).item() for name in a)


@pytest.mark.parametrize(("batch", "count"), [(8, 2), (33, 2), (10, 4), (9, 4), (128, 8), (2, 1)])
def test_parts_make_up_the_batch_and_hold_both_images_of_a_pair(batch: int, count: int) -> None:
    """Each index occurs once, on one rank with its partner B - 1 - i; a reversed part lists the partners."""
    every = [Ranks(rank, count, CPU) for rank in range(count)]
    parts = [np.arange(batch)[ranks.part(batch)] for ranks in every]
    assert sorted(np.concatenate(parts)) == list(range(batch))
    assert all((part[::-1] == batch - 1 - part).all() and len(part) >= 2 for part in parts)
    assert {ranks.largest_part(batch) for ranks in every} == {max(map(len, parts))}


@pytest.mark.parametrize(("images", "count"), [(7, 2), (8, 4), (3, 4), (1, 2)])
def test_shares_make_up_the_evaluated_images(images: int, count: int) -> None:
    shares = [list(range(images))[Ranks(rank, count, CPU).evaluated(images)] for rank in range(count)]
    every = list(range(images))
    assert [*itertools.chain(*shares)] == every if images >= count else shares == [every] * count


EVERYTHING: dict[str, Any] = {
    "mixup": 0.2, "cutmix": 1.0, "dropout": 0.1, "drop_path": 0.1, "label_smoothing": 0.1, "micro_batch": 5,
    "ema": 0.9, "augment": "flip", "clip_norm": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("settings", [{"steps": 10}, pytest.param(EVERYTHING, marks=pytest.mark.slow)])
def test_two_processes_take_the_steps_of_one(settings: dict[str, Any]) -> None:
    """On odd batches, the weights agree within 1e-5 and the curves within 1e-4."""
    one, two = Memory(), Memory()
    alone = trained(tiny(**settings), one)
    both = trained(tiny(**settings, gpus=2), two)
    for field in ("status", "steps", "images", "micro_batch"):
        assert getattr(both, field) == getattr(alone, field), field
    assert difference(one, two) < 1e-5
    for name in ("step", "train_loss", "val_loss"):
        assert [line[name] for line in two.lines] == pytest.approx([line[name] for line in one.lines], rel=1e-4)


@pytest.mark.slow
def test_training_goes_on_with_another_number_of_processes() -> None:
    calm, run = Memory(), Memory()
    trained(tiny(ema=0.9), calm)
    for gpus, at in ((2, 10), (1, 10), (2, 30)):
        outcome = trained(tiny(ema=0.9, gpus=gpus), run, at)
        assert outcome.micro_batch == 0
    assert (outcome.status, outcome.steps, len(run.lines)) == ("finished", 30, len(calm.lines))
    assert difference(calm, run) < 1e-5


@pytest.mark.slow
def test_divergence_is_seen_by_all_at_once() -> None:
    settings: dict[str, Any] = {"lr": 1e30, "clip_norm": 0.0, "steps": 20, "warmup": 0.0, "optimizer": "sgd"}
    alone, both = (trained(tiny(**settings, gpus=gpus), Memory()) for gpus in (1, 2))
    assert (both.status, both.diverged_at_step) == ("diverged", alone.diverged_at_step)


PLUGIN = """
import torch.distributed as dist
import torch
from vitcore.model.position import POSITION, Position

class Faulty(Position):
    '''Goes wrong on one rank, and has a parameter that nothing reads.'''
    numerics = 1
    def __init__(self, config):
        super().__init__(config)
        self.unused = torch.nn.Parameter(torch.empty(3))
    def initial(self, name, values, generator):
        values.zero_()
    def tokens(self, x, layer, grid):
        if not x.is_meta and dist.is_initialized() and dist.get_rank() == {rank} and torch.is_grad_enabled():
            {action}
        return x

POSITION["faulty"] = Faulty
"""


def faulty(folder: Path, action: str, rank: int = 1) -> str:
    path = folder / "faulty.py"
    path.write_text(PLUGIN.replace("{action}", action).replace("{rank}", str(rank)))
    plugins.load([path])
    return str(path)


@pytest.mark.slow
@mock.patch.dict(POSITION)
def test_memory_that_runs_out_on_one_rank_halves_the_micro_batches_of_all(tmp_path: Path) -> None:
    """A backward pass takes 6 images, the larger share of 10, then 3. Weights equal those of one process with 3."""
    file = faulty(tmp_path, "if len(x) > 3: raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate')")
    settings: dict[str, Any] = {"position": "faulty", "batch": 10, "steps": 10, "head_init": "lecun-normal"}
    one, two = Memory(), Memory()
    trained(tiny(**settings, micro_batch=3), one)
    assert trained(tiny(**settings, gpus=2), two, files=(file,)).micro_batch == 3
    assert difference(one, two) < 1e-5


@pytest.mark.slow
@mock.patch.dict(POSITION)
def test_exception_of_another_rank_is_reported(tmp_path: Path) -> None:
    file = faulty(tmp_path, "raise RuntimeError('no such thing')")
    with pytest.raises(RankLost, match=r"^rank 1: RuntimeError: no such thing$") as caught:
        trained(tiny(position="faulty", gpus=2), Memory(), files=(file,))
    kind, *_, place = faults.fault_location(caught.value)
    assert (faults.classify(caught.value).kind, kind, "faulty.py:tokens" in place) == (BUG, "RuntimeError", True)
    assert caught.value.trace.strip().endswith("RuntimeError: no such thing")


SRUN = """#!/bin/bash
# Imitates SLURM's srun on one other node: it ends when all its tasks have ended.
while [[ $1 == --* ]]; do [[ $1 == --ntasks=* ]] && tasks=${1#*=}; shift; done
exec 3<&0
for ((task = 0; task < tasks; task++)); do
    SLURM_PROCID=$task SLURM_LOCALID=$task SLURMD_NODENAME=node2 "$@" <&3 & pids+=($!)
done
worst=0
for pid in "${pids[@]}"; do wait "$pid"; status=$?; ((status > worst)) && worst=$status; done
exit $worst
"""


@pytest.mark.slow
@mock.patch.dict(POSITION)
@pytest.mark.parametrize(
    ("action", "said", "kind"),
    [
        ("raise FileNotFoundError(2, 'No such file', 'images')", "rank 3: FileNotFoundError: .*'images'", INPUT),
        ("import os; os.kill(os.getpid(), 9)", r"a rank of 2 to 3 was lost \(status", MACHINE),
    ],
)
def test_failure_of_a_rank_on_another_node_is_reported(
    action: str, said: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is the error of the last of four ranks, not that its srun ended."""
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    file = faulty(tmp_path, action, rank=3)
    with pytest.raises(RankLost, match=f"^{said}") as caught:
        trained(tiny(position="faulty", gpus=4), Memory(), files=(file,))
    assert faults.classify(caught.value).kind == kind
    assert caught.value.node == ("" if kind == MACHINE else "node2")


def test_a_single_process_does_not_train_for_two() -> None:
    with pytest.raises(ConfigError, match=r"^gpus=2: needs as many processes, not 1"):
        train(tiny(gpus=2))


@pytest.mark.slow
def test_a_trial_goes_on_after_killed_ranks_and_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After SIGKILL of a rank, then of the worker, the trial resumes from a checkpoint; no process is left."""
    monkeypatch.setenv("ABLATE_PAUSE_SECONDS", "0.1")
    settings: dict[str, Any] = {"width": 64, "patch": 1, "steps": 300}
    asked = job_of(tiny(**settings, gpus=2))
    trial = store.trial(tmp_path, asked.id)
    killed: list[tuple[int, list[int]]] = []
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.02) and len(killed) < 2:
            attempts = trial.attempts()
            if len(attempts) == len(killed) + 1 and list(attempts[-1].glob("checkpoints/*.safetensors")):
                worker = int(lease.read(attempts[-1]).pid)
                others = workers_of(worker, "ablations.trainables.vit.rank")
                os.kill(worker if killed else others[0], signal.SIGKILL)
                killed.append((worker, others))

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        tally = runner.run([asked], Place(tmp_path, None), Quiet())
    finally:
        over.set()
        killer.join()
    assert tally.done == [asked.id], tally
    first, second, third = trial.attempts()
    failure = store.read_json(first / "failure.json")
    assert (failure["kind"], failure["cause"]) == ("machine", "RankLost: rank 1 was lost (signal SIGKILL)")
    for later, before in ((second, first), (third, second)):
        resumed = store.read_json(later / "env.json")["resumed_from"]
        assert (resumed["attempt"], resumed["step"] > 0) == (before.name, True)
    assert all(lease.start_time(pid) is None for worker, others in killed for pid in (worker, *others))
    trained(tiny(**settings), calm := Memory())
    assert difference(calm, Memory(weights=(third / "weights.safetensors").read_bytes())) < 1e-4


@pytest.mark.slow
def test_stopped_rank_is_killed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After SIGSTOP of a rank its heartbeat stops, and the attempt ends long before an exchange times out."""
    monkeypatch.setattr(ranks, "SILENT_SECONDS", 8.0)
    stopped: list[int] = []

    def stop() -> bool:
        if not stopped:
            stopped.extend(workers_of(os.getpid(), "ablations.trainables.vit.rank"))
            os.kill(stopped[0], signal.SIGSTOP)
        return False

    with (
        pytest.raises(RankLost, match=r"^rank 1 gave no sign of life for 8 s: killed$") as caught,
        join_ranks(config := tiny(gpus=2), (), None) as both,
    ):
        train(config, Memory(), ranks=both, stop=stop)
    assert caught.value.fault.kind == MACHINE
    assert lease.start_time(stopped[0]) is None
