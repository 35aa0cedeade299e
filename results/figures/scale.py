"""The metric over the amount of data, at equal steps: arXiv 2010.11929, Figure 4."""

import pandas as pd
from matplotlib.figure import Figure

from results.figures.frame import arms, seeds, x_of
from results.figures.lines import draw_lines, extent, marks, metric_axis, nothing_yet, place, plain, swept_axis, values
from results.figures.page import legend_above
from results.study import StudyResults
from results.tables import Table


def scale(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`; returns what to write under it."""
    frame, x = place(arms(study, table)), x_of(study.plan)
    figure.set_figheight(2.6)
    ax = figure.subplots()
    swept_axis(frame, ax, x, sizes(frame, study.history) if x == "data_fraction" else values(frame))
    points = seeds(study, table["metric"])
    draw_lines(frame, points, ax)
    metric_axis(ax, table["metric"], *extent(frame, points))
    legend_above(ax, equal_steps(study.trials))
    if not (frame["n"] > 0).any():
        nothing_yet(ax)
    return [marks(x)] if frame["series"].nunique() > 1 else []


def sizes(frame: pd.DataFrame, history: pd.DataFrame) -> list[str]:
    """A label a size: the share of the training images over their number, where a trial tells it."""
    counts = training_images(history).reindex(frame["arm"]).groupby(list(frame["at"])).median()
    known = {at: "" if pd.isna(count) else f"\n{count:,.0f} images" for at, count in counts.items()}
    return [f"{plain(100 * at)}%{known[at]}" for at in sorted(set(frame["at"]))]


def training_images(history: pd.DataFrame) -> pd.Series:
    """Arm -> images that an epoch sees; folds of unequal size differ by one, so it is the median of its trials."""
    seen = history[history["epoch"] > 0]
    return (seen["images"] / seen["epoch"]).groupby(seen["arm"]).median()


def equal_steps(trials: pd.DataFrame) -> str:
    """What every point was trained for, from the trials themselves: nothing is said before one has finished."""
    steps = sorted(set(trials["steps"].dropna().astype(int)))
    if not steps:
        return ""
    return f"every point: {steps[0]:,} steps" if len(steps) == 1 else f"steps differ: {steps[0]:,} to {steps[-1]:,}"
