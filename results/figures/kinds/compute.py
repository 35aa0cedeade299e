"""The figure kind `compute`: the metric over forward compute, with every series named.

Compare arXiv 2010.11929, Figure 5.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from results.figures import axes, lines
from results.figures.frame import arms_frame, one_series_per_arm, rows_of, seeds_frame
from results.figures.labels import box_around, boxes_along, label_points
from results.figures.page import add_panels, draw_legend, is_narrow, wrap_text
from results.records import Table
from results.study_results import StudyResults
from results.style import current_style

MARKS = "Filled marks differ from the baseline (Holm-adjusted p < 0.05); open ones do not, or cannot be told."


def draw(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    frame = arms_frame(study, table)
    size, flops = axes.flops_unit(frame["flops"].max())
    frame = lines.with_styles(one_series_per_arm(frame, study.plan)).assign(at=frame["flops"] / size)
    (ax,) = add_panels(figure, 1, 3.2)
    points = seeds_frame(study, table.metric)
    axes.set_compute_axes(frame, points, ax, table.metric, f"compute: {flops} per image (forward)")
    for rows in lines.series_rows(frame):
        lines.draw_line(rows, ax)
        lines.draw_points(rows, points, ax)
    lines.draw_spread_absences(frame, ax)
    if is_narrow(figure) or not name_families(frame, points, ax, figure):
        for rows in lines.series_rows(frame):
            lines.add_legend_line(ax, rows, lines.legend_entry(rows), **({} if len(rows) > 1 else {"linestyle": ""}))
        draw_legend(ax)
    return [MARKS, *lines.baseline_notes(frame)]


def name_families(frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes, figure: Figure) -> bool:
    """Write each series' name at its most expensive arm with a mean, and return whether all names fit.

    If one does not fit, none is written.
    """
    figure.draw_without_rendering()
    known = frame[frame["mean"].notna()].sort_values("at", kind="stable")
    points = []
    for row in rows_of(known.drop_duplicates("series", keep="last")):
        entry = lines.legend_entry(frame[frame["series"] == row.series])
        points.append((row.at, row.mean, wrap_text(entry, 1.3, current_style().text), row.colour))
    return label_points(ax, points, covered_boxes(known, seeds, ax))


def covered_boxes(known: pd.DataFrame, seeds: pd.DataFrame, ax: Axes) -> list[Bbox]:
    """Return boxes, in pixels, of all markers, intervals, seeds, lines and texts. known: the arms with a mean."""
    ends = (known[end].fillna(known["mean"]) for end in ("low", "high"))
    boxes = [box_around(ax, *row) for row in zip(known["at"], *ends, strict=True)]
    singles = seeds.merge(known[["arm", "at"]], on="arm")
    boxes += [box_around(ax, row.at, row.value, row.value) for row in rows_of(singles)]  # covers the shifted dots
    for _, rows in known.groupby("series"):
        boxes += boxes_along(ax, list(zip(rows["at"], rows["mean"], strict=True)))
    return boxes + [text.get_window_extent() for text in ax.texts if text.get_text()]
