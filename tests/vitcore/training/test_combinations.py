"""The parts around the model together in one training: resume, micro-batches, precision, compilation."""

from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from trainings import advanced, assert_same, finished

from vitcore import Config, train
from vitcore.config import merge
from vitcore.data.augmentation.augment import AUGMENT
from vitcore.data.splits import load
from vitcore.runtime.compile_cache import compiled
from vitcore.training import step
from vitcore.training.loop import Training
from vitcore.training.step import Batch


def tiny(**settings: Any) -> Config:
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
    {"token_merging": 3, "patch": 2, "dropout": 0.1, "drop_path": 0.1},
    {"stem.patches": [1, 2, 4], "dropout": 0.1},
    {"stem": "conv", "stem.norm": "batch"},
    {"model": "timm/test_resnet", "dropout": 0.5},
]


@pytest.mark.parametrize("settings", RESUMED)
def test_training_resumes_bit_exactly(settings: dict[str, Any]) -> None:
    config = tiny(**settings)
    whole = finished(config)
    torch.manual_seed(7)  # no draw depends on the global generator
    assert_same(finished(config, 3, 2), whole)


def test_micro_batches_see_the_noise_of_the_whole_batch() -> None:
    """Dropout, stochastic depth, augmentation and mixed images: the whole batch's gradient in float64, and its loss."""
    training = advanced(tiny(**(EVERYTHING | {"head_init": "lecun-normal"})))
    training.model.double()
    images, targets, keys = training.batch()
    batch = Batch(images.double(), targets.double(), keys)
    losses, gradients = [], []
    for size in (24, 12, 7, 1):
        losses.append(training.train_step.gradients(batch, size).item())
        gradients.append([parameter.grad.clone() for parameter in training.model.parameters()])
    for parts in gradients[1:]:
        torch.testing.assert_close(parts, gradients[0], rtol=1e-9, atol=1e-12)
    assert losses == pytest.approx([losses[0]] * 4)


def test_augmented_images_reach_the_model() -> None:
    """The batch is the augmentation's bytes, standardised; validation images are never augmented."""
    config = tiny(augment="randaugment")
    data = load(config)
    training, plain = Training(config, data), Training(tiny(), data)
    chosen = data.train.pixels[training.order.places(0, 24)]
    keys = training.batch().keys
    torch.testing.assert_close(training.batch().images, data.standardise(AUGMENT["randaugment"](config)(chosen, keys)))
    assert not torch.equal(training.batch().images, plain.batch().images)
    assert training.score(data.val)[0] == plain.score(data.val)[0]


def test_bf16_computes_products_in_bf16_and_losses_in_float32() -> None:
    """Logits and parameters are float32, dense layers in between are not; the loss is near that of float32."""
    training = advanced(tiny(precision="bf16", head_init="lecun-normal"))
    seen: list[torch.dtype] = []
    up = training.model.encoder.blocks[0].mlp.up
    up.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    batch = training.batch()
    assert training.forward(batch.images).dtype == torch.float32
    assert seen == [torch.bfloat16]
    exact = Training(tiny(head_init="lecun-normal"), training.data)
    losses = [one.train_step.mean_loss(batch).item() for one in (training, exact)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    training.train_step.gradients(batch, 24)
    assert {p.grad.dtype for p in training.model.parameters() if p.grad is not None} == {torch.float32}
    training.score(training.data.val)
    assert set(seen) == {torch.bfloat16}


@pytest.mark.slow
def test_compiled_training_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through dynamo and the joint graph, evaluations and checkpoint included: names and losses are those of eager."""
    without_kernels = Mock(side_effect=partial(compiled, backend="aot_eager"))
    monkeypatch.setattr(step, "compiled", without_kernels)
    settings = EVERYTHING | {"steps": 2, "evaluations": 1, "depth": 1}
    expected = train(tiny(**settings)).metrics
    assert train(tiny(**settings, compile=True)).metrics == pytest.approx(expected, rel=1e-3)
    without_kernels.assert_called_once()
