"""A function of many items, by several processes: as by one, whatever becomes of the others."""

import errno
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable

import pytest

from results import forked

HERE = os.getpid()


def square(number: int) -> int:
    return number * number


def where(number: int) -> int:
    return os.getpid()


def ended(number: int) -> int:
    """Ends a helper that comes to it, as the kernel does where memory runs out."""
    if number == 5 and os.getpid() != HERE:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def refused(number: int) -> int:
    if number == 5:
        raise ValueError("five")
    return number * number


def nothing() -> None:
    pass


@pytest.mark.parametrize("count", [1, 2, 7, 10])
@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_each_item_is_done_once_and_in_order(count: int, processes: int) -> None:
    """By no more processes than were asked for, none of which is this one, and none of which is left."""
    assert forked.each(square, range(count), processes, nothing) == [number**2 for number in range(count)]
    helpers = set(forked.each(where, range(count), processes, nothing))
    assert len(helpers) <= min(count, processes)
    assert os.getpid() not in helpers
    assert not multiprocessing.active_children()


def test_this_process_does_something_else_meanwhile() -> None:
    """Once, and here."""
    found: list[int] = []
    forked.each(square, range(4), 2, lambda: found.append(os.getpid()))
    assert found == [os.getpid()]


def test_what_a_helper_was_ended_at_is_done_here() -> None:
    """Killed in the middle of its share, as by the kernel: the same comes out."""
    assert forked.each(ended, range(10), 2, nothing) == [number**2 for number in range(10)]


def test_what_a_helper_cannot_do_is_an_error_here() -> None:
    """The error itself, without a word of the helper's."""
    with pytest.raises(ValueError, match="five"):
        forked.each(refused, range(10), 3, nothing)
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
    assert forked.each(square, range(10), 3, nothing) == [number**2 for number in range(10)]
    assert not multiprocessing.active_children()


def test_who_is_interrupted_leaves_no_helper() -> None:
    """Ctrl-C while others work: they are ended with it."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        forked.each(square, range(10), 3, interrupted)
    assert not multiprocessing.active_children()


def test_helpers_begin_beside_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any of them; what newer versions of Python say of a fork beside threads is no word to a user."""
    fork: Callable[[], int] = os.fork

    def warned() -> int:
        warnings.warn("multi-threaded, use of fork() may lead to deadlocks in the child", DeprecationWarning, 2)
        return fork()

    monkeypatch.setattr(os, "fork", warned)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(forked.each(square, range(6), 2, nothing)))
    thread.start()
    thread.join()
    assert found == [number**2 for number in range(6)]
