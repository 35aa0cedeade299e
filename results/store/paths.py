"""Paths made of what others wrote: a name stays one name, and no link leads out of the folder that was meant."""

import os
from pathlib import Path

SHOWN = 60  # characters of a refused name


def safe_name(name: object) -> str:
    """`name`, which becomes one part of a path. Raises ValueError for what would be several, none, or unprintable."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise ValueError(f"{ascii(name)[:SHOWN]}: is not the name of a file or folder")
    return name


def refuse_links(root: Path, *paths: Path) -> None:
    """Raises ValueError for a link below `root` on the way to one of these: writing and removing would follow it."""
    for path in paths:
        for part in (path, *path.parents):
            if part == root:
                break
            if part.is_symlink():
                raise ValueError(f"{part}: is a link, through which nothing is written or removed")


def no_follow(path: str, flags: int) -> int:
    """An opener for `open`: the file itself may not be a link either. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
