"""Micro-batches: the same step in less memory, found by halving, recorded, and told where arms differ in it."""

import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from outcomes import Quiet
from torch import Tensor
from trainings import after

from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.planning.jobs import Job
from results import store
from vitcore import Config, train
from vitcore.data.splits import load
from vitcore.identity import trial_id
from vitcore.keyed_random import Keys
from vitcore.model.vit import ViT
from vitcore.options import ConfigError
from vitcore.runtime import memory
from vitcore.runtime.memory import OutOfMemory, out_of_memory
from vitcore.training.loop import Training
from vitcore.training.run import Memory


def tiny(**settings: Any) -> Config:
    defaults = {"width": 16, "depth": 1, "heads": 2, "pool": "gap", "steps": 6, "batch": 10, "evaluations": 2}
    return Config(**(defaults | settings))


def trained(config: Config, dtype: torch.dtype, steps: int) -> Training:
    """A training in `dtype`, some steps on."""
    data = load(config)
    training = Training(config, data)
    training.model.to(dtype)
    object.__setattr__(data, "std", data.std.to(dtype))
    object.__setattr__(data, "mean", data.mean.to(dtype))
    for _ in range(steps):
        training.advance()
    return training


SETTINGS: dict[str, Any] = {"label_smoothing": 0.1, "clip_norm": 0.5, "lr": 1e-4}


@pytest.mark.parametrize("micro_batch", [1, 3, 5])
def test_micro_batches_take_the_steps_of_the_whole_batch(micro_batch: int) -> None:
    """Sizes that do and do not divide the batch: the weights agree to float64's last digits, clipping included."""
    whole = trained(tiny(**SETTINGS), torch.float64, 4).model.state_dict()
    parts = trained(tiny(**SETTINGS, micro_batch=micro_batch), torch.float64, 4).model.state_dict()
    for name, weights in whole.items():
        torch.testing.assert_close(parts[name], weights, rtol=0, atol=1e-12)


class Scarce(ViT):
    """A model for which memory runs out above `limit` images with gradients, or `evaluated` without."""

    limit, evaluated = 1000, 1000
    failure: Exception = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    seen: list[int]

    def forward(self, images: Tensor, keys: Keys = None) -> Tensor:
        if len(images) > (self.limit if torch.is_grad_enabled() else self.evaluated) and not images.is_meta:
            raise self.failure
        return super().forward(images, keys)


CPU = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "40000000000 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize("failure", [Scarce.failure, CPU, MemoryError()])
def test_batch_that_does_not_fit_is_halved_until_it_does(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    """The training ends as with the micro-batch that fits, and says which that was."""
    expected = Memory()
    assert train(tiny(micro_batch=2), expected).micro_batch == 2
    monkeypatch.setattr("vitcore.training.objectives.classification.ViT", Scarce)
    monkeypatch.setattr(Scarce, "limit", 3)
    monkeypatch.setattr(Scarce, "failure", failure)
    run = Memory()
    assert train(tiny(), run).micro_batch == 2  # 10, 5, 2
    assert run.weights == expected.weights


def test_whole_batch_is_recorded_as_zero() -> None:
    """Nothing ran out, or more was asked for than there is."""
    assert train(tiny()).micro_batch == 0
    assert train(tiny(micro_batch=64)).micro_batch == 0


def test_evaluation_that_does_not_fit_is_halved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics are of all images, however few at a time."""
    calm, scarce = Memory(), Memory()
    train(tiny(), calm)
    monkeypatch.setattr("vitcore.training.objectives.classification.ViT", Scarce)
    monkeypatch.setattr(Scarce, "evaluated", 100)
    train(tiny(), scarce)
    assert [line["val_loss"] for line in scarce.lines] == pytest.approx([line["val_loss"] for line in calm.lines])


def test_resumed_training_starts_from_the_size_that_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint remembers, so that nothing runs out again; a smaller one asked for since wins."""
    monkeypatch.setattr("vitcore.training.objectives.classification.ViT", Scarce)
    monkeypatch.setattr(Scarce, "limit", 3)
    assert train(tiny(), run := Memory(), stop=after(3)).micro_batch == 2
    monkeypatch.setattr(Scarce, "limit", 1000)
    assert train(tiny(), run).micro_batch == 2
    assert train(tiny(micro_batch=1), run).micro_batch == 1


def test_not_even_one_image_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halving ends at 1, with a cause that says so."""
    monkeypatch.setattr("vitcore.training.objectives.classification.ViT", Scarce)
    monkeypatch.setattr(Scarce, "limit", 0)
    with pytest.raises(OutOfMemory, match="out of memory at micro-batch 1"):
        train(tiny())


TIED: list[dict[str, Any]] = [{"stem": "conv", "stem.norm": "batch"}, {"model": "timm/test_resnet"}]


@pytest.mark.parametrize("settings", TIED)
def test_batch_norm_is_not_trained_in_parts(settings: dict[str, Any]) -> None:
    """Its statistics are of the whole batch: a smaller micro-batch would be another training under the same name."""
    sizes = {"steps": 2, "batch": 10, "evaluations": 1}
    with pytest.raises(ConfigError, match=r"^micro_batch=5: batch norm ties the images .* 0 or batch=10"):
        Config(**sizes, **settings, micro_batch=5)
    assert Config(**sizes, **settings, micro_batch=10).micro_batch == 10


@pytest.mark.parametrize("settings", TIED)
def test_batch_norm_out_of_memory_asks_for_a_lower_batch(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halving would change what is learned: it ends as out of memory, for which `retry --oom` is there."""
    training = Training(config := Config(steps=2, batch=10, evaluations=1, **settings), load(config))

    def full(batch: object, size: int) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(training.train_step, "gradients", full)
    with pytest.raises(OutOfMemory, match=r"^out of memory at a batch of 10: batch norm ties .*: lower batch$"):
        training.advance()


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_code_that_finds_no_room_is_out_of_memory(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process's memory is limited, oneDNN has no other word for it; and images take a quarter of the limit."""
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (2**29, 2**29) if kind == limit else infinite)
    assert out_of_memory(RuntimeError("could not create a primitive"))
    assert min(memory.host_limits()) == 2**29
    monkeypatch.setattr(resource, "getrlimit", lambda kind: infinite)
    assert not out_of_memory(RuntimeError("could not create a primitive"))


def test_other_errors_are_not_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is not tried again with half the batch."""
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not out_of_memory(ValueError("out of memory"))
    assert not out_of_memory(RuntimeError("could not create a primitive"))  # oneDNN's of its own, as nothing is limited
    monkeypatch.setattr("vitcore.training.objectives.classification.ViT", Scarce)
    monkeypatch.setattr(Scarce, "limit", 3)
    monkeypatch.setattr(Scarce, "failure", RuntimeError("device-side assert triggered"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        train(tiny())


@pytest.mark.slow
def test_micro_batch_is_in_the_result_and_in_the_environment(tmp_path: Path) -> None:
    """Where tables and people look for it."""
    config = tiny(micro_batch=4)
    job = Job(trial_id(config), config.model_dump(), "a", "s")
    runner.run([job], Place(tmp_path, None), Quiet())
    state = store.trial(tmp_path, job.id).state()
    assert state.attempt is not None
    assert state.result.micro_batch == 4
    assert store.read_json(state.attempt / "env.json")["micro_batch"] == 4
