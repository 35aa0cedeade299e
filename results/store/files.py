"""Read untrusted files: regular files up to a size."""

import hashlib
import io
import os
import stat
from pathlib import Path

LARGEST = 1 << 28  # bytes of a file that is read whole
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # bytes: the only bound on weights and checkpoints
ANY = 1 << 63


class Broken(ValueError):
    """A file is not what was written: truncated, edited, or of another trial."""


def open_regular(path: Path | str, largest: int = LARGEST) -> io.FileIO:
    """Open a regular file. Raises FileNotFoundError; Broken for a pipe, a device, or more than `largest` bytes.

    Unbuffered, as a table reads tens of thousands of small files.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and about.st_size <= largest:
        return io.FileIO(descriptor)
    os.close(descriptor)
    name = os.path.basename(path)
    if not stat.S_ISREG(about.st_mode):
        raise Broken(f"{name} is not a regular file")
    raise Broken(f"{name} has {about.st_size:,} bytes: at most {largest:,}")


def read_bytes(path: Path | str, largest: int = LARGEST) -> bytes:
    """Return the bytes of a regular file. Raises what `open_regular` raises."""
    with open_regular(path, largest) as file:
        return file.readall()


def read_end(path: Path | str, most: int) -> bytes:
    """Return the last bytes of a regular file of any size. Raises FileNotFoundError, Broken."""
    with open_regular(path, ANY) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def sha256(path: Path | str) -> str:
    """Return the checksum of a regular file of any size without loading it whole. Raises FileNotFoundError, Broken."""
    with open_regular(path, ANY) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
