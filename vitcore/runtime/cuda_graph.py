"""A function of tensors that stay where they are, as one CUDA graph: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor


def capture(function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """What repeats all launches of `function`, and the tensor that then holds its result. Nothing is computed yet.

    Raises whatever the function raises, and RuntimeError where it reads a value from the GPU or has no fixed shapes.
    Other threads may use the GPU meanwhile, as those that read images ahead do.
    """
    graph = torch.cuda.CUDAGraph()
    here = torch.cuda.current_stream()
    # The outer one: after a capture that failed, PyTorch may stay on the stream of the capture.
    with torch.cuda.stream(here), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = function()
    return graph.replay, result


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """Run what is inside on a stream of its own, as autograd and the libraries want before a capture."""
    here, side = torch.cuda.current_stream(device), side_stream(device)
    side.wait_stream(here)
    with torch.cuda.stream(side):
        yield
    here.wait_stream(side)


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
