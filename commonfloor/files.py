"""Safe reading and writing of files in untrusted folders: read up to a limit, written completely or not at all.

Only regular files are opened, so that no read blocks. No write follows a symbolic link.
"""

import errno
import io
import os
import stat
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TypeVar

LARGEST = 1 << 28  # maximum bytes of a file that is read whole
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # bytes; the limit for weights and checkpoints
ANY = 1 << 63
SHOWN = 60  # maximum characters of a refused name in an error
FULL = {errno.ENOSPC, errno.EDQUOT}
Written = TypeVar("Written")


class Broken(ValueError):
    """Raised if a file's content is not what was written, for example because it was truncated, edited or misplaced."""


class IrregularFile(OSError, Broken):
    """Raised if a path is not a regular file, or if the file has more bytes than allowed."""


def safe_name(name: object) -> str:
    """Return `name` if it is a valid, printable name of a file or folder. Raises ValueError otherwise."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise ValueError(f"{ascii(name)[:SHOWN]}: is not the name of a file or folder")
    return name


def refuse_links(root: Path, *paths: Path) -> None:
    """Raise ValueError if a path, or a folder on the way to it from `root`, is a symbolic link."""
    for path in paths:
        for part in (path, *path.parents):
            if part == root:
                break
            if part.is_symlink():
                raise ValueError(f"{part}: is a link, through which nothing is written or removed")


def check_hard_links(folder: Path) -> None:
    """Raise ValueError if the file system of a folder has no hard links, by which results are published."""
    one, other = (folder / f".{uuid.uuid4().hex}" for _ in range(2))
    one.touch()
    try:
        os.link(one, other)
    except OSError as error:
        why = f"its file system has no hard links ({error.strerror}), by which results are published"
        raise ValueError(f"{folder}: {why}: give a folder on another file system") from None
    finally:
        one.unlink()
        other.unlink(missing_ok=True)


# -- reading -----------------------------------------------------------------------------------------------------------


def open_regular(path: PathLike[str] | str, largest: int = ANY) -> io.BufferedReader:
    """Open a file to read, without blocking on a pipe. largest: the maximum size in bytes.

    Raises OSError, which is IrregularFile if it is not a regular file or too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and about.st_size <= largest:
        return open(descriptor, "rb")
    os.close(descriptor)
    name = Path(path).name
    if not stat.S_ISREG(about.st_mode):
        raise IrregularFile(f"{name} is not a regular file")
    raise IrregularFile(f"{name} has {about.st_size:,} bytes: at most {largest:,}")


def read_bytes(path: PathLike[str] | str, largest: int = LARGEST) -> bytes:
    """Return the bytes of a regular file. largest: the maximum size in bytes. Raises the errors of `open_regular`."""
    with open_regular(path, largest) as file:
        return file.read()  # takes only the file's size in memory, whereas `read(largest)` would take `largest` bytes


def read_end(path: Path, most: int) -> bytes:
    """Return the last `most` bytes of a regular file of any size. Raises the errors of `open_regular`."""
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


# -- writing -----------------------------------------------------------------------------------------------------------


def open_no_follow(path: str, flags: int) -> int:
    """Open a file and return its descriptor, as `open` expects of its `opener`. Raises OSError for a symbolic link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def write_bytes(path: Path, payload: bytes, mode: int = 0o666) -> None:
    """Write a file completely or not at all. Missing parent folders are made.

    The content goes to a temporary file, which is synced and renamed. Then the folder is synced. mode: permission bits.
    Raises OSError if the file cannot be written. The error never names the temporary file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename:
            error.filename = str(path)  # not the temporary name
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append(path: Path, content: bytes) -> None:
    """Append all of `content` to a file, and sync it. Raises OSError if writing fails, after restoring the file."""
    with io.FileIO(path, "a", opener=open_no_follow) as file:
        end = os.fstat(file.fileno()).st_size
        left = memoryview(content)
        try:
            while left:
                left = left[file.write(left) or 0 :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def forget_missing(folder: Path) -> None:
    """Change a folder for a moment, so that an NFS client looks anew for files that it believes to be missing.

    Raises OSError if the folder cannot be changed.
    """
    change = folder / f".look-{uuid.uuid4().hex}"
    change.mkdir()
    change.rmdir()


def rename_durably(old: Path, new: Path) -> None:
    """Rename a file and sync its folder, so that the new name survives a power failure."""
    old.rename(new)
    sync_folder(new.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that its renames and links survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Patience:
    """A policy for retrying writes while the disk is full.

    seconds: longest wait for space. given_up: called before each wait, and returns whether to stop retrying. tell:
    called with the reason for each wait. pause: seconds between two tries.
    """

    seconds: float = 0.0
    given_up: Callable[[], bool] = lambda: False
    tell: Callable[[str], None] = lambda why: None
    pause: float = 0.5

    def __call__(self, write: Callable[[], Written]) -> Written:
        """Call `write` until it succeeds, and return its result. A failing `write` must leave nothing behind.

        Raises OSError if the disk is still full when the wait ends or is given up. Raises any other error at once.
        """
        deadline = time.monotonic() + self.seconds
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in FULL or time.monotonic() > deadline or self.given_up():
                    raise
                self.tell(error.strerror or "no space left")
            time.sleep(self.pause)
