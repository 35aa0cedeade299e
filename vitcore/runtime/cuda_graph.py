"""Capturing a function of tensors at fixed addresses as a CUDA graph: one launch instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor


def capture(function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Return a function that repeats all launches of `function`, and the tensor that holds the result.

    Nothing is computed yet. Raises the errors of `function`, and RuntimeError if it reads a value from the GPU or has
    no fixed shapes. Run it in `without_waiting` first: PyTorch before 2.14 leaks memory after a failed capture. Other
    threads may use the GPU during a capture.
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
    """Raise RuntimeError for operations within the block that wait for the GPU, which no graph can hold."""
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
    """Run the block on a side stream, as autograd and the libraries require before a capture."""
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
