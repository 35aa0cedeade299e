"""Reading safetensors written by any version: parameters come under the names that they have today."""

import re

import safetensors.torch
from torch import Tensor

from vitcore.data.files import open_regular

RENAMED = re.compile(r"\.add(\d)\.scale\b")  # until 0.11; now ".scale1.gamma"


def read_tensors(payload: bytes) -> dict[str, Tensor]:
    """The tensors of a trial's weights or checkpoint. Raises SafetensorError for bytes of another kind."""
    return renamed(safetensors.torch.load(payload))


def read_tensor_file(path: str) -> dict[str, Tensor]:
    """The tensors in a file. Raises OSError, also for a pipe or a device; SafetensorError."""
    with open_regular(path):
        return renamed(safetensors.torch.load_file(path))


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {RENAMED.sub(r".scale\1.gamma", name): tensor for name, tensor in tensors.items()}
