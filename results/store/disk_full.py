"""Retrying of writes while the disk is full, so that nothing is lost once space is freed."""

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")
FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True)
class Patience:
    """A policy for retrying writes while the disk is full.

    seconds: longest wait for space. given_up: called before each wait; True ends the retrying early. tell: called with
    the reason for each wait. pause: seconds between two tries.
    """

    seconds: float = 0.0
    given_up: Callable[[], bool] = lambda: False
    tell: Callable[[str], None] = lambda why: None
    pause: float = 0.5

    def __call__(self, write: Callable[[], Result]) -> Result:
        """Call `write` until it succeeds, and return its result. A failing `write` must leave nothing behind.

        Raises OSError if the disk is still full when the wait ends. Raises any other error of `write` at once.
        """
        deadline = time.monotonic() + self.seconds
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in FULL or time.monotonic() > deadline or self.given_up():
                    raise
                self.tell(error.strerror or "no space left")
            time.sleep(self.pause)
