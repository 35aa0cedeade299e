"""Wait for other processes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(check: Callable[[], T], what: str, timeout: float = 30.0, every: float = 0.1) -> T:
    """Return the first true answer of `check`. Raises TimeoutError naming what was waited for."""
    deadline = time.monotonic() + timeout
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(every)
    return answer
