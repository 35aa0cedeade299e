"""Evals, which compute metrics or data for figures from the weights of a finished trial.

To add an eval, write a function and add it to EVAL. Upper-case letters at the end of a key stand for a positive
integer: the eval `test@16` belongs to the entry `test@SIZE`. A metric's name starts with its eval's name before "@". It
ends with the same "@VALUE", if any (see results.store.eval_files.computes_metric). No trial itself has that metric.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from commonfloor.options import ConfigError
from vitcore.analysis.interpret import IMAGES, inspect
from vitcore.data.shuffle import Indices, class_indices
from vitcore.data.splits import Data, Images, load
from vitcore.model.build import Model, Reference, build, check_patch, zero_model
from vitcore.model.vit import ViT
from vitcore.runtime.device import compute_in_precision, device_of
from vitcore.runtime.memory import evaluation_batch
from vitcore.settings import Settings
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.pretrained import read_fitting

SHOTS = (1, 5, 10, 25)  # images per class
DRAWS = 3  # number of random subsets of images over which an accuracy is averaged
L2 = 2.0**10  # penalty on the weights
BIAS = 100.0  # value of a constant feature, so large that the penalty on its weights is negligible
EPSILON = 1e-5  # added to the standard deviation of each feature


@dataclass(frozen=True)
class Computed:
    metrics: dict[str, float]  # name -> value
    notes: list[str] = field(default_factory=list)  # sentences, such as why a metric is omitted
    details: dict[str, Any] = field(default_factory=dict)  # further content of the eval's JSON file
    arrays: dict[str, np.ndarray] | None = None  # name -> array; None if there are none


def restore_model(config: Settings, weights: bytes) -> Model:
    """Return the trained model on its config's device, in evaluation mode.

    weights: the content of a safetensors file. Raises ConfigError if they cannot be read or do not fit the model.
    """
    model = build(config)
    parameters = model.state_dict()
    tensors = read_fitting(weights, parameters, "weights")
    unknown = tensors.keys() - parameters
    if unknown:
        raise ConfigError(f"weights: {min(unknown)} is no parameter of this model")
    model.load_state_dict(tensors)
    return model.to(device_of(config)).eval()


def trial_data(model: Model, data_dir: Path | None = None) -> Data:
    """Return the data of the model's trial, on the model's device."""
    return load(model.config, data_dir).to(next(model.parameters()).device)


@torch.no_grad()
def batch_outputs(function: Callable[[Tensor], Tensor], config: Settings, data: Data, images: Images) -> Tensor:
    """Return the outputs (n, ...) of `function` for images standardized as in `data`, in the precision of `config`."""
    batches = images.batches(evaluation_batch(config, data.mean.device))
    return torch.cat([compute_in_precision(config, function, data.standardize(some)) for some in batches])


@dataclass(frozen=True)
class Probe:
    """A linear classifier on standardized features, in float64."""

    mean: Tensor  # (D,)
    std: Tensor  # (D,)
    weights: Tensor  # (D + 1, K), the last row for the constant feature BIAS

    @classmethod
    def fit(cls, features: Tensor, labels: Tensor, classes: int) -> Probe:
        """Return a ridge regression to {-1, 1} targets, fitted to features (n, D) and labels (n,) on the CPU."""
        features = features.double()
        mean = features.mean(dim=0)
        std = features.std(dim=0, correction=0) + EPSILON
        x = with_bias((features - mean) / std)  # (n, D + 1)
        targets = 2 * F.one_hot(labels, classes).double() - 1  # (n, K)
        return cls(mean, std, torch.linalg.solve(x.T @ x + L2 * torch.eye(x.shape[1], dtype=x.dtype), x.T @ targets))

    def scores(self, features: Tensor) -> Tensor:
        """Return the scores (n, K) of n images for K classes, from features (n, D) on the CPU."""
        return with_bias((features.double() - self.mean) / self.std) @ self.weights


def with_bias(x: Tensor) -> Tensor:
    return F.pad(x, (0, 1), value=BIAS)


def few_shot(model: Model, data: Data) -> Computed:
    """Return the test accuracy of probes fitted to SHOTS random training images per class, averaged over draws.

    The details hold the accuracy of each draw. A number is omitted, with a note, if a class has fewer training images.
    The images for a smaller number are a subset of those for a larger one. Draws depend only on the data and the
    trial's data seed, so that paired arms share them. data: on the model's device, as from `trial_data`.
    """
    metrics: dict[str, float] = {}
    notes: list[str] = []
    draws: dict[str, list[float]] = {}
    classes = model.config.classes
    labels = data.train.labels.cpu().numpy()
    scarcest = np.bincount(labels, minlength=classes)
    tested = features(model, data, data.test)  # (n, D)
    for count in SHOTS:
        name = f"fewshot{count}_accuracy"
        if scarcest.min() < count:
            notes.append(f"{name} is left out: class {scarcest.argmin()} has {scarcest.min()} training images")
            continue
        for draw in range(DRAWS):
            support_set = data.train.select(support(labels, count, model.config.data_seed, draw))
            seen = features(model, data, support_set)  # (count * K, D)
            probe = Probe.fit(seen, support_set.labels.cpu(), classes)
            right = probe.scores(tested).argmax(dim=1) == data.test.labels.cpu()
            draws.setdefault(name, []).append(right.double().mean().item())
        metrics[name] = float(np.mean(draws[name]))
    return Computed(metrics, notes, {"draws": draws})


def support(labels: Indices, count: int, data_seed: int, draw: int) -> Indices:
    """Return the indices (count * K,) of `count` random images of each of K classes, from labels (n,)."""
    groups = class_indices(labels, np.arange(len(labels)), "few-shot", data_seed, draw)
    return np.concatenate([group[:count] for group in groups])


def features(model: Model, data: Data, images: Images) -> Tensor:
    """Return the pre-logits (n, D) of n images, the inputs of the head's last layer, on the CPU."""
    return batch_outputs(model.features, model.config, data, images).cpu()


