"""The step with fixed inputs, as a CUDA graph needs it, on a CPU: the call itself replaces the capture."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import Mock

import pytest
import safetensors.torch
import torch
from torch import Tensor
from trainings import advanced, assert_same, finished, lack_memory

from vitcore import Config, train
from vitcore.config import merge
from vitcore.contracts import tiny as small_training
from vitcore.data.augment import AUGMENT
from vitcore.keyed_random import RngKeys
from vitcore.model.build import build
from vitcore.model.vit import ViT
from vitcore.training import step, step_graph
from vitcore.training.evaluation import score
from vitcore.training.optimizers import make_optimizer
from vitcore.training.run import Memory
from vitcore.training.step import TrainStep
from vitcore.training.step_graph import WARM_UP, eager_reason
from vitcore.variants import VARIANTS

STEPS = 12
# A rate that float32 represents exactly, because a graph reads its rate as float32.
EXACT = {"schedule": "constant", "schedule.cooldown": 0.0, "warmup": 0.0, "lr": 2.0**-9}
SETTINGS: list[dict[str, Any]] = [
    {"augment": "flip-crop", "dropout": 0.1, "drop_path": 0.2},
    {"augment": "flip-crop-randaugment", "mixup": 0.4, "cutmix": 1.0, "label_smoothing": 0.1},
    {"position": "relative", "pool": "cls", "registers": 2, "ema": 0.99, "layer_decay": 0.5},
    {"augment": "crop-three-augment", "augment.pad": 1, "augment_repeats": 3, "random_erasing": 0.5},
    {"optimizer": "sgd", "micro_batch": 7, "clip_norm": 0.1, "augment": "trivial"},
    {"stem": "conv", "stem.norm": "batch", "clip_norm": 0.0},
]


TIMM = {"model": "timm/vit_tiny_patch16_224", "image_size": 32}


def tiny(**settings: Any) -> Config:
    defaults = {"width": 16, "depth": 2, "heads": 2, "pool": "gap", "steps": STEPS, "batch": 24, "evaluations": 3}
    return Config(**merge(defaults | EXACT, settings))


def called(function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Imitate a capture on a CPU: only the replay computes, and its results keep their addresses."""
    loss = torch.zeros(())
    parameters = function.func.__self__.parameters
    gradients = [torch.zeros_like(parameter) for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient

    def replay() -> None:
        loss.copy_(function())
        for parameter, gradient in zip(parameters, gradients, strict=True):
            gradient.copy_(parameter.grad)

    return replay, loss


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Mock:
    capture = Mock(side_effect=called)
    monkeypatch.setattr(step_graph, "capture", capture)
    monkeypatch.setattr(step_graph, "on_side_stream", lambda device: nullcontext())
    monkeypatch.setattr(step, "eager_reason", lambda config, device, *made: eager_reason(config, "cuda", *made))
    return capture


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_fixed_inputs_take_the_steps_of_eager_ones(graphs: Mock, settings: dict[str, Any]) -> None:
    config = tiny(**settings)
    fixed = finished(config)
    graphs.assert_called_once()
    assert fixed.facts == {"cuda_graph": "the whole step"}
    assert_same(fixed, finished(config.model_copy(update={"cuda_graph": "off"})))


def test_nothing_but_its_inputs_changes_between_replays(graphs: Mock) -> None:
    training = advanced(tiny(augment="flip-crop", mixup=0.2, ema=0.9))
    seen = set()
    for _ in range(STEPS):
        training.advance()
        graph = training.train_step.graph
        if graph.replay is not None:
            score(training, training.data.val)
            held = [*training.train_step.changed_tensors(), *(own for own in graph.inputs if own is not None)]
            read = [*(group["lr"] for group in training.optimizer.param_groups), training.train_step.average_rate]
            seen.add(tuple(tensor.data_ptr() for tensor in [*held, *read, graph.loss]))
    assert len(seen) == 1


@pytest.mark.parametrize("at", [1, WARM_UP, WARM_UP + 1, STEPS - 1])
def test_stopped_training_resumes_bit_exactly(graphs: Mock, at: int) -> None:
    config = tiny(augment="flip-crop", mixup=0.2, ema=0.9)
    assert finished(config, at).weights == finished(config).weights


def test_a_step_that_cannot_be_captured_is_eager(graphs: Mock) -> None:
    """The training is equal bit for bit, the reason is recorded, and no second capture is tried."""
    graphs.side_effect = RuntimeError("operation not permitted when stream is capturing\nCompile with ...")
    run = finished(tiny())
    assert run.facts == {"cuda_graph": "none: RuntimeError: operation not permitted when stream is capturing"}
    graphs.assert_called_once()
    assert run.weights == finished(tiny(cuda_graph="off")).weights


def test_a_step_that_waits_is_found_before_the_capture(monkeypatch: pytest.MonkeyPatch, graphs: Mock) -> None:
    """No capture begins, because a failed one leaks memory in some versions of PyTorch."""
    refused: list[bool] = []

    @contextmanager
    def without_waiting(device: torch.device) -> Iterator[None]:
        refused.append(True)
        yield
        refused.clear()

    class Waiting(ViT):
        def forward(self, images: Tensor, keys: RngKeys = None) -> Tensor:
            if refused:
                refused.clear()
                raise RuntimeError("called a synchronizing CUDA operation")
            return super().forward(images, keys)

    eager = finished(tiny(ema=0.9, cuda_graph="off"))
    monkeypatch.setattr(step_graph, "without_waiting", without_waiting)
    monkeypatch.setattr("vitcore.training.objectives.classification.ViT", Waiting)
    run = finished(tiny(ema=0.9))
    assert run.facts == {"cuda_graph": "none: RuntimeError: called a synchronizing CUDA operation"}
    graphs.assert_not_called()
    assert run.weights == eager.weights


def test_a_value_of_the_host_in_the_graph_is_found(graphs: Mock) -> None:
    """A capture that repeats its own batch has other gradients than an eager step, so it is dropped."""

    def frozen(function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        taken: TrainStep = function.func.__self__
        batch = taken.batches.prepare(taken.graph.inputs)
        replay, loss = called(function)

        def frozen_replay() -> None:
            with pytest.MonkeyPatch.context() as own:
                own.setattr(taken.batches, "prepare", lambda inputs: batch)
                replay()

        return frozen_replay, loss

    graphs.side_effect = frozen
    training = advanced(config := tiny(head_init="lecun-normal"), STEPS)
    assert training.train_step.facts == {"cuda_graph": "none: its gradients differ from an eager step's"}
    assert training.train_step.graph is None  # nothing keeps the graph's memory
    assert training.weights() == finished(config.model_copy(update={"cuda_graph": "off"})).weights


def test_an_augmentation_that_reads_values_runs_before_the_graph(monkeypatch: pytest.MonkeyPatch, graphs: Mock) -> None:
    """A plug-in that reads values on the host still trains; the rest of the step is a graph."""

    class Brightest(AUGMENT["none"]):
        def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
            return images.clamp(max=1 + int(keys.sum()) % 16)

    monkeypatch.setitem(AUGMENT, "brightest", Brightest)
    run = finished(tiny(augment="brightest"))
    assert run.facts == {"cuda_graph": "the step after augmentation"}
    assert_same(run, finished(tiny(augment="brightest", cuda_graph="off")))


def test_out_of_memory_halves_the_micro_batch_before_the_capture(monkeypatch: pytest.MonkeyPatch, graphs: Mock) -> None:
    expected = finished(tiny(micro_batch=6))
    lack_memory(monkeypatch, 6)
    run = Memory()
    assert train(tiny(), run).micro_batch == 6
    assert run.weights == expected.weights
    assert run.facts == {"cuda_graph": "the whole step"}


def test_a_divergence_is_found_at_its_step(graphs: Mock) -> None:
    fixed, eager = (train(tiny(lr=2.0**99, cuda_graph=graph, steps=20), Memory()) for graph in ("auto", "off"))
    assert (fixed.status, fixed.diverged_at_step) == ("diverged", eager.diverged_at_step)


@pytest.mark.parametrize(
    ("settings", "device", "reason"),
    [
        ({}, "cuda", ""),
        ({"optimizer": "sgd"}, "cuda", ""),
        ({}, "cpu", "a CPU has none"),
        ({"cuda_graph": "off"}, "cuda", "cuda_graph=off"),
        ({"gpus": 2}, "cuda", "gpus=2: gradients are exchanged between launches"),
        ({"stem.patches": [1, 2, 4]}, "cuda", "stem.patches=[1, 2, 4]: shapes change by step"),
        ({"optimizer": "lion"}, "cuda", "optimizer=lion: not fused"),  # it may count steps on the host
        (TIMM, "cuda", ""),
        (TIMM | {"dropout": 0.1}, "cuda", "model=timm/vit_tiny_patch16_224: the host seeds what it drops"),
    ],
)
def test_the_rule_says_why_a_step_is_eager(settings: dict[str, Any], device: str, reason: str) -> None:
    model = build(config := tiny(**settings))
    assert eager_reason(config, device, make_optimizer(model, config), model) == reason


def test_a_model_that_cannot_be_compiled_is_trained_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Mock(side_effect=ValueError("Failed to find C compiler. Please specify via CC.\nmore"))
    monkeypatch.setattr(step, "compile_model", lambda model, attention: broken)
    run = finished(tiny(compile=True))
    assert run.facts.pop("compile_seconds") >= 0
    reason = "ValueError: Failed to find C compiler. Please specify via CC."
    assert run.facts == {"compile": False, "compile_failed": reason}
    assert_same(run, finished(tiny(compile=False)))


def test_compiling_is_not_training_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1])  # of the first call

    def compiled(model: torch.nn.Module, attention: str) -> Callable[..., Any]:
        return lambda *inputs: (time.sleep(next(seconds, 0)), model(*inputs))[1]

    monkeypatch.setattr(step, "compile_model", compiled)
    outcome = train(tiny(compile=True, steps=4), run := Memory())
    assert run.facts["compile_seconds"] >= 1
    assert outcome.train_seconds < 1
    assert outcome.images_per_second == pytest.approx(3 * 24 / outcome.train_seconds)


