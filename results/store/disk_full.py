"""Wait while the disk is full: once space is freed, writing continues and nothing is lost."""

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")
FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True)
class Patience:
    """A policy for a full disk.

    seconds: how long to wait for space. given_up: whether to stop waiting earlier. tell: receives the reason of each
    wait. pause: seconds between two tries.
    """

    seconds: float = 0.0
    given_up: Callable[[], bool] = lambda: False
    tell: Callable[[str], None] = lambda why: None
    pause: float = 0.5

    def __call__(self, write: Callable[[], Result]) -> Result:
        """Call `write` until there is space for it, and return its result. Raises OSError.

        Other errors than a full disk are raised at once. A `write` that fails must leave nothing behind.
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