class EvalKind(NamedTuple):
    """The metrics and functions of an eval. The functions receive the integer in the eval's name, or else 0.

    compute: raises ValueError if data are missing or damaged, or if the eval does not apply to the model, or OSError if
    a read fails. check: raises ConfigError if the eval does not apply to the model of a config.
    """

    metrics: tuple[str, ...]  # names of the metrics, such as `test_loss@SIZE` for `test@SIZE`
    compute: Callable[[Model, int, Path | None], Computed]  # arguments: model, integer, data directory
    check: Callable[[Settings, int], None] = lambda config, number: None


def few_shot_eval(model: Model, _: int, data_dir: Path | None) -> Computed:
    return few_shot(model, trial_data(model, data_dir))


def inspect_eval(model: Model, images: int, data_dir: Path | None) -> Computed:
    """Return attention distances and other internals of a ViT for at most `images` test images (0: IMAGES)."""
    if isinstance(model, Reference):
        raise ValueError(f"model={model.config.model}: only a ViT of this package can be inspected")
    images = images or IMAGES
    arrays, facts = inspect(model, trial_data(model, data_dir), images)
    return Computed({}, details={"asked": images, **facts}, arrays=arrays)


def size_eval(model: Model, size: int, data_dir: Path | None = None) -> Computed:
    """Return the test accuracy and loss on images of `size` x `size` pixels, resized from the originals or a pack."""
    check_size(model.config, size)
    trained = trial_data(model, data_dir)
    resized = load(model.config.model_copy(update={"image_size": size}), data_dir).test.to(trained.mean.device)
    return test_metrics(model, trained, resized, f"{size}")


def patch_eval(model: Model, patch: int, data_dir: Path | None = None) -> Computed:
    """Return the test accuracy and loss on images cut into patches of `patch` x `patch` pixels."""
    check_patch(model.config, patch)
    assert isinstance(model, ViT), "check_patch takes no other"
    trained = trial_data(model, data_dir)
    with model.at_patch(patch):
        return test_metrics(model, trained, trained.test, f"patch{patch}")


def test_metrics(model: Model, trained: Data, images: Images, how: str) -> Computed:
    """Return test_accuracy@HOW and test_loss@HOW on `images`, which are standardized like the trial's data `trained`.

    how: the part of the metrics' names after "@". Raises ConfigError if the objective does not predict classes.
    """
    if not OBJECTIVE[model.config.objective].labels:
        raise ConfigError(f"eval test@{how}: objective={model.config.objective} gives images no class")
    logits = batch_outputs(model, model.config, trained, images)  # (n, classes)
    correct = logits.argmax(dim=1) == images.labels
    accuracy = correct.float().mean().item()
    loss = F.cross_entropy(logits, images.labels).item()
    return Computed({f"test_accuracy@{how}": accuracy, f"test_loss@{how}": loss})


def check_size(config: Settings, size: int) -> None:
    if not config.model and (size < config.patch or size % config.patch):
        raise ConfigError(f"images of {size} pixels: patch={config.patch} does not divide them")
    model, images = zero_model(config, size)
    try:
        with torch.no_grad():
            model(images)
    except (RuntimeError, AssertionError) as error:  # a part of the model does not take the shape
        what = f"model={config.model}" if config.model else f"position={config.position}"
        raise ConfigError(f"images of {size} pixels: {what} does not take them ({error})") from None


EVAL: dict[str, EvalKind] = {
    "fewshot": EvalKind(tuple(f"fewshot{shots}_accuracy" for shots in SHOTS), few_shot_eval),
    "inspect": EvalKind((), inspect_eval),
    "test@SIZE": EvalKind(("test_accuracy@SIZE", "test_loss@SIZE"), size_eval, check_size),
    "test@patchP": EvalKind(("test_accuracy@patchP", "test_loss@patchP"), patch_eval, check_patch),
}


def find(name: str) -> tuple[EvalKind, int]:
    """Return (entry of EVAL, integer in the name or 0) for an eval's name; raise ValueError if it is unknown."""
    for pattern, entry in EVAL.items():
        number = placeholder_digits(name, pattern)
        if number is not None:
            return entry, int(number or 0)
    raise ValueError(f"evals: {name}: one of {', '.join(EVAL)}")


def eval_of(metric: str) -> str:
    """Return the name of the eval that computes a metric, or "" if no eval does."""
    for entry, entry_of_eval in EVAL.items():
        for pattern in entry_of_eval.metrics:
            number = placeholder_digits(metric, pattern)
            if number is not None:
                return placeholder_free(entry) + number
    return ""


def metrics_of(name: str) -> list[str]:
    """Return the names of the metrics that an eval computes, such as test_loss@16 for test@16."""
    entry, number = find(name)
    if not number:
        return list(entry.metrics)
    return [f"{placeholder_free(pattern)}{number}" for pattern in entry.metrics]


def placeholder_digits(name: str, pattern: str) -> str | None:
    """Return the digits of `name` at the placeholder in `pattern`: "" without a placeholder, None without a match."""
    fixed = placeholder_free(pattern)
    value = r"[1-9]\d*" if fixed != pattern else ""
    match = re.fullmatch(f"{re.escape(fixed)}({value})", name)
    return match and match[1]


def placeholder_free(pattern: str) -> str:
    return pattern.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
