"""Reading safetensors written by any version: parameters come under the names that they have today."""

import re

import safetensors.torch
from torch import Tensor

RENAMED = re.compile(r"\.add(\d)\.scale\b")  # until 0.11; now ".scale1.gamma"


def read_tensors(payload: bytes) -> dict[str, Tensor]:
    """The tensors of a trial's weights or checkpoint. Raises SafetensorError for bytes of another kind."""
    return renamed(safetensors.torch.load(payload))


def read_tensor_file(path: str) -> dict[str, Tensor]:
    """The tensors in a file. Raises OSError and SafetensorError."""
    return renamed(safetensors.torch.load_file(path))


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {RENAMED.sub(r".scale\1.gamma", name): tensor for name, tensor in tensors.items()}
