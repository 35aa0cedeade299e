"""Where a training computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from vitcore.config import Config


def device_of(config: Config) -> str:
    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return config.device


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """PyTorch's threads on the CPU: more of them change the last bits of a sum, so a trial says how many."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
