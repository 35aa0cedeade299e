"""Validation over training, seeds as bands, unfinished trials included: arXiv 2010.11929, Figure 9."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results import stats
from results.figures.frame import alone, arms, each, x_of
from results.figures.lines import Look, axis_name, looks, metric_axis, nothing_yet, place, values
from results.figures.page import legend_above
from results.figures.style import DASHES, GREY
from results.names import AXES
from results.study import StudyResults
from results.tables import Table
from results.units import unit

TIMES = {3600.0: "hours", 60.0: "minutes", 1.0: "seconds"}
BAND = 3  # seeds that a band needs: over two the t interval is 12.7 standard errors wide, and covers the picture
BANDS = 6  # at most: more of them hide each other, and the lines


def curves(study: StudyResults, table: Table, figure: Figure, x: str = "step") -> list[str]:
    """Draws the study's training over `x`, one of AXES, on `figure`; returns what to write under it."""
    frame = place(alone(arms(study, table), study.plan))
    figure.set_figheight(2.9)
    ax = figure.subplots()
    training_curves(study, frame, ax, x)
    for name, look in looks(frame).items():
        rows = frame[frame["series"] == name]
        dash = "-" if study.plan["curves"] else look.dash
        long = rows["reference"].any() and "," in name  # of several factors
        ax.plot([], [], color=look.colour, linestyle=dash, label="baseline" if long else rows["line"].iloc[0])
    if study.plan["curves"]:
        dashes_legend(frame, ax, f"{axis_name(x_of(study.plan))} ")
    legend_above(ax, "")
    return [note(frame)]


def note(frame: pd.DataFrame) -> str:
    """What lines and bands are. frame: a row a line."""
    band = f"; band: 95% t interval, from {BAND} seeds on" if banded(frame) else ""
    return (
        f"Lines: mean over the finished seeds (where there is none, over those that go on){band}. Thin: single seeds "
        f"of fewer than {BAND}, trials that diverged (×), failed or go on."
    )


def banded(frame: pd.DataFrame) -> bool:
    return len(frame) <= BANDS


def training_curves(study: StudyResults, frame: pd.DataFrame, ax: Axes, x: str = "step") -> Axes:
    """The metric on the validation images over `x`: colour a series, dashes a point of the study's curve.

    frame: rows of `arms` with `at`.
    """
    table, metric = looks(frame), measure(study)
    swept = sorted(set(frame["at"]))
    history = study.history.merge(study.trials[["arm", "seed", "status"]], on=["arm", "seed"])
    size, name = axis_unit(x, history[x])
    history = history.assign(at=history[x] / size, value=unit(metric).scale * history[metric])
    history = history.dropna(subset=["at", "value"])
    for row in each(frame):
        look = table[row.series]
        dash = DASHES[swept.index(row.at) % len(DASHES)] if study.plan["curves"] else look.dash
        own = history[history["arm"] == row.arm]
        draw_mean(averaged(own), ax, look, dash, banded(frame))
        few = own["seed"].nunique() < BAND
        draw_seeds(own if few else own[own["status"] != "finished"], ax, look, dash)
    ax.set_xlabel(name)
    ax.xaxis.set_major_formatter(lambda tick, _: f"{tick:,g}")
    metric_axis(ax, metric, history["value"])
    if history.empty:
        ax.set_xticks([])
        nothing_yet(ax, "no evaluation yet")
    return ax


def dashes_legend(frame: pd.DataFrame, ax: Axes, of: str = "") -> None:
    """Entries for the points of the curve."""
    for k, value in enumerate(values(frame)):
        ax.plot([], [], color=GREY, linestyle=DASHES[k % len(DASHES)], label=f"{of}{value}")


def measure(study: StudyResults) -> str:
    """What is evaluated during training and nearest to the study's metric; the training loss without validation."""
    name = {"test_loss": "val_loss", "val_loss": "val_loss", "train_loss": "train_loss"}.get(
        study.plan["metric"], "val_accuracy"
    )
    validated = study.history.empty or study.history[name].notna().any()
    return name if validated else "train_loss"


def axis_unit(x: str, found: pd.Series) -> tuple[float, str]:
    """(size, name) of the axis: seconds become minutes or hours where there are more than ten."""
    if x != "seconds":
        return 1.0, AXES[x]
    longest = found.max() if len(found) else 0.0
    size = next((size for size in TIMES if longest > 10 * size), 1.0)
    return size, f"{AXES[x]} ({TIMES[size]})"


def averaged(history: pd.DataFrame) -> pd.DataFrame:
    """at, mean, low, high over seeds at the steps that all of them reached: of the finished, else of those that go on.

    low and high are NaN for fewer seeds than BAND.
    """
    finished = history[history["status"] == "finished"]
    seeds = history[~history["status"].isin(["diverged", "failed"])] if finished.empty else finished
    values = seeds.pivot_table(index="step", columns="seed", values="value").dropna()
    n, mean = values.shape[1], values.mean(axis=1)
    half = stats.quantile(0.975, n - 1) * values.std(axis=1, ddof=1) / np.sqrt(n) if n >= BAND else mean * np.nan
    at = seeds.groupby("step")["at"].mean().reindex(values.index)
    return pd.DataFrame({"at": at, "mean": mean, "low": mean - half, "high": mean + half})


def draw_mean(rows: pd.DataFrame, ax: Axes, look: Look, dash: Any, band: bool) -> None:
    """rows: of `averaged`."""
    if rows.empty:
        return
    if band and rows["low"].notna().any():
        ax.fill_between(rows["at"], rows["low"], rows["high"], color=look.colour, alpha=0.12, linewidth=0)
    ax.plot(rows["at"], rows["mean"], color=look.colour, linestyle=dash, marker=dot(rows))


def draw_seeds(history: pd.DataFrame, ax: Axes, look: Look, dash: Any) -> None:
    """A thin line a trial, ending in a cross where it diverged."""
    for _, trial in history.groupby("seed"):
        trial = trial.sort_values("step")
        ax.plot(trial["at"], trial["value"], color=look.colour, linestyle=dash, linewidth=0.6, marker=dot(trial))
        if (trial["status"] == "diverged").any():
            ax.plot(trial["at"].iloc[-1:], trial["value"].iloc[-1:], "x", color=look.colour)


def dot(rows: pd.DataFrame) -> str:
    """A mark where there is one evaluation only, through which no line goes."""
    return "." if len(rows) == 1 else ""
