"""Files: read up to a size, and never unpickled; written completely or not at all."""

import hashlib
import io
import os
import stat
import uuid
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

LARGEST = 1 << 28  # maximum bytes of a file that is read whole
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # bytes; the maximum of weights and checkpoints
ANY = 1 << 63


class Broken(ValueError):
    """An error: the content of a file is not what was written there, for example truncated, edited or misplaced."""


def open_regular(path: Path | str, largest: int = LARGEST) -> io.FileIO:
    """Return a regular file, open for reading. It is unbuffered, as a table reads tens of thousands of small files.

    Raises FileNotFoundError if it is missing. Raises Broken if it is a pipe, device or folder, or has more than
    `largest` bytes.
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
    """Return the bytes of a regular file. Raises FileNotFoundError or Broken like `open_regular`."""
    with open_regular(path, largest) as file:
        return file.readall()


def read_end(path: Path | str, most: int) -> bytes:
    """Return the last `most` bytes of a regular file of any size.

    Raises FileNotFoundError if it is missing. Raises Broken if it is not a regular file.
    """
    with open_regular(path, ANY) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def sha256(path: Path | str) -> str:
    """Return the SHA-256 (hex) of a regular file of any size.

    Raises FileNotFoundError if it is missing. Raises Broken if it is not a regular file.
    """
    with open_regular(path, ANY) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_npz(content: bytes, name: str) -> "dict[str, np.ndarray]":
    """Return the arrays of an .npz archive by name. Raises Broken if it is damaged or larger than LARGEST unpacked.

    name: the file's name in errors. The archive states its unpacked size, and no more is unpacked.
    """
    import numpy as np  # late: commands that read no arrays start sooner

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            total = sum(member.file_size for member in archive.infolist())
        if total > LARGEST:
            raise Broken(f"its arrays take {total:,} bytes: at most {LARGEST:,}")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception as error:  # a damaged archive raises RuntimeError, struct.error, zlib.error and more
        raise Broken(f"{name} cannot be read ({error})") from None


def npz_bytes(arrays: "Mapping[str, np.ndarray]") -> bytes:
    """Return the bytes of a compressed .npz archive that holds the arrays."""
    import numpy as np  # late: as above

    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def write_bytes(path: Path, payload: bytes, mode: int = 0o666) -> None:
    """Write a file completely or not at all.

    The content goes to a temporary file, which is synced and renamed. Then the folder is synced. mode: permission bits.
    Raises OSError naming `path` if the file cannot be written.
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
    sync(path.parent)


def append(file: io.FileIO, content: bytes) -> None:
    """Append all of `content` to an unbuffered file. Raises OSError, with the file unchanged, if writing fails."""
    end, left = os.fstat(file.fileno()).st_size, memoryview(content)
    try:
        while left:
            left = left[file.write(left) or 0 :]
    except OSError:
        file.truncate(end)
        raise


def sync(folder: Path) -> None:
    """Sync a folder to disk, so that its renames and links survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
