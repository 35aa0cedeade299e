"""The figure kind `curves`: validation accuracy or a loss over training (compare arXiv 2010.11929, Figure 9)."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures import plots
from results.figures.frame import arms_frame, one_series_per_arm, rows_of, x_setting
from results.figures.kinds import FigureKind
from results.figures.page import DASHES, GREY, UNCLIPPED, add_panels, draw_legend
from results.records import Table
from results.statistics import intervals, tuning
from results.store.schemas.metrics import AXES, Metric
from results.study_results import StudyResults
from results.style import current_style

TIMES = {3600.0: "hours", 60.0: "minutes", 1.0: "seconds"}
DASHED = DASHES[1]
BAND = 3  # fewest seeds with a band: with two seeds, it would extend 12.7 standard errors to either side
MAX_SPEED_RATIO = 1.5  # largest ratio of step times between trials of equal FLOPs on equal machines
MARKED = 8  # approximate number of markers on a line
SMALL = 3.5  # points, the size of the markers on a line
BANDS = 6  # maximum number of bands: more would hide each other and the lines


def draw(study: StudyResults, table: Table, figure: Figure, x: str) -> list[str]:
    """Draw validation accuracy or a loss over training, with bands over seeds (arXiv 2010.11929, Figure 9).

    x: step, epoch, images or seconds. Returns the figure's notes.
    """
    frame = one_series_per_arm(arms_frame(study, table), study.plan)
    (ax,) = add_panels(figure, 1, 2.9)
    lines, tuned, notes = draw_arms(study, frame, ax, x)
    if not tuned:
        for _, rows in lines.groupby("series", sort=False):
            if len(rows) > 1:
                rows = rows.assign(dash="-")
            plots.add_legend_line(ax, rows, plots.legend_entry(rows).removesuffix(" (baseline)"), markersize=SMALL)
        if study.plan.curves:
            add_dash_entries(lines, ax, f"{plots.axis_name(x_setting(study.plan))} ")
    draw_legend(ax)
    if x == "seconds":
        notes += uneven_speed_note(study, list(lines["arm"]))
    return notes


def kind_over(x: str) -> FigureKind:
    """Return the kind of figure that draws training over the axis `x`. Raises ValueError unless x is in AXES."""
    if x not in AXES:
        raise ValueError(f"x={x}: one of {', '.join(AXES)}")
    return FigureKind(partial(draw, x=x), metric_of=training_metric, over_training=True, whole_grid=True)


def draw_arms(study: StudyResults, frame: pd.DataFrame, ax: Axes, x: str) -> tuple[pd.DataFrame, bool, list[str]]:
    """Draw `arms_to_follow` over training. Return (their rows, whether they are at tuned values, notes)."""
    lines, choice_notes = arms_to_follow(study, frame)
    if not lines[["colour", "dash"]].astype(str).duplicated().any():
        lines = lines.assign(marker="")  # not needed to tell lines apart
    history = evaluations_frame(study, training_metric(study))
    draw_training_curves(lines, history, ax, training_metric(study), x)
    if choice_notes:  # arms at tuned values, which are few
        for _, row in lines.groupby("arm", sort=False):
            plots.add_legend_line(ax, row, row["line"].iloc[0], markersize=SMALL)
    band = f"no bands: more than {BANDS} lines"
    if len(lines) <= BANDS:
        band = f"band: 95% t interval, from {BAND} seeds on"
    notes = [
        *choice_notes,
        f"Lines: mean over the finished seeds (if none has finished, over the running ones); {band}. Thin: single "
        f"seeds of fewer than {BAND}, trials that diverged (×), failed or are running.",
    ]
    names = ", ".join(lines["label"][~lines["arm"].isin(history["arm"])])
    if names and not history.empty:
        notes.append(f"No line, as no trial was evaluated: {names}.")
    return lines, bool(choice_notes), notes


def uneven_speed_note(study: StudyResults, arms: list[str]) -> list[str]:
    last = study.history[study.history["arm"].isin(arms)].groupby(["arm", "seed"]).last()
    pace = (last["seconds"] / last["step"]).dropna()
    work = {arm.name: f"{arm.flops} {arm.config.get('batch')}" for arm in study.plan.arms}
    ranges = pace.groupby(pace.index.get_level_values("arm").map(work)).agg(["min", "max"])
    ratio = ranges["max"] / ranges["min"]
    if ratio.empty or ratio.max() <= MAX_SPEED_RATIO:
        return []
    worst = ranges[ratio == ratio.max()].iloc[0]
    return [
        "Seconds are not comparable, as machines differed or were shared: a step took "
        f"{worst['min']:.2g} to {worst['max']:.2g} s in trials of equal FLOPs."
    ]


def arms_to_follow(study: StudyResults, frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return (rows of `with_styles` for the arms to draw over training, notes on the choice).

    In a tuned study each arm is drawn at the value that most of its seeds choose and, dashed, at its baseline's. In
    others, dashes show the value of the swept setting, or the series.
    """
    dashes = dashes_of_tuned(study)
    if dashes:
        rows = frame[frame["arm"].isin(dashes.keys())]
        setting = current_style().label(x_setting(study.plan))
        named = [f"{row.line}, {row.tick or f'{setting}={plots.value_text(row.x)}'}" for row in rows_of(rows)]
        at = " and ".join(map(plots.axis_name, study.plan.tune))
        note = f"Over training each is at the {at} that most of its seeds choose in validation"
        if DASHED in dashes.values():
            note += f"; dashed: at the baseline's {at}"
        return plots.with_styles(rows).assign(dash=rows["arm"].map(dashes), line=named), [f"{note}."]
    frame = plots.with_styles(frame)
    if study.plan.curves:
        swept = frame["at"].rank(method="dense").astype(int) - 1
        frame = frame.assign(dash=[DASHES[number % len(DASHES)] for number in swept])
    return frame, []


