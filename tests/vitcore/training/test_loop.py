"""The loop: bit-exact resume, metrics, learning and precision, with few settings and with all of them together."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import trainings
from trainings import Killed, advanced, after, assert_same, finished

from ablations.execution.launch import PLACE, Place
from vitcore import Config, ViT, train
from vitcore.analysis.eval import restore_model
from vitcore.config import merge
from vitcore.data.augment import AUGMENT
from vitcore.data.splits import load
from vitcore.runtime.compile_cache import compile_model
from vitcore.runtime.device import SUBNORMAL, compute_in_precision, compute_settings, flush_subnormals
from vitcore.training import evaluation, step
from vitcore.training.batches import Batch
from vitcore.training.evaluation import evaluation_steps, score
from vitcore.training.run import Memory
from vitcore.training.state import Training

tiny = partial(trainings.tiny, depth=2, pool="cls", steps=20, batch=48)
CONFIG = tiny(evaluations=7, label_smoothing=0.1, data_fraction=0.1, position="relative")


@pytest.fixture(scope="module")
def whole() -> Memory:
    return finished(CONFIG)


@pytest.mark.parametrize("at", [0, 1, 7, 19])
def test_stopped_training_resumes_bit_exactly(whole: Memory, at: int) -> None:
    stopped = train(CONFIG, run := Memory(), stop=after(at))
    assert (stopped.status, stopped.steps, stopped.metrics) == ("stopped", at, {})
    assert run.weights is None
    assert train(CONFIG, run).status == "finished"
    assert_same(run, whole)


@dataclass
class Fragile(Memory):
    """A run that dies at its nth write, after it or before it."""

    dies_at: int = 0
    writes: int = 0

    def log(self, line: dict[str, Any]) -> None:
        self.around(super().log, line)

    def save_checkpoint(self, step: int, payload: bytes) -> None:
        self.around(super().save_checkpoint, step, payload)

    def around(self, write: Callable[..., None], *content: Any) -> None:
        for act in (lambda: None, lambda: write(*content)):
            act()
            self.writes += 1
            if self.writes == self.dies_at:
                raise Killed


@pytest.mark.parametrize("at", [1, 2, 31, 42])
def test_killed_training_resumes_bit_exactly(whole: Memory, at: int) -> None:
    run = Fragile(dies_at=at)
    with pytest.raises(Killed):
        train(CONFIG, run, checkpoint_seconds=0)
    train(CONFIG, run, checkpoint_seconds=0)
    assert_same(run, whole)


def test_evaluations_change_nothing_learned(whole: Memory) -> None:
    assert finished(CONFIG.model_copy(update={"evaluations": 1})).weights == whole.weights


def test_metrics_lines_are_evenly_spaced_and_complete(whole: Memory) -> None:
    assert [line["step"] for line in whole.lines] == [3, 6, 9, 11, 14, 17, 20]
    fields = {"step", "epoch", "images", "seconds", "train_loss", "val_loss", "val_accuracy", "lr"}
    assert all(line.keys() == fields for line in whole.lines)
    assert whole.lines[-1]["images"] == 20 * 48
    assert evaluation_steps(tiny(steps=3, evaluations=10)) == [1, 2, 3]


def test_a_new_metric_reaches_the_lines_and_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is added in one function, and is neither dropped nor renamed."""
    measured = evaluation.measured

    def with_error(part: str, loss: float, correct: np.ndarray) -> dict[str, float]:
        return measured(part, loss, correct) | {f"{part}_error": 1 - correct.mean().item()}

    monkeypatch.setattr(evaluation, "measured", with_error)
    outcome = train(tiny(evaluations=2), run := Memory())
    assert [line["val_error"] for line in run.lines] == [1 - line["val_accuracy"] for line in run.lines]
    assert outcome.metrics["val_error"] == run.lines[-1]["val_error"]
    assert outcome.metrics["test_error"] == 1 - outcome.metrics["test_accuracy"]


