"""Opening files that somebody else may have made: regular files only, so that no pipe or device blocks a reader."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file to read its bytes. Raises OSError for anything else, without waiting for a pipe's writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return open(descriptor, "rb")
