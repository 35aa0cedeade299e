"""The command `ablate`, in an empty folder."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_process import Ablate
from run_trials import called_serially
from waits import MARK, left


@pytest.fixture
def ablate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    """Return the command, run in `tmp_path`: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: called_serially(monkeypatch, *words)


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Mark all processes that the test starts, and kill those that are left."""
    monkeypatch.setenv(MARK, mark := os.urandom(8).hex())
    yield mark
    for pid in left(mark):
        os.kill(pid, signal.SIGKILL)
