"""Restore a finished trial's model, and test it again at another resolution, with other patches or merged tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.data.splits import Data, Images, load
from vitcore.interop.weight_files import read_fitting
from vitcore.model.build import Model, build, check_patch
from vitcore.model.vit import ViT
from vitcore.options import ConfigError
from vitcore.runtime.device import device_of, in_precision
from vitcore.training.loop import evaluation_batch
from vitcore.training.objectives import OBJECTIVE

if TYPE_CHECKING:
    from vitcore.config import Config


def restored(config: Config, weights: bytes) -> Model:
    """Restore the trained model in evaluation mode, on the device of `config`. weights: safetensors. Raises
    ConfigError.
    """
    model = build(config)
    own = model.state_dict()
    tensors = read_fitting(weights, own, "weights")
    if unknown := tensors.keys() - own:
        raise ConfigError(f"weights: {min(unknown)} is no parameter of this model")
    model.load_state_dict(tensors)
    return model.to(device_of(config)).eval()


def seen_by(model: Model, data_dir: Path | None = None) -> Data:
    """Load the data of the model's trial, on the model's device. Raises what `vitcore.data.splits.load` raises."""
    return load(model.config, data_dir).to(next(model.parameters()).device)


@torch.no_grad()
def batched(function: Callable[[Tensor], Tensor], config: Config, data: Data, images: Images) -> Tensor:
    """Apply `function` to n standardized images, batch by batch, in the precision of the training."""
    batches = images.batches(evaluation_batch(config, data.mean.device))
    return torch.cat([in_precision(config, function, data.standardise(some)) for some in batches])


def at_size(model: Model, size: int, data_dir: Path | None = None) -> dict[str, float]:
    """Return test_accuracy@SIZE and test_loss@SIZE on test images resized from the originals, or from the pack.

    Standardized with the statistics of the training size. Raises ValueError if the model does not accept the size.
    """
    check_size(model.config, size)
    trained = seen_by(model, data_dir)
    resized = load(model.config.model_copy(update={"image_size": size}), data_dir).test.to(trained.mean.device)
    return scored(model, trained, resized, f"{size}")


def at_patch(model: Model, patch: int, data_dir: Path | None = None) -> dict[str, float]:
    """Return test_accuracy@patchP and test_loss@patchP on test images cut into patches of another size.

    Raises ValueError if the model does not accept the size.
    """
    check_patch(model.config, patch)
    assert isinstance(model, ViT), "check_patch takes no other"
    trained = seen_by(model, data_dir)
    with model.at_patch(patch):
        return scored(model, trained, trained.test, f"patch{patch}")


def at_merge(model: Model, count: int, data_dir: Path | None = None) -> dict[str, float]:
    """Return test_accuracy@mergeR and test_loss@mergeR on the test images, merging R tokens in each layer (ToMe).

    Raises ValueError if a part of the model is not defined for merged tokens.
    """
    check_merge(model.config, count)
    merging = build(model.config.model_copy(update={"token_merging": count}))
    merging.load_state_dict(model.state_dict())
    trained = seen_by(model, data_dir)
    return scored(merging.to(trained.mean.device).eval(), trained, trained.test, f"merge{count}")


def scored(model: Model, trained: Data, images: Images, how: str) -> dict[str, float]:
    """Return test_accuracy@HOW and test_loss@HOW on some images. Raises ConfigError for an objective without labels."""
    if not OBJECTIVE[model.config.objective].labels:
        raise ConfigError(f"eval test@{how}: objective={model.config.objective} gives images no class")
    logits = batched(model, model.config, trained, images)  # (n, classes)
    correct = logits.argmax(dim=1) == images.labels
    return {
        f"test_accuracy@{how}": correct.float().mean().item(),
        f"test_loss@{how}": F.cross_entropy(logits, images.labels).item(),
    }


def check_size(config: Config, size: int) -> None:
    """Raise ConfigError if a model of `config` does not accept images of `size`. Allocates nothing."""
    if not config.model and (size < config.patch or size % config.patch):
        raise ConfigError(f"images of {size} pixels: patch={config.patch} does not divide them")
    with torch.device("meta"):
        model = build(config).eval()
        images = torch.empty(1, config.channels, size, size)
    try:
        with torch.no_grad():
            model(images)
    except (RuntimeError, AssertionError) as error:  # shapes that do not fit, whatever part says so
        what = f"model={config.model}" if config.model else f"position={config.position}"
        raise ConfigError(f"images of {size} pixels: {what} does not take them ({error})") from None


def check_merge(config: Config, count: int) -> None:
    """Raise ConfigError if a model of `config` has a part that is not defined for merged tokens."""
    if config.model:
        raise ConfigError(f"token_merging={count}: model={config.model} has none")
    type(config)(**config.model_dump() | {"token_merging": count})


# What an eval test@... is: what computes it, and what raises ConfigError where that cannot be.
TESTS: dict[str, Callable[[Model, int, Path | None], dict[str, float]]] = {
    "": at_size,
    "patch": at_patch,
    "merge": at_merge,
}
CHECKS: dict[str, Callable[[Config, int], None]] = {"": check_size, "patch": check_patch, "merge": check_merge}
