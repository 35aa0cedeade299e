"""The kinds of figure that a study may name: each file of this folder is one, and nothing else lists them.

`draw` in `learning_rate.py` draws `figure: learning-rate`. It takes a study, its table and an empty matplotlib Figure,
and returns the lines to write below.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

FIGURES = tuple(module.name.replace("_", "-") for module in iter_modules(__path__))


def module_of(kind: str) -> ModuleType:
    """Import the file of a kind, which loads matplotlib."""
    return import_module(f"{__name__}.{kind.replace('-', '_')}")
