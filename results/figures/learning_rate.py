"""The metric over the learning rate, and validation over training: arXiv 2010.11929, Figure 9.

The point of that figure: two heads tie, each at a learning rate of its own. So the rate is an axis here, not a choice.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.frame import arms, each, seeds, x_of
from results.figures.lines import (
    Look,
    axis_name,
    draw_lines,
    extent,
    looks,
    marks,
    metric_axis,
    nothing_yet,
    place,
    swept_axis,
    values,
)
from results.figures.page import legend_above, narrow
from results.figures.style import DASHES, GREY
from results.study import StudyResults
from results.tables import Table

HEIGHT = 2.9  # inches a panel


def learning_rate(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`; returns what to write under it."""
    frame, x = place(arms(study, table)), x_of(study.plan)
    stacked = narrow(figure)
    figure.set_figheight(2 * HEIGHT if stacked else HEIGHT)
    final, training = figure.subplots(*((2, 1) if stacked else (1, 2)))
    points = seeds(study, table["metric"])
    draw_lines(frame, points, final)
    swept_axis(frame, final, x, values(frame))
    metric_axis(final, table["metric"], *extent(frame, points))
    legend_above(final, "at the end of training")
    if not (frame["n"] > 0).any():
        nothing_yet(final)
    training_curves(study, frame, training, axis_name(x))
    return [
        marks(x),
        "Training: mean of the finished seeds, band from lowest to highest. Thin: trials that diverged (×) or go on.",
    ]


def training_curves(study: StudyResults, frame: pd.DataFrame, ax: Axes, name: str) -> Axes:
    """Validation accuracy over steps: colour a series, dashes a value of the axis."""
    table = looks(frame)
    swept = sorted(set(frame["at"]))
    history = study.history.merge(study.trials[["arm", "seed", "status"]], on=["arm", "seed"])
    history = history.assign(value=100 * history["val_accuracy"]).dropna(subset="value")
    for row in each(frame):
        own = history[history["arm"] == row.arm]
        dash = DASHES[swept.index(row.at) % len(DASHES)]
        draw_band(own[own["status"] == "finished"], ax, table[row.series], dash)
        draw_unfinished(own[own["status"] != "finished"], ax, table[row.series], dash)
    ax.set_xlabel("training step")
    metric_axis(ax, "val_accuracy", history["value"])
    for k, value in enumerate(values(frame)):
        ax.plot([], [], color=GREY, linestyle=DASHES[k % len(DASHES)], label=value)
    legend_above(ax, f"over training, by {name}")
    if history.empty:
        ax.set_xticks([])
        nothing_yet(ax)
    return ax


def draw_band(history: pd.DataFrame, ax: Axes, look: Look, dash: object) -> None:
    """The mean over seeds with their range, at the steps that all of them reached."""
    if history.empty:
        return
    steps = history.pivot_table(index="step", columns="seed", values="value").dropna()
    ax.fill_between(steps.index, steps.min(axis=1), steps.max(axis=1), color=look.colour, alpha=0.12, linewidth=0)
    ax.plot(steps.index, steps.mean(axis=1), color=look.colour, linestyle=dash)


def draw_unfinished(history: pd.DataFrame, ax: Axes, look: Look, dash: object) -> None:
    """A thin line a trial, ending in a cross where it diverged."""
    for _, trial in history.groupby("seed"):
        trial = trial.sort_values("step")
        ax.plot(trial["step"], trial["value"], color=look.colour, linestyle=dash, linewidth=0.6)
        if (trial["status"] == "diverged").any():
            ax.plot(trial["step"].iloc[-1:], trial["value"].iloc[-1:], "x", color=look.colour)
