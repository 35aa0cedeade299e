"""Reader of safetensors of any version, with parameters renamed to their current names."""

import re
from collections.abc import Mapping

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from vitcore.data.files import open_regular
from vitcore.options import ConfigError

RENAMED = re.compile(r"\.add(\d)\.scale\b")  # until 0.11; now ".scale1.gamma"


def read_tensors(payload: bytes) -> dict[str, Tensor]:
    """Load the tensors of a trial's weights or checkpoint. Raises SafetensorError for other bytes."""
    return renamed(safetensors.torch.load(payload))


def read_fitting(payload: bytes, own: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return the tensors in `payload`, which has all of `own` in equal shapes, and may have more.

    what: start of the error message. Raises ConfigError naming the first tensor that is missing or does not fit.
    """
    try:
        tensors = read_tensors(payload)
    except SafetensorError as error:
        raise ConfigError(f"{what}: cannot be read: {error}") from None
    for name, tensor in own.items():
        if name not in tensors:
            raise ConfigError(f"{what}: {name} is missing")
        check_fit(what, name, tensors[name], tensor)
    return tensors


def check_fit(what: str, name: str, tensor: Tensor, own: Tensor) -> None:
    """Raise ConfigError for a tensor of another shape than `own`, or of integers in the place of floats."""
    if (tensor.shape, tensor.is_floating_point()) != (own.shape, own.is_floating_point()):
        there, here = (f"{str(one.dtype).removeprefix('torch.')} {tuple(one.shape)}" for one in (tensor, own))
        raise ConfigError(f"{what}: {name} is {there}, not {here}")


def read_tensor_file(path: str) -> dict[str, Tensor]:
    """Load the tensors of a file. Raises SafetensorError, or OSError, also for a pipe or a device."""
    with open_regular(path):
        return renamed(safetensors.torch.load_file(path))


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {RENAMED.sub(r".scale\1.gamma", name): tensor for name, tensor in tensors.items()}
