"""The figure kind `shape`: the gain from each way of scaling a model (arXiv 2010.11929, Figure 8).

All lines meet at the baseline.
"""

import pandas as pd
from matplotlib.figure import Figure

from results.figures import axes, lines
from results.figures.frame import arm_change, arms_frame, given_name, seeds_frame
from results.figures.page import add_panels, draw_legend
from results.records import Table
from results.store.schemas import Arm, Plan
from results.study_results import StudyResults
from results.style import current_style

WAYS = {"mlp_ratio": "width of the MLP", "patch": "patch size", "depth": "depth", "width": "width"}
BASE, ALL = "baseline", "all"
APART = 6.0  # points (1/72 inch) between markers at one position


def draw(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    frame, points = shape_frame(study, table), seeds_frame(study, table.plan.primary_metric)
    (ax,) = add_panels(figure, 1, 3.2)
    axes.set_compute_axes(frame, points, ax, table.plan.primary_metric, "relative compute (forward)")
    base = frame[frame["series"] == BASE]
    for name, rows in frame.groupby("series", sort=False):
        if name != BASE:
            line, look = pd.concat([rows, base]).sort_values("at", kind="stable"), rows.iloc[0]
            ax.plot(line["at"], line["mean"], color=look["colour"], linestyle=look["dash"], zorder=2)
        for aside in sorted(set(rows["aside"])):
            lines.draw_points(rows[rows["aside"] == aside], points, ax, aside, 3.0)
        lines.add_legend_line(ax, rows, rows["line"].iloc[0])
    lines.draw_spread_absences(frame, ax)
    draw_legend(ax)
    return ["Filled: differs from the baseline (diamond), Holm-adjusted p < 0.05. Open: equivalent, or not resolved."]


def shape_frame(study: StudyResults, table: Table) -> pd.DataFrame:
    """Return `arms_frame` with `series` (the scaled dimension), `at` (compute relative to the baseline) and `aside`.

    aside: offset in points (1/72 inch) that keeps markers apart.
    """
    frame, plan = arms_frame(study, table), study.plan
    planned = {arm.name: arm for arm in plan.arms}
    ways = [scaled_dimension(planned[arm], plan) for arm in frame["arm"]]
    base = frame["arm"].map(lambda arm: planned[planned[arm].baseline].flops)
    labels = [current_style().labels.get(name) or WAYS.get(name, axes.axis_name(name)) for name in ways]
    frame = frame.assign(series=ways, line=labels, at=frame["flops"] / base)
    together = frame.groupby(frame["at"].round(9))["at"]
    return lines.with_styles(frame.assign(aside=APART * (together.cumcount() - (together.transform("size") - 1) / 2)))


def scaled_dimension(arm: Arm, plan: Plan) -> str:
    """Return the only factor that an arm changes, or else its model family or ALL. A baseline has BASE."""
    if arm.name == arm.baseline:
        return BASE
    keys = [part.partition("=")[0] for part in arm_change(arm, plan).split(",")]
    return arm.model_family or ALL if len(keys) > 1 or given_name(arm, plan) else keys[0]
