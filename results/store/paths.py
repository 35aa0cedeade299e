"""Checks of paths with untrusted names: a name is one part of a path, and no link leads out of its folder."""

import os
from pathlib import Path

SHOWN = 60  # maximum characters of a refused name in an error


def safe_name(name: object) -> str:
    """Return the name unchanged. Raises ValueError if it is not a printable name of one file or folder."""
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


def no_follow(path: str, flags: int) -> int:
    """Return the descriptor of a file, as an opener for `open`. Raises OSError if the file is a symbolic link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
