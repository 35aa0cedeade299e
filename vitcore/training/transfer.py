"""Starting training from the weights of another trial or a file (`init_from`)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from torch import Tensor

from vitcore.interop.weight_files import check_fit, read_fitting, read_tensor_file
from vitcore.model.build import Model, Reference, build
from vitcore.options import ConfigError
from vitcore.settings import Settings
from vitcore.training.parents import NONE, is_trial

Weights = Mapping[str, Tensor]
LEFT_BEHIND = ("head.", "objective.")  # parameters of the earlier task


def read_weights(path: str) -> Weights:
    """Return the weights in a safetensors file of this package, or in an .npz of big_vision or vision_transformer.

    Raises ConfigError if the file cannot be read.
    """
    from vitcore.interop.npz import load_npz  # late: most training runs do not need it

    try:
        if path.endswith(".npz"):
            return load_npz(path).state_dict()
        return read_tensor_file(path)
    except OSError as error:
        raise ConfigError(f"init_from={path}: {error.strerror or error}") from None
    except (SafetensorError, ValueError) as error:
        raise ConfigError(f"init_from={path}: cannot be read: {error}") from None


def weights_for(config: Settings, parent: bytes | None) -> Weights | None:
    """Return the weights from which training starts, or None for initial values.

    parent: the weights of a trial, as safetensors. Raises ConfigError if the weights are missing or cannot be read.
    """
    if config.init_from == NONE:
        return None
    if not is_trial(config.init_from):
        return read_weights(config.init_from)
    if parent is None:
        raise ConfigError(f"init_from={config.init_from}: the weights of that trial are missing")
    return read_fitting(parent, {}, f"init_from={config.init_from}")


@torch.no_grad()
def copy_weights(model: Model, weights: Weights, source: str) -> None:
    """Copy `weights` into `model`, except the head and the objective. source: name of the weights in error messages.

    Learned position embeddings are interpolated to the model's grid (arXiv 2010.11929, section 3.2). Raises ConfigError
    if a parameter is missing or unknown, or if its shape differs and cannot be interpolated.
    """
    assert not isinstance(model, Reference), "a config does not start a reference model from weights"
    parameters = body_weights(model.state_dict())
    initial = body_weights(weights)
    for name in [*initial, *parameters]:
        if name not in parameters:
            raise ConfigError(f"init_from={source}: it has {name}, which this model lacks")
        if name not in initial:
            raise ConfigError(f"init_from={source}: it lacks {name}, which this model has")
    for name, values in initial.items():
        if values.shape != parameters[name].shape and name.startswith("position."):
            values = model.position.resized(name.removeprefix("position."), values)
        check_fit(f"init_from={source}", name, values, parameters[name])
        parameters[name].copy_(values)


def body_weights(weights: Weights) -> dict[str, Tensor]:
    return {name: values for name, values in weights.items() if not name.startswith(LEFT_BEHIND)}


def check(config: Settings, parent: Settings | Weights) -> None:
    """Raise ConfigError if `config` cannot start from `parent`, which is the config of a trial or the weights."""
    with torch.device("meta"):
        model = build(config)
        weights = parent if isinstance(parent, Mapping) else build(parent).state_dict()
        shapes = {name: values.to("meta") for name, values in weights.items()}
        copy_weights(model, shapes, config.init_from)
