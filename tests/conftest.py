"""Settings of every test process."""

import gc
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C ends a command, also where a shell ignores it


def pytest_collection_finish() -> None:
    gc.freeze()  # `make test` within five minutes: statsmodels collects all garbage at every correction
