"""Wait on a full disk: once space is freed everything continues, and nothing is lost."""

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")
FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True)
class Patience:
    """A policy for a full disk: how long to wait for space, when to give up earlier, and whom to notify."""

    seconds: float = 0.0
    given_up: Callable[[], bool] = lambda: False
    tell: Callable[[str], None] = lambda why: None
    pause: float = 0.5

    def __call__(self, write: Callable[[], Result]) -> Result:
        """Call `write` again and again while there is no space. It must leave nothing half done. Raises OSError."""
        deadline = time.monotonic() + self.seconds
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in FULL or time.monotonic() > deadline or self.given_up():
                    raise
                self.tell(error.strerror or "no space left")
            time.sleep(self.pause)
