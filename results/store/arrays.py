"""Read .npz archives from untrusted sources: no pickles, and no more than fits."""

import io
import zipfile
from typing import TYPE_CHECKING

from results.store.files import LARGEST, Broken

if TYPE_CHECKING:
    import numpy as np


def parse_npz(content: bytes, name: str) -> "dict[str, np.ndarray]":
    """Return the arrays of an archive's bytes. Raises Broken naming the file, also for arrays that are too large.

    A member yields no more bytes than the archive's directory says.
    """
    import numpy as np  # late: who only looks at trials does without

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            total = sum(member.file_size for member in archive.infolist())
        if total > LARGEST:
            raise Broken(f"its arrays take {total:,} bytes: at most {LARGEST:,}")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception as error:  # a damaged zip raises whatever its parts do: RuntimeError, struct.error, zlib.error...
        raise Broken(f"{name} cannot be read ({error})") from None
