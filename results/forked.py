"""A function of many items, by several processes at once; forked, so that each begins with what is loaded.

What no process could be had for, and what one was ended at, this process does itself: a limit of memory or of processes
costs time, nothing else. Pipes alone join them: not every machine has semaphores to share.
"""

import multiprocessing
import signal
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Helper:
    """A process that does a share, and where it tells what came out."""

    process: BaseProcess
    pipe: Connection

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def each(
    function: Callable[[Item], Found], items: Sequence[Item], processes: int, meanwhile: Callable[[], object]
) -> list[Found]:
    """function(item) of each, in order; what it raises is raised here. meanwhile: done here while others are at it."""
    size = -(-len(items) // processes)
    shares = [items[start : start + size] for start in range(0, len(items), size)]
    helpers: list[Helper | None] = []
    try:
        helpers += (begun(function, share) for share in shares)
        meanwhile()
        return [one for share, helper in zip(shares, helpers, strict=True) for one in done(function, share, helper)]
    finally:
        for helper in filter(None, helpers):
            helper.end()


def begun(function: Callable[[Item], Found], share: Sequence[Item]) -> Helper | None:
    """None where the system has no process to give."""
    forking = multiprocessing.get_context("fork")
    try:
        receiving, sending = forking.Pipe(duplex=False)
        process = forking.Process(target=tell, args=(function, share, sending, receiving), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's: of threads, which no helper waits for
            process.start()
    except OSError:
        return None
    sending.close()
    return Helper(process, receiving)


def tell(function: Callable[[Item], Found], share: Sequence[Item], sending: Connection, receiving: Connection) -> None:
    """What a helper does: it ends without a word where it cannot, or where nobody listens any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked has a line for people
    receiving.close()
    with suppress(Exception):  # the process that asked comes to the same error, and raises it
        sending.send([function(item) for item in share])


def done(function: Callable[[Item], Found], share: Sequence[Item], helper: Helper | None) -> list[Found]:
    """What came out of a share; done here where its helper is gone."""
    try:
        if helper is not None:
            found: list[Found] = helper.pipe.recv()
            return found
    except (EOFError, OSError):
        pass
    return [function(item) for item in share]
