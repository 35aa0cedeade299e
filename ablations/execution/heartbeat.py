"""The heartbeat of a worker: a thread that reports every few seconds, and ends the process after its parent.

The heartbeat tells the pool a stopped process from one that compiles for long. The thread runs while the main thread
builds a model or waits for a device.
"""

import os
import threading
import time
from collections.abc import Callable

BEAT_SECONDS = 5.0
ORPHAN_SECONDS = 60.0  # for the last checkpoint, as long as runner.STOP_SECONDS
ORPHANED = 3  # exit status


def start(parent: int, beat: Callable[[], None]) -> None:
    """Call `beat` every BEAT_SECONDS while `parent` lives; ORPHAN_SECONDS later, end this process."""

    def run() -> None:
        while os.getppid() == parent:
            beat()
            time.sleep(BEAT_SECONDS)
        time.sleep(ORPHAN_SECONDS)
        os._exit(ORPHANED)

    threading.Thread(target=run, daemon=True).start()
