"""How a capture begins and ends, on a CPU, where stand-ins record what is asked of streams."""

from contextlib import nullcontext
from unittest.mock import Mock

import pytest
import torch

from vitcore.runtime import cuda_graph
from vitcore.runtime.cuda_graph import capture, on_side_stream


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The current stream."""
    current = Mock()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: current)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    return current


def test_what_follows_waits_for_the_side_stream_after_an_error_too(here: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state that is put back would otherwise be written by what was launched before."""
    side = Mock()
    monkeypatch.setattr(cuda_graph, "side_stream", lambda device: side)
    with pytest.raises(ValueError, match="a part's own"), on_side_stream(torch.device("cpu")):
        raise ValueError("a part's own")
    side.wait_stream.assert_called_once_with(here)
    here.wait_stream.assert_called_once_with(side)


class Invalid(nullcontext[None]):
    """A capture whose end raises an error that only says that there was another one."""

    def __exit__(self, *error: object) -> None:
        raise RuntimeError("operation failed due to a previous error during capture")


def test_a_failed_capture_says_why_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Mock())
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, capture_error_mode: Invalid())
    with pytest.raises(RuntimeError, match="not permitted"):
        capture(Mock(side_effect=RuntimeError("operation not permitted when stream is capturing")))
    with pytest.raises(RuntimeError, match="previous error"):
        capture(lambda: torch.zeros(()))
