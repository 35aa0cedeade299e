"""Memory: a model that cannot fit is refused, a batch that does not is halved, a finished training leaves nothing."""

import gc
import resource
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from in_process import Ablate, refusal
from run_trials import Quiet, job_of
from trainings import GPU_FULL, advanced, after, finished, lack_memory, tiny

from ablations.execution import runner
from ablations.execution.launch import Place
from commonfloor.options import ConfigError
from results import store
from vitcore import Config, contracts, train
from vitcore.analysis.cost import measure
from vitcore.model.build import build
from vitcore.runtime import host
from vitcore.runtime.memory import OutOfMemory, call_shrinking, out_of_memory
from vitcore.training.run import Memory
from vitcore.training.state import Training
from vitcore.variants import VARIANTS

HUGE = {"width": 32_768, "depth": 16, "heads": 16, "patch": 8, "pool": "gap"}
CPU_FULL = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
)


# -- refused before anything is built ----------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_estimate_is_what_a_step_keeps(optimizer: str) -> None:
    """It equals the tensors of weights, gradients, optimizer state and block inputs."""
    model = build(config := Config(width=32, depth=3, heads=2, patch=2, optimizer=optimizer))
    inputs: list[torch.Tensor] = []
    for block in model.encoder.blocks:
        block.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(torch.zeros(1, 1, 8, 8)).sum().backward()
    stepping = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[optimizer](model.parameters())
    stepping.step()
    kept = [value for state in stepping.state.values() for value in state.values() if value.ndim]
    tensors = [*model.parameters(), *(p.grad for p in model.parameters() if p.grad is not None), *kept, *inputs]
    assert host.least_bytes(dict(config), measure(config)) == sum(4 * tensor.numel() for tensor in tensors)


