"""Capture a function of tensors at fixed addresses as one CUDA graph: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor


def capture(function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Return a function that repeats all launches of `function`, and the tensor that holds its result.

    Nothing is computed yet. Raises whatever the function raises, and RuntimeError where it reads a value from the GPU
    or has no fixed shapes. Call it `without_waiting` first: PyTorch before 2.14 does not recover all memory after a
    failed capture. Other threads may use the GPU meanwhile, such as those that read images ahead.
    """
    graph = torch.cuda.CUDAGraph()
    here = torch.cuda.current_stream()
    reason: Exception | None = None
    try:
        # The outer one: after a capture that failed, PyTorch may stay on the stream of the capture.
        with torch.cuda.stream(here), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            try:
                result = function()
            except Exception as error:
                reason = error  # to end an invalid capture raises another one, which says less
                raise
        return graph.replay, result
    except Exception as error:
        raise (reason or error) from None
    finally:
        reason = None  # an error that refers to this frame would keep the graph's memory


@contextmanager
def without_waiting(device: torch.device) -> Iterator[None]:
    """Raise RuntimeError within the block for operations that make the host wait for a GPU: no graph can hold them."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with catch_warnings():
        simplefilter("ignore")  # PyTorch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@contextmanager
def on_side_stream(device: torch.device) -> Iterator[None]:
    """Run the block on a side stream, which autograd and the libraries need before a capture."""
    here, side = torch.cuda.current_stream(device), side_stream(device)
    side.wait_stream(here)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        here.wait_stream(side)  # after an error too: what was launched still writes


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
