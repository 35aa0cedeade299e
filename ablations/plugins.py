"""A user's own parts: Python files, outside of the packages, that add entries to the dicts of vitcore."""

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from vitcore.parts import PARTS


def load(paths: Iterable[Path]) -> dict[str, str]:
    """Runs each file once a process; returns file -> digest, for provenance.

    Raises ValueError where a file does not import or redefines a name that exists.
    """
    return {str(path): load_one(path.expanduser().resolve()) for path in paths}


def load_one(path: Path) -> str:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ValueError(f"plugin {path}: cannot be read ({error.strerror})") from None
    digest = hashlib.sha256(source).hexdigest()[:12]
    name = f"plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return digest
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ValueError(f"plugin {path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    module.__digest__ = digest  # type: ignore[attr-defined]  # what identifies its parts
    before = {slot: dict(parts) for slot, parts in PARTS.items()}
    sys.modules[name] = module
    try:
        exec(compile(source, path, "exec"), module.__dict__)
        refuse_redefinition(path, before)
    except BaseException as error:
        del sys.modules[name]
        for slot, parts in PARTS.items():
            parts.clear()
            parts.update(before[slot])
        if isinstance(error, ValueError) and str(error).startswith("plugin "):
            raise
        if isinstance(error, Exception):
            raise ValueError(f"plugin {path}: does not import: {type(error).__name__}: {error}") from error
        raise
    return digest


def refuse_redefinition(path: Path, before: dict[str, dict[str, type]]) -> None:
    for slot, parts in PARTS.items():
        for name, part in before[slot].items():
            if parts.get(name) is not part:
                raise ValueError(f"plugin {path}: redefines {slot}={name}: choose another name")