def test_outcome_agrees_with_what_was_written() -> None:
    config, run = tiny(steps=40), Memory()
    outcome = train(config, run)
    (index, correct), data = run.correct, load(config)
    assert np.array_equal(index, data.test.index)
    assert outcome.metrics["test_accuracy"] == pytest.approx(correct.mean())
    assert outcome.metrics["val_accuracy"] == run.lines[-1]["val_accuracy"]
    assert outcome.images == 40 * 48
    assert outcome.images_per_second == pytest.approx(outcome.images / outcome.train_seconds)
    with torch.no_grad():
        answers = restore_model(config, run.weights)(data.standardize(data.test.pixels)).argmax(1)
    assert np.array_equal((answers == data.test.labels).numpy(), correct.astype(bool))


def test_sixty_images_are_memorized() -> None:
    outcome = train(tiny(width=32, heads=4, data_fraction=0.05, steps=150, batch=32, lr=6e-3))
    assert outcome.metrics["train_loss"] < 0.02


@pytest.mark.parametrize("clip_norm", [0.1, 0.0])
def test_a_step_equals_adamw_written_out(clip_norm: float) -> None:
    """Gradient clipped or not, bias-corrected moments, decoupled decay: the first step in plain arithmetic."""
    settings = {"clip_norm": clip_norm, "optimizer.eps": 1e-3}  # an epsilon that tells gradients of other norms apart
    config = tiny(**settings, weight_decay=0.3, lr=0.01, warmup=0.0, label_smoothing=0.1)
    training = advanced(config)
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    images, labels, _ = training.batch()
    targets = 0.9 * torch.nn.functional.one_hot(labels, 10) + 0.01
    loss = -(targets * training.model(images).log_softmax(1)).sum(1).mean()
    gradients = torch.autograd.grad(loss, list(training.model.parameters()))
    norm = torch.stack([g.norm() for g in gradients]).norm()
    assert norm > 0.1
    training.advance()
    for (name, now), gradient in zip(training.model.named_parameters(), gradients, strict=True):
        g = gradient * (clip_norm / norm if clip_norm else 1)
        decay = 0.3 * (now.ndim >= 2 and not name.startswith(("position", "class")))
        expected = before[name] * (1 - 0.01 * decay) - 0.01 * g / (g.abs() + 1e-3)
        torch.testing.assert_close(now.detach(), expected, rtol=1e-4, atol=1e-5)


def test_subnormal_numbers_are_zero_in_a_training_alone() -> None:
    """Threads that start inside flush them too; afterwards the caller's mode is restored."""

    def times_one(values: torch.Tensor) -> set[bool]:
        return {*(values * 1).bool().tolist()}

    tiny_numbers = torch.full((10_000,), SUBNORMAL)
    with torch.device("meta"), compute_settings(tiny()):  # whatever the caller's own defaults are
        assert times_one(tiny_numbers) == {False}
    for before in (False, True):
        with flush_subnormals(before):
            with compute_settings(tiny()), ThreadPoolExecutor(1) as pool:
                assert times_one(tiny_numbers) == {False}
                assert pool.submit(times_one, tiny_numbers).result() == {False}
            assert times_one(tiny_numbers) == {not before}


# Modules of processes that train, and what each calls before its first training.
THAT_TRAIN = [("ablations.execution.worker", "start_heartbeat"), ("ablations.trainables.vit.rank", "RankOrder")]
MAIN = """
import importlib
import os
import sys
import torch
def report(*_, **__):
    torch.set_num_threads(2)
    sys.exit(str((torch.full((2_000_000,), 2.0**-130) * 1).count_nonzero().item()))
for name, first in {named}:
    module = importlib.import_module(name)
    setattr(module, first, report)
    if not os.fork():
        module.main()
    os.wait()
"""


def test_all_threads_of_a_process_that_trains_flush_them() -> None:
    """The mode is set before any other work, because PyTorch's threads keep the mode they start with."""
    settings = PLACE.dump_json(Place(Path("runs"), None)).decode()
    command, pipe = [sys.executable, "-c", MAIN.format(named=THAT_TRAIN), settings], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stderr.read().split() == [b"0", b"0"]
    process.communicate()


def test_the_callers_autocast_is_not_the_trainings() -> None:
    config = tiny(head_init="lecun-normal")
    model, images = ViT(config), torch.randn(3, 1, 8, 8)
    expected = compute_in_precision(config, model, images)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compute_in_precision(config, model, images), expected)
        assert not torch.equal(model(images).float(), expected)


# -- all settings together ---------------------------------------------------------------------------------------------


