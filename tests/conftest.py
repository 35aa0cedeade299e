"""Settings of every test process."""

import gc
import signal
from functools import partial

import pytest
from in_process import Ablate, called

signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C ends a command, also where a shell ignores it


@pytest.fixture
def ablate(monkeypatch: pytest.MonkeyPatch) -> Ablate:
    """Return the command, run in this process: exit status, standard output, standard error."""
    return partial(called, monkeypatch)


def pytest_collection_finish() -> None:
    gc.freeze()  # `make test` within five minutes: statsmodels collects all garbage at every correction
