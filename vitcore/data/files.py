"""Safe reading and writing of files in untrusted folders.

Only regular files of limited size are read, so that no read blocks or exhausts the memory. No write follows a symlink.
"""

import errno
import os
import stat
from io import BufferedReader
from os import PathLike
from pathlib import Path


def open_regular(path: PathLike[str] | str) -> BufferedReader:
    """Open a file for reading, without blocking on a pipe; raise OSError if it is not a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return open(descriptor, "rb")


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, without errno and file name, or the type's name if it has none."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def reason_with_file(error: BaseException) -> str:
    """Return `reason(error)`, preceded by the file name if the error is an OSError that has one."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {reason(error)}"
    return reason(error)


def read_regular(path: PathLike[str] | str, largest: int) -> bytes:
    """Return the content of a file; raise OSError if it is not a regular file or has more than `largest` bytes."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, f"Larger than {largest:,} bytes", str(path))
        return file.read()  # takes only the file's size in memory, whereas `read(largest)` would take `largest` bytes


def open_no_symlink(path: str, flags: int) -> int:
    """Open a file as an `opener` for `open`. Raises OSError for a symlink, which could lead to another folder."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or, if interrupted, leave the old file. Raises OSError if writing fails."""
    partial = path.with_suffix(".new")
    with open(partial, "wb", opener=open_no_symlink) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    rename_durably(partial, path)


def rename_durably(old: Path, new: Path) -> None:
    """Rename a file and synchronize its folder, so that the new name survives a crash."""
    old.rename(new)
    folder = os.open(new.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
