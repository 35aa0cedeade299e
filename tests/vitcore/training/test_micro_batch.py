"""Micro-batches: the same step in less memory, found by halving, recorded, and told where arms differ in it."""

import resource
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from outcomes import Quiet
from trainings import GPU_FULL, after, finished, lack_memory, tiny

from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.planning.jobs import Job
from results import store
from vitcore import Config, train
from vitcore.data.splits import load
from vitcore.identity import trial_id
from vitcore.runtime import host
from vitcore.runtime.memory import OutOfMemory, out_of_memory
from vitcore.training.loop import Training
from vitcore.training.run import Memory

CPU = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "40000000000 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize("failure", [GPU_FULL, CPU, MemoryError()])
def test_batch_that_does_not_fit_is_halved_until_it_does(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    """The training ends as with the micro-batch that fits, and says which that was."""
    expected = Memory()
    assert train(tiny(micro_batch=2), expected).micro_batch == 2
    lack_memory(monkeypatch, 3, failure)
    run = Memory()
    assert train(tiny(), run).micro_batch == 2  # 10, 5, 2
    assert run.weights == expected.weights


def test_whole_batch_is_recorded_as_zero() -> None:
    """Nothing ran out, or more was asked for than there is."""
    assert train(tiny()).micro_batch == 0
    assert train(tiny(micro_batch=64)).micro_batch == 0


def test_evaluation_that_does_not_fit_is_halved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics are of all images, however few at a time."""
    calm = finished(tiny())
    lack_memory(monkeypatch, 100, learning=False)
    scarce = finished(tiny())
    assert [line["val_loss"] for line in scarce.lines] == pytest.approx([line["val_loss"] for line in calm.lines])


def test_resumed_training_starts_from_the_size_that_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint remembers, so that nothing runs out again; a smaller one asked for since wins."""
    lack_memory(monkeypatch, 3)
    assert train(tiny(), run := Memory(), stop=after(3)).micro_batch == 2
    monkeypatch.undo()
    assert train(tiny(), run).micro_batch == 2
    assert train(tiny(micro_batch=1), run).micro_batch == 1


def test_not_even_one_image_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halving ends at 1, with a cause that says so."""
    lack_memory(monkeypatch, 0)
    with pytest.raises(OutOfMemory, match="out of memory at micro-batch 1"):
        train(tiny())


@pytest.mark.parametrize("settings", [{"stem": "conv", "stem.norm": "batch"}, {"model": "timm/test_resnet"}])
def test_batch_norm_out_of_memory_asks_for_a_lower_batch(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halving would change what is learned: it ends as out of memory, for which `retry --oom` is there."""
    config = Config(steps=2, batch=10, evaluations=1, micro_batch=10, **settings)  # the only size besides 0
    training = Training(config, load(config))
    monkeypatch.setattr(training.train_step, "gradients", Mock(side_effect=torch.OutOfMemoryError))
    with pytest.raises(OutOfMemory, match=r"^out of memory at a batch of 10: batch norm ties .*: lower batch$"):
        training.advance()


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_code_that_finds_no_room_is_out_of_memory(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process's memory is limited, oneDNN has no other word for it; and images take a quarter of the limit."""
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (2**29, 2**29) if kind == limit else infinite)
    assert out_of_memory(RuntimeError("could not create a primitive"))
    assert min(host.host_limits()) == 2**29
    monkeypatch.setattr(resource, "getrlimit", lambda kind: infinite)
    assert not out_of_memory(RuntimeError("could not create a primitive"))


def test_other_errors_are_not_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not out_of_memory(ValueError("out of memory"))
    assert not out_of_memory(RuntimeError("could not create a primitive"))  # oneDNN's of its own, as nothing is limited
    lack_memory(monkeypatch, 3, RuntimeError("device-side assert triggered"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        train(tiny())


@pytest.mark.slow
def test_micro_batch_is_in_the_result_and_in_the_environment(tmp_path: Path) -> None:
    config = tiny(micro_batch=4)
    job = Job(trial_id(config), config.model_dump(), "a", "s")
    runner.run([job], Place(tmp_path, None), Quiet())
    state = store.trial(tmp_path, job.id).state()
    assert state.result.micro_batch == 4
    assert store.read_json(state.attempt / "env.json")["micro_batch"] == 4
