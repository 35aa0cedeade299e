"""Evals: what is computed from the weights of a finished trial. Here are their base class and what they share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from commonfloor.options import ConfigError
from vitcore.data.splits import Data, Images, load
from vitcore.model.build import Model, build
from vitcore.model.classifier import Classifier
from vitcore.runtime.device import compute_in_precision, device_of
from vitcore.runtime.memory import evaluation_batch
from vitcore.settings import Settings
from vitcore.sizes import MODEL
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.pretrained import read_fitting


@dataclass(frozen=True)
class Computed:
    metrics: dict[str, float]  # name -> value
    notes: list[str] = field(default_factory=list)  # sentences, such as why a metric is omitted
    details: dict[str, Any] = field(default_factory=dict)  # further content of the eval's JSON file
    arrays: dict[str, np.ndarray] | None = None  # name -> array; None if there are none


class Eval:
    """An eval with the value after "@" in its name, or "", as `OtherImages("16")` for test@16.

    metrics: name -> how the metric is compared and printed, by the fields of results.store.schemas.metrics.Metric. The
    names start with the eval's name. With a value, they end with "@VALUE" as well. No trial itself has such a metric.
    values: what may stand after "@", for messages; upper-case letters stand for a choice, and "" for no value.
    choices: all values one by one, if upper-case letters stand for few.
    example: of what upper-case letters stand for, for checks.
    """

    metrics: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    values: ClassVar[tuple[str, ...]] = ("",)
    choices: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = "4"

    def __init__(self, value: str = "") -> None:
        self.value = value

    @classmethod
    def takes(cls, value: str) -> bool:
        """Return whether the eval exists with this value."""
        return value in cls.values

    @property
    def label_suffix(self) -> str:
        """The text after a metric's label that says what the value means, such as " of the class token"."""
        return ""

    def check(self, config: Settings) -> None:
        """Raise ConfigError if the eval does not apply to the model of a config."""

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        """Return what the eval computes of a trained model, in evaluation mode.

        Raises ValueError if data are missing or damaged, or if the eval does not apply, or OSError if a read fails.
        """
        raise NotImplementedError

    def with_value(self, name: str) -> str:
        """Return the name of the eval or of a metric with this eval's value."""
        return f"{name}@{self.value}" if self.value else name


def restore_model(config: Settings, weights: bytes) -> Model:
    """Return the trained model from safetensors on its config's device; raise ConfigError if weights do not fit."""
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


def features(model: Model, data: Data, images: Images) -> Tensor:
    """Return the pre-logits (n, D) of n images, the inputs of the head's last layer, on the CPU."""
    return batch_outputs(model.features, model.config, data, images).cpu()


def check_predicts_classes(name: str, config: Settings) -> None:
    """Raise ConfigError if the objective of a config does not predict classes. name: of the eval."""
    if not OBJECTIVE[config.objective].labels:
        raise ConfigError(f"eval {name}: objective={config.objective} gives images no class")


def check_has_features(name: str, config: Settings) -> None:
    """Raise ConfigError if the model of a config is a plug-in's without a method `features`. name: of the eval."""
    if config.model in MODEL and MODEL[config.model].features is Classifier.features:
        raise ConfigError(f"eval {name}: model={config.model} has no method features(images)")
