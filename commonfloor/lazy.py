"""Public names of a package that are imported on first use."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package. modules: public name -> the module that defines it."""

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return load, lambda: sorted(modules)
