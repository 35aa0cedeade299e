"""The output of this process, written to log files and read from them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablations.plain_output import plain_output
from commonfloor.files import Broken, open_no_follow, read_end

END_BYTES = 1 << 20


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
