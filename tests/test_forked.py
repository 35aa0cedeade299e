"""A function of many items, by several processes: as by one, whatever becomes of the others."""

import errno
import multiprocessing
import os
import select
import signal
import threading
import warnings
from collections.abc import Callable

import pytest

from results import forked

HERE = os.getpid()
PATIENCE = 60.0  # seconds, for what takes milliseconds


def square(number: int) -> int:
    return number * number


def refused(number: int) -> int:
    if number == 5:
        raise ValueError("five")
    return number * number


def nothing() -> None:
    pass


class Sign:
    """By which this process waits for what a helper does."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def give(self) -> None:
        os.write(self.writing, b".")

    def wait(self) -> None:
        assert select.select([self.reading], [], [], PATIENCE)[0]


@pytest.mark.parametrize("count", [1, 2, 7, 10])
@pytest.mark.parametrize("processes", [1, 2, 3, 8])
@pytest.mark.parametrize("share", [1, 3, 100])
def test_each_item_is_done_once_and_in_order(count: int, processes: int, share: int) -> None:
    """Whoever takes it; and nobody is left."""
    assert forked.each(square, range(count), processes, share, nothing) == [number**2 for number in range(count)]
    assert not multiprocessing.active_children()


def test_of_very_many_items_the_shares_are_larger() -> None:
    """Their numbers lie in a pipe, which holds no more."""
    count = 3 * forked.MOST + 1
    assert forked.each(square, range(count), 2, 1, nothing) == [number**2 for number in range(count)]


def test_this_process_does_something_else_first() -> None:
    """Others take what there is meanwhile, and what they leave is done here."""
    sign, there = Sign(), Sign()

    def where(number: int) -> int:
        if os.getpid() != HERE:
            sign.give()
            there.wait()  # until this process has begun
        else:
            there.give()
        return os.getpid()

    found = forked.each(where, range(2), 2, 1, sign.wait)
    assert found[0] != found[1] == HERE


def test_what_a_helper_was_ended_at_is_done_here() -> None:
    """Killed in the middle of its share, as by the kernel where memory runs out: the same comes out."""
    sign = Sign()

    def ended(number: int) -> int:
        if number == 5 and os.getpid() != HERE:
            sign.give()
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number

    assert forked.each(ended, range(10), 2, 2, sign.wait) == [number**2 for number in range(10)]


def test_what_a_helper_cannot_do_is_an_error_here() -> None:
    """The error itself, without a word of the helper's."""
    with pytest.raises(ValueError, match="five"):
        forked.each(refused, range(10), 3, 2, nothing)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("allowed", [0, 1])
def test_where_no_process_is_to_be_had_this_one_does_all(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """A user's limit, or memory that is short: none of the helpers, or not all of them."""
    fork, forks = os.fork, iter(range(100))

    def limited() -> int:
        if next(forks) >= allowed:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    assert forked.each(square, range(10), 3, 2, nothing) == [number**2 for number in range(10)]
    assert not multiprocessing.active_children()


def test_who_is_interrupted_leaves_no_helper() -> None:
    """Ctrl-C while others work: they are ended with it."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        forked.each(square, range(10), 3, 2, interrupted)
    assert not multiprocessing.active_children()


def test_helpers_begin_beside_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any of them; what newer versions of Python say of a fork beside threads is no word to a user."""
    fork: Callable[[], int] = os.fork

    def warned() -> int:
        warnings.warn("multi-threaded, use of fork() may lead to deadlocks in the child", DeprecationWarning, 2)
        return fork()

    monkeypatch.setattr(os, "fork", warned)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(forked.each(square, range(6), 2, 1, nothing)))
    thread.start()
    thread.join()
    assert found == [number**2 for number in range(6)]
