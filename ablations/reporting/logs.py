"""Log files: redirection of a process's output, even that of crashing C code, and reading of a log's end."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ablations.reporting.output import plain_output
from results.store.files import Broken, no_follow, read_end

END_BYTES = 1 << 20


@contextlib.contextmanager
def output_to_file(path: Path) -> Iterator[None]:
    """Append the standard output and standard error of this process to a file until the block ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with open(path, "ab", opener=no_follow) as log:
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


def end_of(path: Path) -> str:
    """Return the last MiB of a log as text, or "" if there is no log.

    If the path is no regular file, return a line that says so.
    """
    try:
        return read_end(path, END_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except Broken as error:
        return f"{path}: {error}\n"
