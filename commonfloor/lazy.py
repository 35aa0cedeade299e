"""Public names of a package that are imported on first use."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, whose `__init__.pyi` imports its public names.

    file: the package's `__init__.py`.
    """
    modules: dict[str, str] = {}
    for statement in ast.parse(Path(file).with_suffix(".pyi").read_text()).body:
        if isinstance(statement, ast.ImportFrom):
            modules |= dict.fromkeys((name.name for name in statement.names), str(statement.module))

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return load, lambda: sorted(modules)
