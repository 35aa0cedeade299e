"""Archives of arrays (.npz) with untrusted content: never unpickled, unpacked up to a limit."""

import io
import math
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from commonfloor.files import LARGEST, Broken

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


def parse_npz(content: bytes, name: str) -> "dict[str, np.ndarray]":
    """Return name -> array for the arrays of an .npz archive. The arrays are usually read-only.

    No more bytes are unpacked than the archive states. name: the file's name in errors. Raises Broken if the archive is
    damaged, holds pickles, or has more than LARGEST bytes when unpacked.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if total > LARGEST:
                raise Broken(f"its arrays take {total:,} bytes: at most {LARGEST:,}")
            arrays = {}
            for member in members:
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # unpacked without a limit
                    raise Broken(f"{member.filename!a:.60} is neither stored nor deflated")
                with archive.open(member) as file:
                    arrays[member.filename.removesuffix(".npy")] = parse_npy(file.read(member.file_size))
            return arrays
    except Exception as error:  # a damaged archive raises zlib.error, UnicodeDecodeError and more
        raise Broken(f"{name} cannot be read ({error})") from None


def parse_npy(content: bytes) -> "np.ndarray":
    """Return the array in an .npy file, usually read-only. Raises ValueError if it is damaged or holds pickles."""
    import numpy as np  # late: commands that read no arrays start sooner

    if content[:8] != b"\x93NUMPY\x01\x00":  # another version, which NumPy writes for structured arrays
        array: np.ndarray = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        return array
    end = 10 + int.from_bytes(content[8:10], "little")
    shape, fortran, dtype = npy_header(content[8:end])
    if dtype.hasobject:
        raise ValueError("it holds pickles")
    return np.frombuffer(content, dtype, math.prod(shape), end).reshape(shape, order="F" if fortran else "C")


@lru_cache(maxsize=128)  # parsing takes twenty times as long as reading a small array
def npy_header(text: bytes) -> "tuple[tuple[int, ...], bool, np.dtype]":
    """Return (shape, whether in Fortran order, dtype) of an array. text: the header of an .npy file."""
    import numpy as np  # late: as above

    header: tuple[tuple[int, ...], bool, np.dtype] = np.lib.format.read_array_header_1_0(io.BytesIO(text))
    return header


def npz_bytes(arrays: "Mapping[str, ArrayLike]") -> bytes:
    import numpy as np  # late: as above

    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()
