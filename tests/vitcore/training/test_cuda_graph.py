"""How a capture begins and ends, on a CPU, where streams and graphs only write down what is asked of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from vitcore.runtime import cuda_graph
from vitcore.runtime.cuda_graph import capture, on_side_stream

CPU = torch.device("cpu")


class Stream:
    """Writes down for whom it waits."""

    def __init__(self) -> None:
        self.waits: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waits.append(other)


@contextmanager
def on(stream: object) -> Iterator[None]:
    yield


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> tuple[Stream, Stream]:
    """The current stream, and the one beside it."""
    here, side = Stream(), Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: here)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(cuda_graph, "side_stream", lambda device: side)
    return here, side


def test_what_follows_waits_for_the_side_stream_after_an_error_too(streams: tuple[Stream, Stream]) -> None:
    """The state that is put back would otherwise be written by what was launched before."""
    here, side = streams
    with pytest.raises(ValueError, match="a part's own"), on_side_stream(CPU):
        raise ValueError("a part's own")
    assert (side.waits, here.waits) == ([here], [side])


def test_a_failed_capture_says_why_it_failed(streams: tuple[Stream, Stream], monkeypatch: pytest.MonkeyPatch) -> None:
    """To end an invalid capture raises an error that only says that there was another one."""

    class Invalid:
        def __init__(self, graph: Any, capture_error_mode: str) -> None: ...

        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None:
            raise RuntimeError("operation failed due to a previous error during capture")

    def waiting() -> torch.Tensor:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", Invalid)
    with pytest.raises(RuntimeError, match="not permitted"):
        capture(waiting)
    with pytest.raises(RuntimeError, match="previous error"):
        capture(lambda: torch.zeros(()))
