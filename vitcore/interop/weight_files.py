"""Reading safetensors files from any version of this package, with parameters under their current names."""

import re
from collections.abc import Mapping

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from vitcore.data.files import open_regular
from vitcore.options import ConfigError

RENAMED = re.compile(r"\.add(\d)\.scale\b")  # names until version 0.11, such as ".add1.scale"; now ".scale1.gamma"


def read_tensors(payload: bytes) -> dict[str, Tensor]:
    """Return name -> tensor from the bytes of a safetensors file; raise SafetensorError if they are malformed."""
    return renamed(safetensors.torch.load(payload))


def read_fitting(payload: bytes, own: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return name -> tensor from the bytes of a safetensors file, after checking the tensors that a model needs.

    own: name -> tensor that must be in the file with the same shape. what: the start of the error message. Raises
    ConfigError if the bytes are not safetensors, or if a tensor of `own` is missing or does not fit.
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
    """Raise ConfigError if `tensor` differs in shape from `own`, or if only one of them is floating-point."""
    if (tensor.shape, tensor.is_floating_point()) != (own.shape, own.is_floating_point()):
        raise ConfigError(f"{what}: {name} is {type_and_shape(tensor)}, not {type_and_shape(own)}")


def type_and_shape(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def read_tensor_file(path: str) -> dict[str, Tensor]:
    """Return name -> tensor from a safetensors file; raise OSError or SafetensorError if it cannot be read."""
    with open_regular(path):
        return renamed(safetensors.torch.load_file(path))


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {RENAMED.sub(r".scale\1.gamma", name): tensor for name, tensor in tensors.items()}
