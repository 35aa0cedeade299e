"""Capturing a function as a CUDA graph, so that a single launch starts its hundreds of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor


def capture(function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Return (function that replays all kernels of `function`, tensor that will hold the result of each replay).

    The capture computes nothing. The tensors that `function` reads must stay at their addresses. Before a capture, run
    `function` in `without_waiting`, because PyTorch before 2.14 leaks memory after a failed capture. Raises the error
    of `function`, or RuntimeError if `function` reads a value from the GPU or has variable shapes.
    """
    graph = torch.cuda.CUDAGraph()
    here = torch.cuda.current_stream()
    reason: Exception | None = None
    try:
        # The outer stream context: after a failed capture, PyTorch may stay on the stream of the capture.
        with torch.cuda.stream(here), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            try:
                result = function()
            except Exception as error:
                reason = error  # the end of an invalid capture raises another error, which says less
                raise
        return graph.replay, result
    except Exception as error:
        raise (reason or error) from None
    finally:
        reason = None  # an error that refers to this frame would keep the graph's memory


@contextmanager
def without_waiting(device: torch.device) -> Iterator[None]:
    """Make operations that wait for a GPU raise RuntimeError in the block, because no CUDA graph can contain them."""
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
    """Run the block on a second CUDA stream, as PyTorch requires of the warm-up before a capture."""
    here, side = torch.cuda.current_stream(device), side_stream(device)
    side.wait_stream(here)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        here.wait_stream(side)  # after an error too, because launched kernels still write


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
