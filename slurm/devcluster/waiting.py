"""A function that waits until a condition is true, such as a state of another process."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(check: Callable[[], T], what: str, timeout: float = 30.0, every: float = 0.1) -> T:
    """Call `check` until its return value is true. Return this value.

    what: the awaited event, for the error message. timeout, every: in seconds. Raises TimeoutError if the value is
    false for longer than `timeout`.
    """
    deadline = time.monotonic() + timeout
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(every)
    return answer
