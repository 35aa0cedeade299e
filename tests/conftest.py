"""Settings of every test process."""

import gc
import signal
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest
from in_process import Ablate, called

signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C ends a command, also where a shell ignores it


@pytest.fixture
def ablate(monkeypatch: pytest.MonkeyPatch) -> Ablate:
    """Return the command, run in this process: exit status, standard output, standard error."""
    return partial(called, monkeypatch)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect tests without collecting garbage, a fifth of the time, and keep their objects out of later collections.

    `make test` ends within five minutes: statsmodels collects all garbage at every correction.
    """
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result
