"""Plug-ins: Python files by users that add variants and evals to vitcore's dictionaries, or models to timm's registry.

The digest of the file and of all local files that it imports identifies what the file adds.
"""

import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ablations.trainables import local_imports
from ablations.trainables.local_imports import NEIGHBORS, LocalFile, LocalImports
from commonfloor.options import Options
from vitcore.analysis.eval import Eval
from vitcore.analysis.evals import EVAL
from vitcore.config import Config
from vitcore.sizes import REGISTERED
from vitcore.variant import Variant
from vitcore.variants import BASES, VARIANTS


@dataclass(frozen=True)
class Plugin:
    digest: str
    parts: list[tuple[str, str]]  # (slot, name) of variants
    evals: list[str]
    models: list[str]  # names in timm's registry
    files: list[LocalFile]


LOADED: dict[Path, Plugin] = {}


def load(paths: Iterable[Path]) -> dict[str, str]:
    """Load plug-ins, each once per process, and return file path -> digest.

    Raises ValueError if one cannot be used. The dictionaries are restored before.
    """
    return {str(path): loaded(path).digest for path in paths}


def loaded(path: Path) -> Plugin:
    path = Path(os.path.expanduser(path)).resolve()
    if path not in LOADED:
        LOADED[path] = load_one(path)
    return LOADED[path]


def load_one(path: Path) -> Plugin:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ValueError(f"plugin {path}: cannot be read ({error.strerror})") from None
    name = f"plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    # As a package, so that `from . import helper` finds the modules beside it.
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[str(path.parent)])
    if spec is None:
        raise ValueError(f"plugin {path}: is not a Python file")
    imports = LocalImports(path, spec, source)
    NEIGHBORS.add(imports)
    before = {slot: dict(parts) for slot, parts in VARIANTS.items()}
    evals = dict(EVAL)
    modules = {*sys.modules}
    models = registered_models()
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        run(path, source, sys.modules[name])
        imports.add_loaded(modules)
        files = sorted(imports.files.values(), key=lambda file: file.module)
        digest = local_imports.digest(source, files)
        new = added_variants(path, before)
        new_evals = added_evals(path, evals)
        identify([VARIANTS[slot][name] for slot, name in new], path, digest)
        refuse_breakage(path)
    except BaseException:
        for module in sys.modules.keys() - modules:
            if module.startswith(name) or module.partition(".")[0] in imports.neighbors:
                del sys.modules[module]
        for slot, parts in VARIANTS.items():
            parts.clear()
            parts.update(before[slot])
        EVAL.clear()
        EVAL.update(evals)
        raise
    added = [name for name, entry_point in registered_models().items() if models.get(name) is not entry_point]
    REGISTERED.update(dict.fromkeys(added, digest))
    return Plugin(digest, new, new_evals, added, files)


def registered_models() -> dict[str, Callable[..., Any]]:
    if "timm" not in sys.modules:  # importing it takes seconds
        return {}
    import timm

    models = {}
    for name in timm.list_models():
        entry_point = timm.model_entrypoint(name)
        if not entry_point.__module__.startswith("timm."):
            models[name] = entry_point
    return models


def run(path: Path, source: bytes, module: ModuleType) -> None:
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except SystemExit as end:
        raise ValueError(f"plugin {path}: does not import: it ends the program (exit status {end.code})") from None
    except Exception as error:  # importing a user's file may raise anything
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "vitcore":
            public = "public names come from vitcore itself: from vitcore import Position, POSITION"
            reason = f"no module {error.name} ({public})"
        raise ValueError(f"plugin {path}: does not import: {reason}") from error


def added_variants(path: Path, before: dict[str, dict[str, type[Variant]]]) -> list[tuple[str, str]]:
    """Return (slot, name) for each part that a plug-in added. Raises ValueError if it replaced or removed one."""
    for slot, parts in VARIANTS.items():
        for name, part in before[slot].items():
            if parts.get(name) is not part:
                raise ValueError(f"plugin {path}: redefines {slot}={name}: choose another name")
    new = [(slot, name) for slot, parts in VARIANTS.items() for name in parts if name not in before[slot]]
    for slot, name in new:
        new_part: object = VARIANTS[slot][name]
        if not isinstance(name, str):
            raise ValueError(f"plugin {path}: {slot}={name!r}: a name is a string")
        if slot == "model" and ("/" in name or not name):
            raise ValueError(f"plugin {path}: model={name}: a name without '/', which sizes and timm's models have")
        if not (isinstance(new_part, type) and issubclass(new_part, BASES[slot])):
            raise ValueError(f"plugin {path}: {slot}={name} is {new_part!r}, not a {BASES[slot].__name__} class")
        if not (isinstance(new_part.Options, type) and issubclass(new_part.Options, Options)):
            raise ValueError(f"plugin {path}: {slot}={name}: 'Options' is no subclass of Variant.Options")
        if not isinstance(new_part.neutral, Mapping):
            raise ValueError(f"plugin {path}: {slot}={name}: 'neutral' is {new_part.neutral!r}, not option -> value")
        unknown = new_part.neutral.keys() - new_part.Options.model_fields
        if unknown:
            raise ValueError(f"plugin {path}: {slot}={name}: 'neutral' names {min(unknown)}, which is no option of it")
    return new


def added_evals(path: Path, before: dict[str, type[Eval]]) -> list[str]:
    """Return the names of the evals that a plug-in added. Raises ValueError if it replaced or removed one."""
    for name, entry in before.items():
        if EVAL.get(name) is not entry:
            raise ValueError(f"plugin {path}: redefines the eval {name}: choose another name")
    new = [name for name in EVAL if name not in before]
    for name in new:
        added: object = EVAL[name]
        if not (isinstance(name, str) and re.fullmatch("[a-z][a-z0-9-]*", name)):
            raise ValueError(f"plugin {path}: eval {name!r}: small letters, digits and hyphens")
        if not (isinstance(added, type) and issubclass(added, Eval)):
            raise ValueError(f"plugin {path}: eval {name} is {added!r}, not an Eval class")
        for metric in added.metrics:
            if not metric.startswith(name):
                raise ValueError(f"plugin {path}: eval {name}: metric {metric}: a name that starts with {name}")
    return new


def refuse_breakage(path: Path) -> None:
    """Raise ValueError if a plug-in's parts make every config invalid, as parts written for an older version may."""
    try:
        Config.model_validate({})
    except Exception as error:  # a user's part may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"plugin {path}: its parts break the check of every config: {reason}") from error


def identify(parts: Iterable[type[Variant]], path: Path, digest: str) -> None:
    """Set the file's digest on parts without `numerics`. Raises ValueError if another plug-in has added one of them."""
    undeclared = [part for part in parts if "numerics" not in part.__dict__]
    for part in undeclared:
        if part.__dict__.get("digest", digest) != digest:
            raise ValueError(f"plugin {path}: adds {part.__name__}, which another plugin adds: let it declare numerics")
    for part in undeclared:
        part.digest = digest
