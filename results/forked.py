"""A function of many items, by several processes at once; forked, so that each begins with what is loaded.

Each takes a share, and another one when it is done, as long as there are any. What no process could be had for, and
what one was ended at, the one that asked does itself: a limit of memory or of processes costs time, nothing else. Pipes
alone join them: not every machine has semaphores to share.
"""

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")
TICKET = 4  # bytes
MOST = 1000  # tickets: they fit the smallest pipe, a page, which cuts none in two


@dataclass(frozen=True)
class Work(Generic[Item, Found]):
    """function: of each of the items. tickets: a pipe with the numbers of the shares, of `size` items, to be taken."""

    function: Callable[[Item], Found]
    items: Sequence[Item]
    size: int
    tickets: int

    def share(self, number: int) -> list[Found]:
        return [self.function(item) for item in self.items[number * self.size : (number + 1) * self.size]]

    def taken(self) -> dict[int, list[Found]]:
        """The shares that this process comes to before the others, by number."""
        found = {}
        while ticket := os.read(self.tickets, TICKET):
            number = int.from_bytes(ticket, "big")
            found[number] = self.share(number)
        return found


@dataclass(frozen=True)
class Helper:
    """A process that takes shares, and where it tells what came out."""

    process: BaseProcess
    pipe: Connection

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def each(
    function: Callable[[Item], Found],
    items: Sequence[Item],
    processes: int,
    share: int,
    meanwhile: Callable[[], object],
) -> list[Found]:
    """function(item) of each, in order; what it raises is raised here.

    processes: at most, this one among them. share: so many items at a time, or more. meanwhile: what this process does
    before it takes its shares too.
    """
    size = max(share, -(-len(items) // MOST))
    count = -(-len(items) // size)
    work = Work(function, items, size, written(b"".join(number.to_bytes(TICKET, "big") for number in range(count))))
    helpers: list[Helper] = []
    try:
        while len(helpers) < processes - 1 and (helper := begun(work)):
            helpers.append(helper)
        meanwhile()
        found = work.taken()
        for helper in helpers:
            found |= told(helper)
        return [one for number in range(count) for one in found.get(number) or work.share(number)]
    finally:
        os.close(work.tickets)
        for helper in helpers:
            helper.end()


def written(content: bytes) -> int:
    """A pipe from which that is to be read, once."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return reading


def begun(work: Work[Item, Found]) -> Helper | None:
    """None where the system has no process to give."""
    forking = multiprocessing.get_context("fork")
    try:
        receiving, sending = forking.Pipe(duplex=False)
        process = forking.Process(target=tell, args=(work, sending, receiving), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's: of threads, which no helper waits for
            process.start()
    except OSError:
        return None
    sending.close()
    return Helper(process, receiving)


def tell(work: Work[Item, Found], sending: Connection, receiving: Connection) -> None:
    """What a helper does: it ends without a word where it cannot, or where nobody listens any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked has a line for people
    receiving.close()
    with suppress(Exception):  # the process that asked comes to the same error, and raises it
        sending.send(work.taken())


def told(helper: Helper) -> dict[int, list[Found]]:
    """The shares that it took; nothing where it is gone."""
    try:
        found: dict[int, list[Found]] = helper.pipe.recv()
    except (EOFError, OSError):
        return {}
    return found
