"""The kinds of figure that a study may name. Each file of this folder is one kind.

There is no other list of the kinds. `draw` in `learning_rate.py` draws `figure: learning-rate`. Each `draw` takes a
study, the study's table and an empty matplotlib Figure, and returns the lines to write below.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

FIGURES = tuple(module.name.replace("_", "-") for module in iter_modules(__path__))


def module_of(kind: str) -> ModuleType:
    """Return the module of a kind of figure. The import loads matplotlib."""
    return import_module(f"{__name__}.{kind.replace('-', '_')}")
