"""The figure kind `axis`: the metric over an ordered factor, with the forward FLOPs of each value on a second axis."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.axes import flops_unit, set_log_ticks, tick_labels, with_positions
from results.figures.frame import arms_frame, rows_of, seeds_frame, x_setting
from results.figures.lines import baseline_notes, draw_over_axis, marks_note
from results.figures.page import add_panels, draw_legend
from results.figures.theme import GREY
from results.records import Table
from results.study_results import StudyResults


def draw(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    frame = with_positions(arms_frame(study, table))
    (ax,) = add_panels(figure, 1, 2.6)
    one_line = frame["series"].nunique() == 1
    labels = None
    if one_line:  # the verdict below each value
        rows = rows_of(frame.sort_values("at", kind="stable"))
        words = ["baseline" if row.reference else row.verdict.replace("-", " ") + row.mark for row in rows]
        labels = [f"{value}\n{word}" for value, word in zip(tick_labels(frame), words, strict=True)]
    metric = table.plan.primary_metric
    draw_over_axis(frame, seeds_frame(study, metric), ax, metric, x_setting(study.plan), labels)
    draw_compute(frame, ax.twinx())
    ax.set_zorder(1)  # the metric in front of its cost
    ax.patch.set_visible(False)
    if one_line:
        return []
    draw_legend(ax)
    return [marks_note(x_setting(study.plan)), *baseline_notes(frame)]


def draw_compute(frame: pd.DataFrame, ax: Axes) -> None:
    """Draw forward FLOPs per image in gray on a log axis."""
    size, name = flops_unit(frame["flops"].max())
    for _, family in frame.groupby("series", sort=False):
        rows = family.sort_values("at", kind="stable")
        ax.plot(rows["at"], rows["flops"] / size, color=GREY, linestyle=":", linewidth=1.0, marker="_", markersize=9)
    ax.grid(visible=False)
    ax.spines["right"].set(visible=True, color=GREY)
    low, high = frame["flops"].min() / size / 1.5, frame["flops"].max() / size * 1.5
    ax.set(yscale="log", ylim=(low, high))
    set_log_ticks(ax.yaxis, low, high)
    ax.tick_params(axis="y", colors=GREY)
    ax.set_ylabel(f"compute: {name} per image (dotted)", color=GREY)
