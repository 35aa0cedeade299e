"""Clean up when a command that has jobs in the queue is terminated."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that `finally` blocks clean up."""

    def leave_now(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    saved = {number: signal.signal(number, leave_now) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
