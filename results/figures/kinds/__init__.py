"""The kinds of figure that a study may name, one in each file of this folder.

A new kind is a new file that defines `draw`, and nothing else changes: `pie_chart.py` draws `figure: pie-chart`. A file
that needs more than the defaults of `Kind` also defines KIND.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING

from results.records import Table
from results.store.schemas import Metric
from results.study_results import StudyResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_KINDS = tuple(module.name.replace("_", "-") for module in iter_modules(__path__))


@dataclass(frozen=True)
class Kind:
    """A kind of figure.

    draw: draws a study, with its table, on an empty Figure, and returns the figure's notes. metric_of: returns the
    metric that is drawn, by default the study's. over_training: whether the course of training is drawn, not its
    outcome. whole_grid: whether a tuned study is drawn at all values of its grid, not only at the tuned values.
    """

    draw: Callable[[StudyResults, Table, "Figure"], list[str]]
    metric_of: Callable[[StudyResults], Metric] = lambda study: study.plan.primary_metric
    over_training: bool = False
    whole_grid: bool = False


def module_of(name: str) -> ModuleType:
    """Import and return the module that defines a kind of figure. This loads matplotlib."""
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def kind(name: str) -> Kind:
    """Return the kind of figure with this name, which is one of FIGURE_KINDS."""
    module = module_of(name)
    found: Kind = getattr(module, "KIND", None) or Kind(module.draw)
    return found
