"""The kinds of figure that a study may name.

A new kind is a `FigureKind` in a file of this folder and a line in FIGURE_KINDS. A file is imported only when one of
its kinds is drawn, because it loads matplotlib.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from results.records import Table
from results.store.schemas.metrics import Metric
from results.study_results import StudyResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_KINDS = {  # name -> file and name of its FigureKind
    "axis": "over_setting:AXIS",
    "compute": "over_compute:COMPUTE",
    "curves": "curves:CURVES",
    "families": "over_compute:FAMILIES",
    "intervals": "intervals:INTERVALS",
    "isoflop": "isoflop:ISOFLOP",
    "learning-rate": "over_setting:LEARNING_RATE",
    "new-size": "over_setting:NEW_SIZE",
    "scale": "over_setting:SCALE",
    "shape": "over_compute:SHAPE",
}


@dataclass(frozen=True)
class FigureKind:
    """A kind of figure.

    draw: draws a study, with its table, on an empty Figure, and returns its notes; its docstring describes the kind in
    the documentation. metric_of: the metric that is drawn. over_training: whether its course is drawn. whole_grid:
    whether a tuned study is drawn at all values of its grid.
    """

    draw: Callable[[StudyResults, Table, "Figure"], list[str]]
    metric_of: Callable[[StudyResults], Metric] = lambda study: study.plan.primary_metric
    over_training: bool = False
    whole_grid: bool = False


def kind(name: str) -> FigureKind:
    file, _, kind_name = FIGURE_KINDS[name].partition(":")
    chosen: FigureKind = getattr(import_module(f"{__name__}.{file}"), kind_name)
    return chosen
