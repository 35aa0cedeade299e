"""The pulse of a worker: a thread that says that its process runs, and ends it when its parent is gone.

A stopped process has no pulse, so the pool can tell it from one that compiles or evaluates for long. The thread runs
while the main thread builds a model or waits for a device, which step boundaries do not.
"""

import os
import threading
import time
from collections.abc import Callable

BEAT_SECONDS = 5.0
ORPHAN_SECONDS = 60.0  # for the last checkpoint, as much as the pool grants (runner.STOP_SECONDS)
ORPHANED = 3  # exit status


def start(parent: int, beat: Callable[[], None]) -> None:
    """Call `beat` every few seconds for as long as `parent` lives."""
    threading.Thread(target=keep, args=(parent, beat), daemon=True).start()


def keep(parent: int, beat: Callable[[], None]) -> None:
    while os.getppid() == parent:
        beat()
        time.sleep(BEAT_SECONDS)
    time.sleep(ORPHAN_SECONDS)
    os._exit(ORPHANED)
