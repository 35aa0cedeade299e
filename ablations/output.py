"""The output of this process: with escaped control characters, written to log files, and read from them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from commonfloor.files import Broken, open_no_follow, read_end
from commonfloor.messages import printable

END_BYTES = 1 << 20
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
    """Escape control characters in standard output and standard error until the block ends."""
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


@contextmanager
def output_to_file(path: Path) -> Iterator[None]:
    """Append this process's output within the block, even of crashing C code, to a file. Raises OSError for a link."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with open(path, "ab", opener=open_no_follow) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            with plain_output():
                yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for target, source in zip((1, 2), saved, strict=True):
                os.dup2(source, target)
                os.close(source)


def log_end(path: Path) -> str:
    """Return the last MiB of a log as text, or "" if there is no log."""
    try:
        return read_end(path, END_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except Broken as error:
        return f"{path}: {error}\n"
