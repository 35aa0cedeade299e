"""Validation over training, seeds as bands, unfinished trials included: arXiv 2010.11929, Figure 9."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.frame import alone, arms, each, x_of
from results.figures.lines import Look, axis_name, is_long, looks, metric_axis, nothing_yet, place, plain, values
from results.figures.page import legend_above
from results.figures.theme import DASHES, GREY, current
from results.names import AXES
from results.records import Table
from results.statistics import inference, tuning
from results.study_results import StudyResults
from results.units import unit

TIMES = {3600.0: "hours", 60.0: "minutes", 1.0: "seconds"}
DASHED = DASHES[1]
BAND = 3  # seeds that a band needs: over two the t interval is 12.7 standard errors wide, and covers the picture
EVEN = 1.5  # times as many seconds a step, between trials of equal FLOPs, pass for equal machines
MARKED = 8  # marks on a line, about
SMALL: dict[str, Any] = {"markersize": 3.5}
BANDS = 6  # at most: more of them hide each other, and the lines


def curves(study: StudyResults, table: Table, figure: Figure, x: str = "step") -> list[str]:
    """Draws the study's training over `x`, one of AXES, on `figure`; returns what to write under it."""
    frame = place(alone(arms(study, table), study.plan))
    figure.set_figheight(2.9)
    ax = figure.subplots()
    lines, said = followed(study, frame)
    training_curves(lines, evaluations(study, measure(study)), ax, measure(study), x)
    if said:
        name_lines(lines, ax)
    else:
        name_series(lines, ax)
        if study.plan["curves"]:
            dashes_legend(lines, ax, f"{axis_name(x_of(study.plan))} ")
    legend_above(ax, "")
    return [*said, note(lines), *(load_of_machines(study, list(lines["arm"])) if x == "seconds" else [])]


def load_of_machines(study: StudyResults, arms: list[str]) -> list[str]:
    """A warning where trials of equal FLOPs differ by more than EVEN in seconds a step, which no model explains."""
    last = study.history[study.history["arm"].isin(arms)].groupby(["arm", "seed"]).last()
    pace = (last["seconds"] / last["step"]).dropna()
    planned = {arm["name"]: (arm["flops"], arm["config"].get("batch")) for arm in study.plan["arms"]}
    ranges = pace.groupby([str(planned[arm]) for arm in pace.index.get_level_values("arm")]).agg(["min", "max"])
    ratio = ranges["max"] / ranges["min"]
    if ratio.empty or ratio.max() <= EVEN:
        return []
    worst = ranges[ratio == ratio.max()].iloc[0]
    return [
        "Seconds are those of machines that differed, or had other work too: a step took "
        f"{worst['min']:.2g} to {worst['max']:.2g} s in trials of equal FLOPs."
    ]


