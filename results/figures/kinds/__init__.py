"""The kinds of figure that a study may name, one in each file of this folder.

There is no other list of the kinds. `draw` in `learning_rate.py` draws `figure: learning-rate`. Each `draw` takes a
study, the study's table and an empty matplotlib Figure, and returns the lines to write below. A `frame` has rows of
`arms_frame`; `seeds` and `points` have rows of `seeds_frame`. A column `at` is the position on the horizontal axis.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

FIGURES = tuple(module.name.replace("_", "-") for module in iter_modules(__path__))


def module_of(kind: str) -> ModuleType:
    """Return the module of a kind of figure, whose import loads matplotlib."""
    return import_module(f"{__name__}.{kind.replace('-', '_')}")
