"""The caches of a node on NFS, imitated within a process: what it last saw of a path counts for some seconds.

A missing name, attributes and listings may be old. An existing file is fresh when it is opened. If the node itself
changes a folder, it sees the folder's listing and its missing names anew.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CHANGES = ("rename", "mkdir", "rmdir", "link", "unlink", "remove")


class NodeCache:
    """Functions of `os` that answer from a cache. seconds: how long an answer counts."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.seen: dict[str, dict[tuple[str, str], tuple[float, Any]]] = defaultdict(dict)  # by the path's folder
        self.real = {name: getattr(os, name) for name in ("stat", "scandir", "open", *CHANGES)}

    def install(self, replace: Callable[[Any, str, Any], None]) -> None:
        """Replace the functions in `os` by those of this cache. replace: setattr, or that of a monkeypatch."""
        for name in ("stat", "scandir", "open"):
            replace(os, name, getattr(self, name))
        for name in CHANGES:
            replace(os, name, self.changing(self.real[name]))

    def cached(self, kind: str, path: Any, ask: Callable[[], Any]) -> Any:
        """Return the newest answer that still counts, or raise it if the name was missing."""
        name, now = os.fspath(path), time.monotonic()
        seen, key = self.seen[os.path.dirname(name)], (kind, name)
        if key not in seen or now - seen[key][0] > self.seconds:
            try:
                seen[key] = now, ask()
            except FileNotFoundError as error:
                seen[key] = now, error
        answer = seen[key][1]
        if isinstance(answer, FileNotFoundError):
            raise FileNotFoundError(answer.errno, answer.strerror, name)
        return answer

    def forget(self, path: Any) -> None:
        """Forget a path, and the listing and the missing names of its folder."""
        name = os.fspath(path)
        folder = os.path.dirname(name)
        seen = self.seen[folder]
        for key in [key for key, (_, answer) in seen.items() if key[1] == name or isinstance(answer, OSError)]:
            del seen[key]
        self.seen.pop(name, None)
        self.seen[os.path.dirname(folder)].pop(("scandir", folder), None)

    def changing(self, real: Callable[..., None]) -> Callable[..., None]:
        """Return a function that changes files by `real` and then forgets what it has changed."""

        def change(*paths: Any, **options: Any) -> None:
            real(*paths, **options)
            for path in paths:
                if isinstance(path, str | os.PathLike) and options.get("dir_fd") is None:
                    self.forget(path)

        return change

    def stat(self, path: Any, **options: Any) -> os.stat_result:
        if isinstance(path, int) or options.get("dir_fd") is not None:
            return self.real["stat"](path, **options)
        return self.cached(f"stat{options}", path, lambda: self.real["stat"](path, **options))

    @contextmanager
    def scandir(self, path: Any) -> Iterator[Any]:
        if isinstance(path, int):
            with self.real["scandir"](path) as entries:
                yield entries
        else:
            yield iter(self.cached("scandir", path, lambda: list(self.real["scandir"](path))))

    def open(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            descriptor: int = self.real["open"](path, flags, *rest, **options)
            self.forget(path)
            return descriptor
        if options.get("dir_fd") is not None:
            return self.real["open"](path, flags, *rest, **options)
        self.cached("open", path, lambda: os.close(self.real["open"](path, flags, *rest, **options)))
        return self.real["open"](path, flags, *rest, **options)
