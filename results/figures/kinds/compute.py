"""The metric against compute, every arm named where it stands: arXiv 2010.11929, Figure 5, for one forward pass."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from results.figures.flops import flops_unit
from results.figures.frame import alone, arms, each, seeds
from results.figures.labels import along, around_point, label_points
from results.figures.lines import (
    BESIDE,
    caption,
    compute_axis,
    draw_gaps_apart,
    draw_points,
    draw_seeds,
    extent,
    looks,
    metric_axis,
    nothing_yet,
    spelled,
)
from results.figures.page import legend_above, narrow, wrapped
from results.figures.theme import current
from results.records import Table
from results.study_results import StudyResults

MARKS = "Filled marks differ from the baseline (Holm-adjusted p < 0.05); open ones do not, or cannot be told."


def compute(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`; returns what to write under it."""
    frame = arms(study, table)
    size, name = flops_unit(frame["flops"].max())
    frame = alone(frame, study.plan).assign(at=frame["flops"] / size)
    figure.set_figheight(3.2)
    ax = figure.subplots()
    points = seeds(study, table.metric)
    against_compute(frame, points, ax)
    ax.set_xlabel(f"compute: {name} per image (forward), log scale")
    metric_axis(ax, table.metric, *extent(frame, points))
    if not (frame["n"] > 0).any():
        nothing_yet(ax)
    if narrow(figure) or not name_families(frame, points, ax):
        legend(frame, ax)
    return [MARKS, *spelled(frame)]


def against_compute(frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes) -> Axes:
    """Means with intervals and seeds over `at`, a look a family. frame: rows of `arms` with `at`."""
    compute_axis(frame, ax)
    for name, look in looks(frame).items():
        rows = frame[frame["series"] == name].sort_values("at", kind="stable")
        ax.plot(rows["at"], rows["mean"], color=look.colour, linestyle=look.dash, zorder=2)
        draw_points(rows, ax, look)
        draw_seeds(rows, seeds, ax, look, BESIDE)
        draw_gaps_apart(rows, frame, ax, look)
    return ax


def legend(frame: pd.DataFrame, ax: Axes) -> None:
    """The families over the axes, where there is no room for their names beside them."""
    for name, look in looks(frame).items():
        rows = frame[frame["series"] == name]
        line = look.dash if len(rows) > 1 else ""
        ax.plot([], [], color=look.colour, marker=look.marker, linestyle=line, label=caption(rows))
    legend_above(ax, "")


def name_families(frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes) -> bool:
    """Every family's name in its colour, at its most expensive arm that has a mean; whether there is room for all."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    known, table = frame[frame["mean"].notna()].sort_values("at", kind="stable"), looks(frame)
    points = [
        (row.at, row.mean, in_lines(frame[frame["series"] == row.series]), table[row.series].colour)
        for row in each(known.drop_duplicates("series", keep="last"))
    ]
    return label_points(ax, points, covered(known, seeds, ax))


def covered(known: pd.DataFrame, seeds: pd.DataFrame, ax: Axes) -> list[Bbox]:
    """What is drawn so far, in pixels: marks, intervals, seeds, lines and what is written. known: with a mean."""
    boxes = [around_point(ax, row.at, *ends(row)) for row in each(known)]
    singles = seeds.merge(known[["arm", "at"]], on="arm")
    boxes += [around_point(ax, row.at, row.value, row.value) for row in each(singles)]  # which reaches over BESIDE
    for _, rows in known.groupby("series"):
        boxes += along(ax, list(zip(rows["at"], rows["mean"], strict=True)))
    return boxes + [text.get_window_extent() for text in ax.texts if text.get_text()]


def ends(row: Any) -> tuple[float, float]:
    """Of an arm's interval, or of its mark."""
    return (row.mean, row.mean) if pd.isna(row.low) else (row.low, row.high)


def in_lines(rows: pd.DataFrame) -> str:
    """The family's name in lines that leave room for others."""
    return wrapped(caption(rows), 1.3, current().text)