def combined(**settings: Any) -> Config:
    defaults = {"width": 16, "depth": 2, "heads": 2, "patch": 4, "steps": 8, "batch": 24, "evaluations": 2}
    return Config(**merge(defaults, settings))


EVERYTHING: dict[str, Any] = {
    "data_fraction": 0.05,  # several epochs, batches that span two
    "registers": 2, "layer_scale": 0.1, "qk_norm": True, "dropout": 0.1, "drop_path": 0.2,
    "augment": "flip-crop-randaugment", "augment.pad": 1, "augment_repeats": 3, "random_erasing": 0.5,
    "random_erasing_fill": "pixel", "mixup": 0.5, "cutmix": 1.0, "label_smoothing": 0.1, "ema": 0.99,
    "layer_decay": 0.8, "optimizer": "sgd", "lr": 0.05, "schedule": "constant", "weight_decay_on": "all",
}  # fmt: skip
RESUMED: list[dict[str, Any]] = [
    EVERYTHING,
    EVERYTHING | {"precision": "bf16"},
    EVERYTHING | {"optimizer": "adamw", "micro_batch": 7},
    {"stem.patches": [1, 2, 4], "dropout": 0.1},
    {"stem": "conv", "stem.norm": "batch"},
    {"model": "timm/test_resnet", "dropout": 0.5},
]


@pytest.mark.parametrize("settings", RESUMED)
def test_training_resumes_bit_exactly(settings: dict[str, Any]) -> None:
    config = combined(**settings)
    whole = finished(config)
    torch.manual_seed(7)  # no draw depends on the global generator
    assert_same(finished(config, 3, 2), whole)


def test_micro_batches_see_the_noise_of_the_whole_batch() -> None:
    training = advanced(combined(**(EVERYTHING | {"head_init": "lecun-normal"})))
    training.model.double()
    images, targets, keys = training.batch()
    batch = Batch(images.double(), targets.double(), keys)
    losses, gradients = [], []
    for size in (24, 12, 7, 1):
        losses.append(training.train_step.backward(batch, size).item())
        gradients.append([parameter.grad.clone() for parameter in training.model.parameters()])
    for parts in gradients[1:]:
        torch.testing.assert_close(parts, gradients[0], rtol=1e-9, atol=1e-12)
    assert losses == pytest.approx([losses[0]] * 4)


def test_augmented_images_reach_the_model() -> None:
    """The batch is the augmentation's bytes, standardized; validation images are never augmented."""
    config = combined(augment="randaugment")
    data = load(config)
    training, plain = Training(config, data), Training(combined(), data)
    chosen = data.train.pixels[training.batches.order.indices(0, 24)]
    keys = training.batch().rng_keys
    torch.testing.assert_close(training.batch().images, data.standardize(AUGMENT["randaugment"](config)(chosen, keys)))
    assert not torch.equal(training.batch().images, plain.batch().images)
    assert score(training, data.val)[0] == score(plain, data.val)[0]


def test_bf16_computes_products_in_bf16_and_losses_in_float32() -> None:
    """Logits and parameters are float32, dense layers in between are not; the loss is near that of float32."""
    training = advanced(combined(precision="bf16", head_init="lecun-normal"))
    seen: list[torch.dtype] = []
    up = training.model.encoder.blocks[0].mlp.up
    up.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    batch = training.batch()
    assert training.forward(batch.images).dtype == torch.float32
    assert seen == [torch.bfloat16]
    exact = Training(combined(head_init="lecun-normal"), training.data)
    losses = [one.train_step.mean_loss(batch).item() for one in (training, exact)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    training.train_step.backward(batch, 24)
    assert {p.grad.dtype for p in training.model.parameters() if p.grad is not None} == {torch.float32}
    score(training, training.data.val)
    assert set(seen) == {torch.bfloat16}


@pytest.mark.slow
def test_compiled_training_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model traced by dynamo has the eager model's names and losses, in evaluations and checkpoints too."""
    without_kernels = Mock(side_effect=partial(compile_model, backend="aot_eager"))
    monkeypatch.setattr(step, "compile_model", without_kernels)
    settings = EVERYTHING | {"steps": 2, "evaluations": 1, "depth": 1}
    expected = train(combined(**settings)).metrics
    assert train(combined(**settings, compile=True)).metrics == pytest.approx(expected, rel=1e-3)
    without_kernels.assert_called_once()
