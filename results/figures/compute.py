"""The metric against compute, every arm named where it stands: arXiv 2010.11929, Figure 5, for one forward pass."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.flops import flops_unit
from results.figures.frame import alone, arms, each, seeds
from results.figures.labels import label_points
from results.figures.lines import (
    caption,
    compute_axis,
    draw_gaps_apart,
    draw_points,
    draw_seeds,
    extent,
    looks,
    metric_axis,
    nothing_yet,
)
from results.figures.page import wrapped
from results.figures.style import current
from results.study import StudyResults
from results.tables import Table


def compute(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`; returns what to write under it."""
    frame = arms(study, table)
    size, name = flops_unit(frame["flops"].max())
    frame = alone(frame, study.plan).assign(at=frame["flops"] / size)
    figure.set_figheight(3.2)
    ax = figure.subplots()
    points = seeds(study, table["metric"])
    against_compute(frame, points, ax)
    ax.set_xlabel(f"compute: {name} per image (forward), log scale")
    metric_axis(ax, table["metric"], *extent(frame, points))
    if not (frame["n"] > 0).any():
        nothing_yet(ax)
    name_families(frame, ax)
    return ["Filled marks differ from the baseline (Holm-adjusted p < 0.05); open ones do not, or cannot be told."]


def against_compute(frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes) -> Axes:
    """Means with intervals and seeds over `at`, a look a family. frame: rows of `arms` with `at`."""
    compute_axis(frame, ax)
    for name, look in looks(frame).items():
        rows = frame[frame["series"] == name].sort_values("at", kind="stable")
        ax.plot(rows["at"], rows["mean"], color=look.colour, linestyle=look.dash, zorder=2)
        draw_points(rows, ax, look)
        draw_seeds(rows, seeds, ax, look, 4.0)
        draw_gaps_apart(rows, frame, ax, look)
    return ax


def name_families(frame: pd.DataFrame, ax: Axes) -> None:
    """Every family's name, at its most expensive arm that has a mean."""
    known = frame[frame["mean"].notna()]
    ends = known.sort_values("at", kind="stable").drop_duplicates("series", keep="last")
    points = [(row.at, row.mean, in_lines(frame[frame["series"] == row.series])) for row in each(ends)]
    bars = [(row.at, row.low, row.high) for row in each(known) if not pd.isna(row.low)]
    label_points(ax, points, bars)


def in_lines(rows: pd.DataFrame) -> str:
    """The family's name in lines that leave room for others."""
    return wrapped(caption(rows), 1.3, current().text)
