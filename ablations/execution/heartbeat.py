"""The heartbeat of a worker: a thread that reports every few seconds and ends the process if it is orphaned.

It runs while the main thread builds a model or waits for a device. So the pool can tell a stopped process from one that
spends a long time compiling.
"""

import os
import threading
import time
from collections.abc import Callable

BEAT_SECONDS = 5.0
ORPHAN_SECONDS = 60.0  # for the last checkpoint, as long as runner.STOP_SECONDS
ORPHANED = 3  # exit status


def start(parent: int, beat: Callable[[], None]) -> None:
    """Start a thread that calls `beat` every BEAT_SECONDS while the process with the id `parent` lives.

    ORPHAN_SECONDS after the parent has ended, the thread ends this process.
    """

    def run() -> None:
        while os.getppid() == parent:
            beat()
            time.sleep(BEAT_SECONDS)
        time.sleep(ORPHAN_SECONDS)
        os._exit(ORPHANED)

    threading.Thread(target=run, daemon=True).start()
