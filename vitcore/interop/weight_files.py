"""Reads safetensors of any version, with parameters renamed to their current names."""

import re

import safetensors.torch
from torch import Tensor

from vitcore.data.files import open_regular

RENAMED = re.compile(r"\.add(\d)\.scale\b")  # until 0.11; now ".scale1.gamma"


def read_tensors(payload: bytes) -> dict[str, Tensor]:
    """Load the tensors of a trial's weights or checkpoint. Raises SafetensorError for other bytes."""
    return renamed(safetensors.torch.load(payload))


def read_tensor_file(path: str) -> dict[str, Tensor]:
    """Load the tensors of a file. Raises SafetensorError, and OSError, also for a pipe or a device."""
    with open_regular(path):
        return renamed(safetensors.torch.load_file(path))


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {RENAMED.sub(r".scale\1.gamma", name): tensor for name, tensor in tensors.items()}
