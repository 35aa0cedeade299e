"""The metric over an ordered factor, and on the second axis what each value costs: patch size and the like."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.flops import flops_unit, log_ticks
from results.figures.frame import arms, each, seeds, x_of
from results.figures.lines import marks, over_axis, place, spelled, values
from results.figures.page import legend_above
from results.figures.theme import GREY
from results.records import Table
from results.study_results import StudyResults


def axis(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`; returns what to write under it."""
    frame = place(arms(study, table))
    figure.set_figheight(2.6)
    ax = figure.subplots()
    one_line = frame["series"].nunique() == 1
    points, labels = seeds(study, table.metric), judged(frame) if one_line else values(frame)
    over_axis(frame, points, ax, table.metric, x_of(study.plan), labels)
    compute(frame, ax.twinx())
    ax.set_zorder(1)  # the metric in front of its cost
    ax.patch.set_visible(False)
    if one_line:
        return []
    legend_above(ax, "")
    return [marks(x_of(study.plan)), *spelled(frame)]


def judged(frame: pd.DataFrame) -> list[str]:
    """A label a value: the value over the verdict of its arm."""
    rows = each(frame.sort_values("at", kind="stable"))
    words = ["baseline" if row.reference else (row.verdict or "").replace("-", " ") for row in rows]
    return [f"{value}\n{word}" for value, word in zip(values(frame), words, strict=True)]


def compute(frame: pd.DataFrame, ax: Axes) -> Axes:
    """FLOPs of one image forward, in grey, on a log axis."""
    size, name = flops_unit(frame["flops"].max())
    for _, family in frame.groupby("series", sort=False):
        rows = family.sort_values("at", kind="stable")
        ax.plot(rows["at"], rows["flops"] / size, color=GREY, linestyle=":", linewidth=1.0, marker="_", markersize=9)
    ax.grid(visible=False)
    ax.spines["right"].set_visible(True)
    ax.spines["right"].set_color(GREY)
    ax.set_yscale("log")
    low, high = frame["flops"].min() / size, frame["flops"].max() / size
    ax.set_ylim(low / 1.5, high * 1.5)
    log_ticks(ax.yaxis, low / 1.5, high * 1.5)
    ax.tick_params(axis="y", colors=GREY)
    ax.set_ylabel(f"compute: {name} per image (dotted)", color=GREY)
    return ax
