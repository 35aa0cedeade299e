"""The end of a process that has done what it was started for."""

import atexit
import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """What was registered for the end is done, but nothing is taken down: with torch that takes Python 0.7 s."""
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # a full disk, a closed pipe: Python's own end says so
        sys.exit(status)
    os._exit(status)
