"""Trained at one image size, tested at others: accuracy over the size of the test images, a line an arm."""

from dataclasses import replace
from math import nan

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.frame import arms, seeds, written
from results.figures.lines import draw_lines, extent, metric_axis, nothing_yet, plain, spelled, swept_axis
from results.figures.page import legend_above
from results.figures.theme import GREY
from results.records import Table
from results.store import evals
from results.study_results import StudyResults
from results.tables.study_table import table as table_of

SIZE = "image_size"
TRAINED = "\n(trained)"


def new_size(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`; returns what to write under it."""
    sizes, metric = tested(study), at_any_size(table.metric)
    parts = [at_size(study, table, size, name) for size, name in sizes.items()]
    frame, points = (pd.concat(found, ignore_index=True) for found in zip(*parts, strict=True))
    figure.set_figheight(3.0)
    ax = figure.subplots()
    over_sizes(frame, points, ax, metric, trained(study))
    if frame["series"].nunique() > 1:
        legend_above(ax, "")
    return [marks(study, table.metric), *spelled(frame)]


def tested(study: StudyResults) -> dict[float, str]:
    """Size of the test images -> the metric there, in order; at the size of training it is the result's own."""
    base, own = at_any_size(study.plan["metric"]), trained(study)
    names = [study.plan["metric"], *(f"{base}@{name.partition('@')[2]}" for name in study.plan.get("evals", []))]
    sized = {float(match[1]): match[0] for name in names if (match := evals.AT_SIZE.fullmatch(name))}
    return dict(sorted((sized | {own: base}).items()))


def at_any_size(metric: str) -> str:
    """ "test_accuracy" of "test_accuracy@16" """
    return metric.partition("@")[0]


def trained(study: StudyResults) -> float:
    """The size of the training images, of the baseline's if they differ: pixels a side."""
    planned = {arm["name"]: arm for arm in study.plan["arms"]}
    return float(planned[study.plan["baseline"]]["config"][SIZE])


def at_size(study: StudyResults, table: Table, size: float, metric: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of `arms` and of `seeds` at one size, an arm a series; verdicts are there where the study tests.

    An arm goes by its name and the size, so that its seeds stand where its mean does.
    """
    here = table if metric == table.metric else described(study, metric)
    frame, points = arms(study, here), seeds(study, metric)
    single = len(study.plan["factors"]) == 1 and not study.plan["curves"]
    lines = [written(label, single=single) for label in frame["label"]]
    frame = frame.assign(series=frame["arm"], line=lines, x=size, tick="", at=size, arm=at(frame["arm"], size))
    return frame, points.assign(arm=at(points["arm"], size))


def at(arms: pd.Series, size: float) -> list[str]:
    return [f"{arm}@{size:g}" for arm in arms]


def described(study: StudyResults, metric: str) -> Table:
    """The table of another metric without verdicts: the family of tests is of the study's own."""
    columns = {metric: [nan] * len(study.columns["arm"])} | study.columns  # an eval that no trial has yet
    other = table_of(replace(study, plan=study.plan | {"metric": metric, "claims": []}, columns=columns))
    return replace(other, rows=[replace(row, verdict=None) for row in other.rows])


def over_sizes(frame: pd.DataFrame, points: pd.DataFrame, ax: Axes, metric: str, trained: float) -> Axes:
    """The metric over the size of the test images, and where that is the size of the training images.

    frame: rows of `arms`, an arm a series, `at` the size; points: rows of `seeds`.
    """
    places = [f"{plain(size)}{TRAINED if size == trained else ''}" for size in sorted(set(frame["at"]))]
    swept_axis(frame, ax, SIZE, places)
    ax.set_xlabel(f"test {ax.get_xlabel()}")
    ax.axvline(trained, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    metric_axis(ax, metric, *extent(frame, points))
    draw_lines(frame, points, ax)
    if not (frame["n"] > 0).any():
        nothing_yet(ax)
    return ax


def marks(study: StudyResults, metric: str) -> str:
    """What is filled, and why the rest is not."""
    where = metric.partition("@")[2]
    here = f"at {where} pixels, where the study tests" if where else "at the size of training, where the study tests"
    return (
        f"Filled: differs from the baseline (diamond) {here}, Holm-adjusted p < 0.05. Other sizes are described, not "
        "tested: only the baseline's marks are filled."
    )