def dashes_of_tuned(study: StudyResults) -> dict[str, Any]:
    entries = {entry.name: entry for entry in study.plan.tuned}
    usual = tuning.usual_points(study)
    dashes: dict[str, Any] = {}
    for entry in entries.values():
        if entry.baseline in usual:
            dashes[entry.points[usual[entry.baseline]]] = DASHED
    return dashes | {entries[name].points[point]: "-" for name, point in usual.items()}


def evaluations_frame(study: StudyResults, metric: Metric) -> pd.DataFrame:
    history = study.history.merge(study.trials[["arm", "seed", "status"]], on=["arm", "seed"])
    history = history.assign(value=metric.scale * history.get(metric.name, np.nan))
    return history[["arm", "seed", "status", *AXES, "value"]].dropna(subset="value")


def draw_training_curves(frame: pd.DataFrame, history: pd.DataFrame, ax: Axes, metric: Metric, x: str) -> None:
    evaluations = history[history["arm"].isin(frame["arm"])]
    size = 1.0
    name = AXES[x]
    if x == "seconds":
        size = next((size for size in TIMES if evaluations[x].max() > 10 * size), 1.0)
        name += f" ({TIMES[size]})"
    evaluations = evaluations.assign(at=evaluations[x] / size).dropna(subset="at")
    drawn = []
    for row in rows_of(frame):
        of_arm = evaluations[evaluations["arm"] == row.arm]
        mean = mean_over_seeds(of_arm)
        if len(frame) > BANDS:
            mean = mean.assign(low=np.nan, high=np.nan)
        if mean["low"].notna().any():
            ax.fill_between(mean["at"], mean["low"], mean["high"], color=row.colour, alpha=0.12, linewidth=0)
        if len(mean):
            ax.plot(mean["at"], mean["mean"], color=row.colour, linestyle=row.dash, **line_options(mean, row.marker))
        single = of_arm
        if of_arm["seed"].nunique() >= BAND:
            single = of_arm[of_arm["status"] != "finished"]
        for _, trial in single.sort_values("step").groupby("seed"):
            thin = {"linewidth": 0.6, **line_options(trial, row.marker)}
            ax.plot(trial["at"], trial["value"], color=row.colour, linestyle=row.dash, **thin)
            if (trial["status"] == "diverged").any():
                ax.plot(trial["at"].iloc[-1:], trial["value"].iloc[-1:], "x", color=row.colour)
        drawn += [mean["mean"], mean["low"], mean["high"], single["value"]]
    ax.set_xlabel(name)
    ax.xaxis.set_major_formatter(lambda tick, _: f"{tick:,g}")
    plots.set_metric_axis(ax, metric, drawn, empty="no evaluation yet")
    if evaluations.empty:
        ax.set_xticks([])


def add_dash_entries(frame: pd.DataFrame, ax: Axes, of: str = "") -> None:
    for k, value in enumerate(plots.tick_labels(frame)):
        ax.plot([], [], color=GREY, linestyle=DASHES[k % len(DASHES)], label=f"{of}{value}")


def training_metric(study: StudyResults) -> Metric:
    """Return the metric to draw over training: the measured one that is closest to the study's metric."""
    plan = study.plan
    measured = [name for name in study.curves if study.history[name].notna().any()]
    wanted = [plan.metric.replace("test_", "val_"), plan.metric, plan.selection_metric]
    best = [name for name in wanted if name in measured]
    unmeasured = [name for name in wanted if name in plan.trial_metrics]
    return plan.metric_named([*best, *measured, *unmeasured, plan.selection_metric][0])


def mean_over_seeds(history: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds at the steps that all seeds have, with 95% t intervals from BAND seeds on.

    Only finished trials count or, without any, those that neither diverged nor failed. history: of one arm.
    """
    seeds = history[history["status"] == "finished"]
    if seeds.empty:
        seeds = history[~history["status"].isin(["diverged", "failed"])]
    values = seeds.pivot_table(index="step", columns="seed", values="value").dropna()
    n = values.shape[1]
    mean = values.mean(axis=1)
    half = mean * np.nan
    if n >= BAND:
        half = intervals.t_quantile(0.975, n - 1) * values.std(axis=1, ddof=1) / np.sqrt(n)
    at = seeds.groupby("step")["at"].mean().reindex(values.index)
    return pd.DataFrame({"at": at, "mean": mean, "low": mean - half, "high": mean + half})


def line_options(rows: pd.DataFrame, marker: str) -> dict[str, Any]:
    if marker:
        return {"marker": marker, "markevery": max(1, len(rows) // MARKED), "markersize": SMALL, **UNCLIPPED}
    return {"marker": "." if len(rows) == 1 else "", **UNCLIPPED}


CURVES = kind_over("step")
