"""Standard streams with escaped control characters, so that untrusted text cannot control a terminal."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from commonfloor.messages import printable

LINES = "\n\t"  # the control characters that are not escaped


class PlainStream:
    """A text stream that escapes control characters and passes the text to another stream.

    Rich finds the other stream in `rich_proxied_file`, and writes to it directly.
    """

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream
        if getattr(stream, "errors", "") in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that is not UTF-8 gets ? for ±

    def write(self, text: str) -> int:
        with until_pipe_closes(self.rich_proxied_file):
            self.rich_proxied_file.write(printable(text, LINES))
        return len(text)

    def flush(self) -> None:
        with until_pipe_closes(self.rich_proxied_file):
            self.rich_proxied_file.flush()

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def until_pipe_closes(stream: Any) -> Iterator[None]:
    """Ignore that the reader of a stream is gone, as after `| head`. What is written later goes nowhere."""
    try:
        yield
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # so that Python's own flush at the exit succeeds
        os.close(nowhere)


@contextmanager
def plain_output() -> Iterator[None]:
    """Escape control characters in standard output and standard error until the block ends.

    A command whose output nobody reads does its work all the same: streams that are closed write nowhere.
    """
    open_closed_streams()
    with redirect_stdout(PlainStream(sys.stdout)), redirect_stderr(PlainStream(sys.stderr)):
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()


def open_closed_streams() -> None:
    """Connect standard streams that were closed before the start, as by `>&-`, with the null device.

    Python represents these as None. A file that is opened later would otherwise take their place.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is the stream's own
            setattr(sys, name, os.fdopen(descriptor, mode))