def followed(study: StudyResults, frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The arms to follow over training, with the `dash` of each, and the sentence that says which they are.

    All of them, dashed by the point of the study's curve, need no sentence. Of a tuned study those that its question is
    about, as in Figure 9: every arm at its own point of the grid, and dashed at its baseline's, where that is another;
    their `line` names the point. frame: rows of `arms` with `at`.
    """
    if dashes := in_question(study):
        rows = frame[frame["arm"].isin(dashes.keys())]
        named = [f"{row.line}, {point_name(row, study)}" for row in each(rows)]
        at = " and ".join(map(axis_name, study.plan["tune"]))
        other = f"; dashed: at the baseline's {at}" if DASHED in dashes.values() else ""
        return (
            rows.assign(dash=[dashes[arm] for arm in rows["arm"]], line=named),
            [f"Over training each is at the {at} that most of its seeds choose in validation{other}."],
        )
    table, swept = looks(frame), sorted(set(frame["at"]))
    if not study.plan["curves"]:
        return frame.assign(dash=[table[name].dash for name in frame["series"]]), []
    return frame.assign(dash=[DASHES[swept.index(at) % len(DASHES)] for at in frame["at"]]), []


def in_question(study: StudyResults) -> dict[str, Any]:
    """Arm -> dashes, of each tuned arm's own point of the grid and its baseline's; none while nothing can be chosen."""
    entries, own = {entry["name"]: entry for entry in study.plan.get("tuned", [])}, tuning.usual_points(study)
    elsewhere = [(entry, own[entry["baseline"]]) for entry in entries.values() if entry["baseline"] in own]
    dashes = {entry["points"][point]: DASHED for entry, point in elsewhere}
    return dashes | {entries[name]["points"][point]: "-" for name, point in own.items()}


def point_name(row: Any, study: StudyResults) -> str:
    """ "lr=0.004" """
    x = x_of(study.plan)
    return row.tick or f"{current().labels.get(x, x)}={plain(row.x)}"


def note(frame: pd.DataFrame) -> str:
    """What lines and bands are. frame: a row a line."""
    band = f"; band: 95% t interval, from {BAND} seeds on" if banded(frame) else f"; no bands: more than {BANDS} lines"
    return (
        f"Lines: mean over the finished seeds (where there is none, over those that go on){band}. Thin: single seeds "
        f"of fewer than {BAND}, trials that diverged (×), failed or go on."
    )


def banded(frame: pd.DataFrame) -> bool:
    return len(frame) <= BANDS


def evaluations(study: StudyResults, metric: str) -> pd.DataFrame:
    """A row an evaluation: arm, seed, the trial's status, step, epoch, images, seconds, value in the metric's unit."""
    history = study.history.merge(study.trials[["arm", "seed", "status"]], on=["arm", "seed"])
    history = history.assign(value=unit(metric).scale * history[metric])
    return history[["arm", "seed", "status", *AXES, "value"]].dropna(subset="value")


def training_curves(
    frame: pd.DataFrame, history: pd.DataFrame, ax: Axes, metric: str = "val_accuracy", x: str = "step"
) -> Axes:
    """The metric over `x`, one of AXES: a line an arm, in the colour of its series and with its own dashes.

    frame: rows of `arms` with `at` and `dash`; history: rows of `evaluations`.
    """
    table, found = dashed(frame), history[history["arm"].isin(frame["arm"])]
    size, name = axis_unit(x, found[x])
    found = found.assign(at=found[x] / size).dropna(subset="at")
    drawn = []
    for row in each(frame):
        own = found[found["arm"] == row.arm]
        mean = averaged(own) if banded(frame) else averaged(own).assign(low=np.nan, high=np.nan)
        draw_mean(mean, ax, table[row.arm])
        single = own if own["seed"].nunique() < BAND else own[own["status"] != "finished"]
        draw_seeds(single, ax, table[row.arm])
        drawn += [mean["mean"], mean["low"], mean["high"], single["value"]]
    ax.set_xlabel(name)
    ax.xaxis.set_major_formatter(lambda tick, _: f"{tick:,g}")
    metric_axis(ax, metric, *drawn)
    if found.empty:
        ax.set_xticks([])
        nothing_yet(ax, "no evaluation yet")
    return ax


def dashed(frame: pd.DataFrame) -> dict[str, Look]:
    """A look an arm: that of its series with its own dashes; marks too where colour and dashes do not tell all apart.

    frame: rows of `arms` with `dash`.
    """
    table = looks(frame)
    pairs = [(table[name].colour, str(dash)) for name, dash in zip(frame["series"], frame["dash"], strict=True)]
    marked = len(set(pairs)) < len(pairs)
    return {
        row.arm: replace(table[row.series], dash=row.dash, marker=table[row.series].marker if marked else "")
        for row in each(frame)
    }


def name_lines(frame: pd.DataFrame, ax: Axes) -> None:
    """An entry a line."""
    table = dashed(frame)
    for row in each(frame):
        look = table[row.arm]
        ax.plot([], [], color=look.colour, linestyle=look.dash, marker=look.marker, label=row.line, **SMALL)


def name_series(frame: pd.DataFrame, ax: Axes) -> None:
    """An entry a series, in the dashes of its arms where they are alike."""
    table = dashed(frame)
    for _, rows in frame.groupby("series", sort=False):
        look = table[rows["arm"].iloc[0]]
        dash = look.dash if len(rows) == 1 else "-"
        line = rows["line"].iloc[0]
        named = "baseline" if rows["reference"].any() and is_long(line) else line
        ax.plot([], [], color=look.colour, linestyle=dash, marker=look.marker, label=named, **SMALL)


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
    half = inference.t_quantile(0.975, n - 1) * values.std(axis=1, ddof=1) / np.sqrt(n) if n >= BAND else mean * np.nan
    at = seeds.groupby("step")["at"].mean().reindex(values.index)
    return pd.DataFrame({"at": at, "mean": mean, "low": mean - half, "high": mean + half})


def draw_mean(rows: pd.DataFrame, ax: Axes, look: Look) -> None:
    """rows: of `averaged`."""
    if rows.empty:
        return
    if rows["low"].notna().any():
        ax.fill_between(rows["at"], rows["low"], rows["high"], color=look.colour, alpha=0.12, linewidth=0)
    ax.plot(rows["at"], rows["mean"], color=look.colour, linestyle=look.dash, **marks(rows, look))


def draw_seeds(history: pd.DataFrame, ax: Axes, look: Look) -> None:
    """A thin line a trial, ending in a cross where it diverged."""
    for _, trial in history.groupby("seed"):
        trial = trial.sort_values("step")
        thin = {"linewidth": 0.6, **marks(trial, look)}
        ax.plot(trial["at"], trial["value"], color=look.colour, linestyle=look.dash, **thin)
        if (trial["status"] == "diverged").any():
            ax.plot(trial["at"].iloc[-1:], trial["value"].iloc[-1:], "x", color=look.colour)


def marks(rows: pd.DataFrame, look: Look) -> dict[str, Any]:
    """Those of the look along the line; else one where there is a single evaluation, through which no line goes."""
    if look.marker:
        return {"marker": look.marker, "markevery": max(1, len(rows) // MARKED), **SMALL}
    return {"marker": "." if len(rows) == 1 else ""}
