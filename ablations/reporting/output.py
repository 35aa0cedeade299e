"""The one layer between what is printed and a terminal or a log: others' text reaches neither as commands."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from results.safe_text import plain

LINES = "\n\t"  # what our own output is laid out with


class Plain:
    """A text stream whose text is made plain. Rich draws on the stream behind it, as `rich_proxied_file` tells it."""

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream
        if getattr(stream, "errors", "") == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that is not UTF-8 gets ? for ±

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(plain(text, LINES))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Standard output and error, inside."""
    with redirect_stdout(Plain(sys.stdout)), redirect_stderr(Plain(sys.stderr)):
        yield
