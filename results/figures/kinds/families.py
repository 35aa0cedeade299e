"""The metric over what a training costs, a fit a family of models: arXiv 2010.11929, Figure 5."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.flops import flops_unit
from results.figures.frame import Plan, alone, arms, number, seeds
from results.figures.lines import (
    Look,
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
from results.statistics import power_law
from results.statistics.power_law import MIN_SIZES, Fits
from results.study_results import StudyResults
from results.units import is_accuracy, unit

DRAWN = 40  # points of a fitted curve
LEAST = 3  # seeds of a fit that is drawn
MARKS = "Filled: the baseline, and what differs from it (Holm-adjusted p < 0.05). Open: equivalent, or not resolved."


def families(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`; returns what to write under it."""
    frame, metric = placed(study, table), table.metric
    size, name = flops_unit(frame["flops"].max())
    frame = frame.assign(at=frame["flops"] / size)
    figure.set_figheight(3.0)
    ax = figure.subplots()
    points = seeds(study, metric)
    names = dict.fromkeys(frame["series"])
    found = {name: errors(frame[frame["series"] == name], points, metric) for name in names}
    fitted = {name: enough(power_law.fit(own)) for name, own in found.items()}
    over_compute(frame, points, fitted, ax, metric)
    ax.set_xlabel(f"total training compute ({name}), log scale")
    metric_axis(ax, metric, *extent(frame, points))
    legend_above(ax, "")
    if not (frame["n"] > 0).any():
        nothing_yet(ax)
    return [MARKS, described(frame, fitted), *left_out(found)]


def enough(fit: Fits | None) -> Fits | None:
    """The fit, where it rests on LEAST seeds."""
    return fit if fit and len(fit.b) >= LEAST else None


def placed(study: StudyResults, table: Table) -> pd.DataFrame:
    """Rows of `arms` with the family as `series`; flops: of the whole training. An arm of no family is its own."""
    frame = alone(arms(study, table), study.plan)
    planned = {arm["name"]: arm for arm in study.plan["arms"]}
    family = [planned[arm].get("model_family") or "" for arm in frame["arm"]]
    label = [current().label(name) for name in family]
    return frame.assign(
        series=np.where(family, family, frame["series"]),
        line=np.where(family, label, frame["line"]),
        flops=[training_flops(planned[arm]) for arm in frame["arm"]],
    )


def training_flops(arm: Plan) -> float:
    """6 x multiply-adds of a forward pass x images; `flops` counts 2 a multiply-add."""
    known = arm.get("train_flops")  # plans written before the field existed have none
    return float(known or 3 * arm["flops"] * arm["config"]["steps"] * arm["config"]["batch"])


def errors(rows: pd.DataFrame, points: pd.DataFrame, metric: str) -> power_law.Points:
    """Each seed's errors over compute: what an accuracy lacks to 1, or a loss itself."""
    own = points.merge(rows[["arm", "at"]], on="arm")
    error = 1 - own["value"] / unit(metric).scale if is_accuracy(metric) else own["value"]
    own = own.assign(error=error)
    by_seed = {seed: own[own["seed"] == seed] for seed in dict.fromkeys(own["seed"])}
    return {seed: (one["at"].to_numpy(), one["error"].to_numpy()) for seed, one in by_seed.items()}


def over_compute(
    frame: pd.DataFrame, points: pd.DataFrame, fitted: dict[str, Fits | None], ax: Axes, metric: str
) -> Axes:
    """Means with intervals and seeds over `at`, a look a family, and its fit where there is one.

    frame: rows of `arms` with `at`; points: rows of `seeds`.
    """
    compute_axis(frame, ax)
    for name, look in looks(frame.assign(reference=False)).items():  # no family is black: the baseline is in one
        rows = frame[frame["series"] == name].sort_values("at", kind="stable")
        draw_points(rows, ax, look)
        draw_seeds(rows, points, ax, look, 4.0)
        draw_gaps_apart(rows, frame, ax, look)
        fit = fitted[name]
        if fit:
            draw_fit(fit, ax, look, metric)
        ax.plot([], [], color=look.colour, marker=look.marker, linestyle="-" if fit else "", label=rows["line"].iloc[0])
    return ax


def draw_fit(fit: Fits, ax: Axes, look: Look, metric: str) -> None:
    """The mean of the seeds' fits with its 95% t interval, from the smallest size to the largest and no further."""
    compute = np.geomspace(fit.low, fit.high, DRAWN)
    error, estimates = fit.at(compute)
    scale = unit(metric).scale
    intervals = [estimate.interval() for estimate in estimates]
    ax.plot(compute, reached(error, scale, metric), color=look.colour, zorder=2)
    if all(intervals):
        low, high = np.array(intervals).T
        ax.fill_between(
            compute,
            reached(low, scale, metric),
            reached(high, scale, metric),
            color=look.colour,
            alpha=0.12,
            linewidth=0,
        )


def reached(error: np.ndarray, scale: float, metric: str) -> np.ndarray:
    return scale * (1 - error) if is_accuracy(metric) else error


def described(frame: pd.DataFrame, fitted: dict[str, Fits | None]) -> str:
    """The exponents with their seeds where some are left out, and which families have no fit."""
    lines = dict(zip(frame["series"], frame["line"], strict=True))
    planned = frame.groupby("series")["planned"].max()
    found = ", ".join(f"{lines[name]} {exponent(fit, planned[name])}" for name, fit in fitted.items() if fit)
    short = ", ".join(lines[name] for name, fit in fitted.items() if not fit)
    law = f"Lines: error = a C^\N{MINUS SIGN}b, fitted per seed, no further than its sizes, 95% t band; b: {found}."
    without = f"No fit, fewer than {LEAST} seeds with {MIN_SIZES} sizes: {short}."
    return " ".join([law] * bool(found) + [without] * bool(short))


def exponent(fit: Fits, planned: int) -> str:
    """ "0.31 [0.27, 0.35]", "0.31 [0.27, 0.35] (4 of 5 seeds)" """
    interval, seeds = fit.exponent().interval(), len(fit.b)
    b = number(float(fit.b.mean()), 2)
    b += "" if interval is None else f" [{number(interval[0], 2)}, {number(interval[1], 2)}]"
    return b if seeds == planned else f"{b} ({seeds} of {planned} seeds)"


def left_out(found: dict[str, power_law.Points]) -> list[str]:
    """The trials that no fit can take."""
    count = sum(int((error <= 0).sum()) for points in found.values() for _, error in points.values())
    trials = "1 trial" if count == 1 else f"{count} trials"
    return [f"In no fit, as an error of 0 has no logarithm: {trials}."] * bool(count)
