"""How a command that holds something of SLURM's is ended from outside."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def told_to_leave() -> Iterator[None]:
    """SIGTERM and SIGHUP end the process as an exception does, which cleans up on its way."""

    def leave_now(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    saved = {number: signal.signal(number, leave_now) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