def test_each_attempt_leaves_its_untimed_step_out_of_the_images_per_second() -> None:
    """A checkpoint has the seconds of all steps, as if the first had been timed: the rate stays the same."""
    first, second = advanced(tiny()), advanced(tiny())
    first.train_step.compiling = second.train_step.compiling = True
    first.advance()
    first.advance()
    first.advance()
    first.seconds = 8.0
    second.restore(safetensors.torch.save(first.checkpoint()))
    assert second.seconds == pytest.approx(12, abs=0.5)
    second.advance()
    second.seconds = 12.0
    assert second.outcome("stopped", {}).images_per_second == pytest.approx(3 * 24 / 12, rel=0.1)


def test_an_error_of_the_model_is_not_taken_for_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "compile_model", lambda model, attention: Mock(side_effect=ValueError("no compiler")))
    monkeypatch.setattr(ViT, "patches", Mock(side_effect=RuntimeError("shapes")))
    with pytest.raises(RuntimeError, match="shapes"):
        train(tiny(compile=True))


@pytest.mark.parametrize(("slot", "name"), [(slot, name) for slot, variants in VARIANTS.items() for name in variants])
def test_every_part_takes_the_same_steps(graphs: Mock, slot: str, name: str) -> None:
    """Fixed inputs change no bit; an optimizer that is not fused gets no graph."""
    exact = {} if slot == "schedule" else EXACT
    config = Config(**merge(small_training(slot, name).model_dump(), exact, {"steps": WARM_UP + 2}))
    fixed = advanced(config, config.steps)
    eager = advanced(config.model_copy(update={"cuda_graph": "off"}), config.steps)
    assert graphs.called == all(group.get("fused") for group in eager.optimizer.param_groups)
    if slot == "schedule" or "resized" in name:  # rates are rounded to float32, pieces to the nearest level
        assert score(fixed, fixed.data.val)[0] == pytest.approx(score(eager, eager.data.val)[0], rel=1e-3)
    else:
        assert fixed.weights() == eager.weights()
