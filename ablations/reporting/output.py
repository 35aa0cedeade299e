"""Remove control characters from all output: terminals and logs get foreign text without them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from results.safe_text import printable

LINES = "\n\t"  # control characters of our own layout


class PlainStream:
    """A text stream that removes control characters. Rich draws on `rich_proxied_file`, the stream behind it."""

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
    """Remove control characters from standard output and error within the block."""
    with redirect_stdout(PlainStream(sys.stdout)), redirect_stderr(PlainStream(sys.stderr)):
        yield
