"""Build paths from untrusted names: a name is one part of a path, and no link leads out of its folder."""

import os
from pathlib import Path

SHOWN = 60  # characters of a refused name


def safe_name(name: object) -> str:
    """Return a name that becomes one part of a path. Raises ValueError if it is empty, unprintable or several parts."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise ValueError(f"{ascii(name)[:SHOWN]}: is not the name of a file or folder")
    return name


def refuse_links(root: Path, *paths: Path) -> None:
    """Raise ValueError for a link between `root` and a path, which writing and removing would follow."""
    for path in paths:
        for part in (path, *path.parents):
            if part == root:
                break
            if part.is_symlink():
                raise ValueError(f"{part}: is a link, through which nothing is written or removed")


def no_follow(path: str, flags: int) -> int:
    """Open a file without following a link, as an opener for `open`. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
