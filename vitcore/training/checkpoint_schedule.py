"""When a training saves a checkpoint: after a number of seconds, and less often if writing is slow."""

import time
from collections.abc import Callable

SECONDS = 2.0  # between two checkpoints, unless the caller says otherwise
SHARE = 0.02  # largest share of the time spent on checkpoints


class CheckpointSchedule:
    """Decides when the next checkpoint is due, and saves it by `write`.

    seconds: least time between two checkpoints. After a slow write, the time is longer, so that writing takes at most
    2% of the time. 0 means that a checkpoint is always due.
    """

    def __init__(self, write: Callable[[], None], seconds: float) -> None:
        self.write, self.seconds, self.pause = write, seconds, seconds
        self.written = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self.written >= self.pause

    def save(self) -> None:
        began = time.monotonic()
        self.write()
        self.written = time.monotonic()
        self.pause = self.seconds and max(self.seconds, (self.written - began) / SHARE)
