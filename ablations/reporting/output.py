"""Output and log files with escaped control characters, so that untrusted text cannot control a terminal."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from results.safe_text import printable
from results.store.files import Broken, open_no_follow, read_end

LINES = "\n\t"  # the control characters that are not escaped
END_BYTES = 1 << 20


class PlainStream:
    """A text stream that escapes control characters and passes the text to another stream.

    Rich finds the other stream in `rich_proxied_file`, and writes to it directly.
    """

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream
        if getattr(stream, "errors", "") == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that is not UTF-8 gets ? for ±

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(printable(text, LINES))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Escape control characters in standard output and standard error until the block ends."""
    with redirect_stdout(PlainStream(sys.stdout)), redirect_stderr(PlainStream(sys.stderr)):
        yield


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
    """Return the last MiB of a log as text, or "" if there is no log.

    Returns a message if the path is not a regular file. Raises OSError if the file cannot be read.
    """
    try:
        return read_end(path, END_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except Broken as error:
        return f"{path}: {error}\n"
