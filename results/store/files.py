"""Reading files that anybody may have written: regular ones, up to a size."""

import os
import stat
from pathlib import Path

ONE_READ = 1 << 16
LARGEST = 1 << 28  # bytes of a file that is read whole


class Broken(ValueError):
    """A file is not what was written: truncated, edited, or of another trial."""


def read_bytes(path: Path | str, largest: int = LARGEST) -> bytes:
    """The bytes of a regular file. Raises FileNotFoundError; Broken for a pipe, a device, or more than `largest`.

    Unbuffered, as a table reads tens of thousands of small files.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise Broken(f"{os.path.basename(path)} is not a regular file")
        if about.st_size > largest:
            raise Broken(f"{os.path.basename(path)} has {about.st_size:,} bytes: at most {largest:,}")
        parts = [os.read(descriptor, ONE_READ)]
        while len(parts[-1]) == ONE_READ:  # only the end of a file is shorter
            parts.append(os.read(descriptor, ONE_READ))
    finally:
        os.close(descriptor)
    return b"".join(parts)