def test_a_model_beyond_the_memory_is_not_built(tmp_path: Path, ablate: Ablate) -> None:
    with pytest.raises(ConfigError, match=r"width=32768, depth=16, image_size=8: training needs 3,29.*GB at least"):
        train(Config(**HUGE))
    words = [f"{name}={value}" for name, value in HUGE.items()]
    assert "depth=16" in refusal(ablate, "train", *words, "--runs", str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_seeds_are_bounded(tmp_path: Path, ablate: Ablate) -> None:
    (tmp_path / "r.yaml").write_text("{description: d, config: {data: digits}, seeds: 100000000}")
    asked = {"'--seeds'": ("--seeds", "100000000"), "seeds=100000000": ("--recipe", str(tmp_path / "r.yaml"))}
    for named, words in asked.items():
        assert named in refusal(ablate, "plan", "pooling", *words, "--runs", str(tmp_path / "runs"))


# -- micro-batches: the same step in less memory -----------------------------------------------------------------------


@pytest.mark.parametrize("failure", [GPU_FULL, CPU_FULL, MemoryError()])
def test_batch_that_does_not_fit_is_halved_until_it_does(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    expected = finished(tiny(micro_batch=2))
    lack_memory(monkeypatch, 3, failure)
    assert train(tiny(), run := Memory()).micro_batch == 2  # 10, 5, 2
    assert run.weights == expected.weights


def test_whole_batch_is_recorded_as_zero() -> None:
    assert [train(tiny(micro_batch=size)).micro_batch for size in (0, 2, 64)] == [0, 2, 0]


def test_evaluation_that_does_not_fit_is_halved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = finished(tiny())
    lack_memory(monkeypatch, 100, learning=False)
    losses = [line["val_loss"] for line in finished(tiny()).lines]
    assert losses == pytest.approx([line["val_loss"] for line in calm.lines])


def test_resumed_training_starts_from_the_size_that_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint stores the size, so memory does not run out again; a smaller setting wins."""
    lack_memory(monkeypatch, 3)
    assert train(tiny(), run := Memory(), stop=after(3)).micro_batch == 2
    monkeypatch.undo()
    assert train(tiny(), run).micro_batch == 2
    assert train(tiny(micro_batch=1), run).micro_batch == 1


def test_not_even_one_image_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    lack_memory(monkeypatch, 0)
    with pytest.raises(OutOfMemory, match="out of memory at micro-batch 1"):
        train(tiny())


@pytest.mark.parametrize("settings", [{"stem": "conv", "stem.norm": "batch"}, {"model": "timm/test_resnet"}])
def test_oom_with_batch_norm_asks_for_a_lower_batch(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Halving would change what is learned, so the training raises OutOfMemory."""
    config = Config(steps=2, batch=10, evaluations=1, micro_batch=10, **settings)  # the only size besides 0
    training = advanced(config)
    monkeypatch.setattr(training.train_step, "backward", Mock(side_effect=torch.OutOfMemoryError))
    with pytest.raises(OutOfMemory, match=r"^out of memory at a batch of 10: batch norm needs .*: lower batch$"):
        training.advance()


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_code_that_finds_no_room_is_out_of_memory(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a memory limit, oneDNN reports it this way; the limit counts as the host's memory."""
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (2**29, 2**29) if kind == limit else infinite)
    assert out_of_memory(RuntimeError("could not create a primitive"))
    assert min(host.host_limits()) == 2**29
    monkeypatch.setattr(resource, "getrlimit", lambda kind: infinite)
    assert not out_of_memory(RuntimeError("could not create a primitive"))


def test_other_errors_are_not_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not out_of_memory(ValueError("out of memory"))
    lack_memory(monkeypatch, 3, RuntimeError("device-side assert triggered"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        train(tiny())


@pytest.mark.slow
def test_micro_batch_is_in_the_result_and_in_the_environment(tmp_path: Path) -> None:
    config = tiny(micro_batch=4)
    job = job_of(config)
    runner.run([job], Place(tmp_path, None), Quiet())
    state = store.trial(tmp_path, job.id).state()
    assert state.result.micro_batch == store.read_json(state.attempt / "env.json")["micro_batch"] == 4


# -- freed without the garbage collector ------------------------------------------------------------------------------


LARGE = ("resnet",)  # its channels are the paper's at any width
ENTRIES = [(slot, name) for slot, variants in VARIANTS.items() for name in variants if name not in LARGE]


class Watch:
    """Weak references to the trainings that were made, their models, weights and images."""

    def __init__(self) -> None:
        self.parts: list[weakref.ref[Any]] = []
        self.left: list[list[str]] = []  # what was alive as each training was made

    def see(self, training: Training) -> None:
        data, optimizer = training.data, training.optimizer
        held = [
            training,
            training.model,
            *training.model.parameters(),
            training.losses,
            training.batches.order,
            optimizer,
        ]
        held += [part.pixels for part in (data.train, data.val, data.test)]
        self.parts += [weakref.ref(one) for one in held]

    def alive(self) -> list[str]:
        return [type(one).__name__ for reference in self.parts if (one := reference()) is not None]


@pytest.fixture(scope="module")
def imported() -> None:
    train(tiny(steps=1, device="cpu"))


@pytest.fixture
def watch(imported: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Record every training while the garbage collector is disabled."""
    seen, honest = Watch(), Training.__init__

    def init(self: Training, *args: Any) -> None:
        seen.left.append([name for name in seen.alive() if name != "Tensor"])  # images are shared
        honest(self, *args)
        seen.see(self)

    monkeypatch.setattr(Training, "__init__", init)
    gc.disable()
    yield seen
    gc.enable()


@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_a_finished_training_frees_model_and_images(watch: Watch, slot: str, name: str) -> None:
    pytest.importorskip("timm.models.resnetv2")  # an import inside of a training keeps frames of it, once
    config = contracts.tiny(slot, name).model_copy(update={"steps": 2, "evaluations": 1, "ema": 0.9})
    assert train(config).status == "finished"
    assert (watch.left, watch.alive()) == ([[]], [])


def test_a_diverged_training_is_freed_before_it_is_repeated(watch: Watch) -> None:
    """Two of them may not fit into memory: the second is made when nothing of the first is left."""
    assert train(tiny(lr=1e30, device="cpu"), Memory()).status == "diverged"
    assert (watch.left, watch.alive()) == ([[], []], [])


def test_reference_cycles_are_freed_before_a_smaller_batch_is_tried() -> None:
    class Holder:
        def __init__(self) -> None:
            self.own, self.tensor = self, torch.zeros(1)

    held: list[weakref.ref[Any]] = []

    def work(size: int) -> int:
        if size > 1:
            held.append(weakref.ref(Holder()))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return sum(reference() is not None for reference in held)

    gc.disable()
    try:
        assert call_shrinking(work, 8) == (0, 1)
    finally:
        gc.enable()
    assert len(held) == 3
