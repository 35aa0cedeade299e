"""The figure kind `compute`: the metric over forward compute, with a line per series.

Compare arXiv 2010.11929, Figure 5.
"""

from matplotlib.figure import Figure

from results.figures import axes, lines
from results.figures.frame import arms_frame, one_series_per_arm, seeds_frame
from results.figures.page import add_panels, draw_legend
from results.records import Table
from results.study_results import StudyResults

MARKS = "Filled marks differ from the baseline (Holm-adjusted p < 0.05); open ones do not, or cannot be told."


def draw(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    frame = arms_frame(study, table)
    size, flops = axes.flops_unit(frame["flops"].max())
    frame = lines.with_styles(one_series_per_arm(frame, study.plan)).assign(at=frame["flops"] / size)
    (ax,) = add_panels(figure, 1, 3.2)
    points = seeds_frame(study, table.plan.primary_metric)
    axes.set_compute_axes(frame, points, ax, table.plan.primary_metric, f"compute: {flops} per image (forward)")
    for rows in lines.series_rows(frame):
        lines.draw_line(rows, ax)
        lines.draw_points(rows, points, ax)
    lines.draw_spread_absences(frame, ax)
    for rows in lines.series_rows(frame):
        dash = rows["dash"].iloc[0] if len(rows) > 1 else ""
        lines.add_legend_line(ax, rows, lines.legend_entry(rows), linestyle=dash)
    draw_legend(ax)
    return [MARKS, *lines.baseline_notes(frame)]
