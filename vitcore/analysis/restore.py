"""Restoring the model and the data of a finished trial."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from vitcore.data.splits import Data, Images, load
from vitcore.interop.weight_files import read_fitting
from vitcore.model.build import Model, build
from vitcore.options import ConfigError
from vitcore.runtime.device import compute_in_precision, device_of
from vitcore.runtime.memory import evaluation_batch
from vitcore.settings import Settings


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
