"""What each way of growing a model buys: arXiv 2010.11929, Figure 8. All lines meet in the baseline."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.frame import Plan, arms, changed, given_name, seeds
from results.figures.lines import (
    axis_name,
    compute_axis,
    draw_gaps_apart,
    draw_points,
    draw_seeds,
    extent,
    looks,
    metric_axis,
    nothing_yet,
)
from results.figures.page import legend_above
from results.figures.theme import current
from results.records import Table
from results.study_results import StudyResults

WAYS = {"mlp_ratio": "width of the MLP", "patch": "patch size", "depth": "depth", "width": "width"}
BASE, ALL = "baseline", "all"
APART = 6.0  # and between intervals


def shape(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`; returns what to write under it."""
    frame, points = placed(study, table), seeds(study, table.metric)
    figure.set_figheight(3.2)
    ax = figure.subplots()
    over_relative_compute(frame, points, ax)
    ax.set_xlabel("relative compute (forward), log scale")
    metric_axis(ax, table.metric, *extent(frame, points))
    legend_above(ax, "")
    if not (frame["n"] > 0).any():
        nothing_yet(ax)
    return ["Filled: differs from the baseline (diamond), Holm-adjusted p < 0.05. Open: equivalent, or not resolved."]


def placed(study: StudyResults, table: Table) -> pd.DataFrame:
    """Rows of `arms` with the way of growing as `series`; at: the compute of an image over the baseline's; aside: how
    many points of paper beside it a mark stands, so that none covers another."""
    frame, plan = arms(study, table), study.plan
    planned = {arm["name"]: arm for arm in plan["arms"]}
    ways = [way(planned[arm], plan) for arm in frame["arm"]]
    base = frame["arm"].map(lambda arm: planned[planned[arm]["baseline"]]["flops"])
    frame = frame.assign(series=ways, line=[written(name) for name in ways], at=frame["flops"] / base)
    together = frame.groupby(frame["at"].round(9))["at"]
    return frame.assign(aside=APART * (together.cumcount() - (together.transform("size") - 1) / 2))


def way(arm: Plan, plan: Plan) -> str:
    """The factor in which an arm differs from the baseline; its family, else ALL, where it changes several."""
    if arm["name"] == arm["baseline"]:
        return BASE
    keys = [part.partition("=")[0] for part in changed(arm, plan).split(",")]
    return str(arm.get("model_family") or ALL) if len(keys) > 1 or given_name(arm, plan) else keys[0]


def written(name: str) -> str:
    return current().labels.get(name) or WAYS.get(name, axis_name(name))


def over_relative_compute(frame: pd.DataFrame, points: pd.DataFrame, ax: Axes) -> Axes:
    """Means with intervals and seeds over `at`; every line runs through the baseline.

    frame: rows of `arms` with `at`, series by way of growing; points: rows of `seeds`.
    """
    base = frame[frame["series"] == BASE]
    compute_axis(frame, ax)
    for name, look in looks(frame).items():
        rows = frame[frame["series"] == name]
        if name != BASE:
            line = pd.concat([rows, base]).sort_values("at", kind="stable")
            ax.plot(line["at"], line["mean"], color=look.colour, linestyle=look.dash, zorder=2)
        for aside in sorted(set(rows["aside"])):
            draw_points(rows[rows["aside"] == aside], ax, look, aside)
            draw_seeds(rows[rows["aside"] == aside], points, ax, look, aside + 3.0)
        draw_gaps_apart(rows, frame, ax, look)
        ax.plot([], [], color=look.colour, marker=look.marker, linestyle=look.dash, label=rows["line"].iloc[0])
    return ax
