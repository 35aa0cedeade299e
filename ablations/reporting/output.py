"""Streams that escape control characters in all output, so that no text from elsewhere can control a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from results.safe_text import printable

LINES = "\n\t"  # the control characters that are not escaped


class PlainStream:
    """A text stream that escapes control characters and passes the text to the stream behind it.

    Rich writes to the stream behind it directly, as `rich_proxied_file`.
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
