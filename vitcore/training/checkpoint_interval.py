"""The schedule of a training run's checkpoints."""

import time
from collections.abc import Callable

SECONDS = 2.0  # default time between two checkpoints
SHARE = 0.02  # largest fraction of the time that writing checkpoints may take


class CheckpointSchedule:
    """A schedule that says when a checkpoint is due and calls `write` to save it.

    seconds: the minimum time between two checkpoints, longer after a slow write. 0: a checkpoint is always due.
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
