"""A row an arm: its mean with the interval, its seeds, the verdict against the baseline, the published value apart.

The plot for a table whose arms have no order, such as arXiv 2010.11929, Table 8 (position embeddings).
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from results.figures.frame import arms, each, metric_label, number, seeds, signed
from results.figures.lines import possible
from results.figures.page import narrow, wrapped
from results.figures.theme import GREY, LIGHT, PALE, current
from results.records import Table
from results.study_results import StudyResults
from results.tables import layout
from results.units import is_accuracy, unit

RESOLVED = ("better", "worse")
LABEL_WIDTH = 1.5  # inches that an arm's name may take before it is broken
ROW, NARROW_ROW = 0.44, 0.6  # inches
FRAME = 0.85  # inches for the axis and the heads of the columns
MARKS = (
    "Colour, filled marks: resolved after correction for all comparisons (Holm, p < 0.05); intervals are uncorrected. "
    "{baseline}."
)


def intervals(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`, as high as its arms need; returns what to write under it."""
    frame, metric = arms(study, table), table.metric
    published = bool(frame["published"].notna().any())
    stacked = narrow(figure)
    figure.set_figheight(FRAME + len(frame) * (NARROW_ROW if stacked else ROW))
    aside = published and not stacked
    panels = figure.subplots(1, 2, sharey=True, width_ratios=[3, 1.25]) if aside else [figure.subplots()]
    interval_rows(frame, seeds(study, metric), panels[0], metric)
    (text_above if stacked else text_beside)(frame, panels[0], metric)
    if aside:
        published_rows(frame, panels[1], wrapped(layout.published_source(table), 1.35, current().small))
    elsewhere = f"* published in another setting, its level is not comparable: {layout.published_source(table)}."
    marks = MARKS.format(baseline=diamond(frame))
    return [marks, elsewhere] if published and stacked else [marks]


def diamond(frame: pd.DataFrame) -> str:
    """What the mark of a baseline means."""
    if frame["reference"].sum() > 1:
        return "Diamonds: baselines, each of the arms at the same point"
    return f"Diamond{'' if common_baseline(frame) is None else ', dashed line'}: baseline"


def common_baseline(frame: pd.DataFrame) -> float | None:
    """The mean of the baseline where all arms have the same and it is known."""
    baselines = frame["mean"][frame["reference"]]
    return None if len(baselines) != 1 or np.isnan(baselines.iloc[0]) else float(baselines.iloc[0])


def interval_rows(frame: pd.DataFrame, points: pd.DataFrame, ax: Axes, metric: str) -> Axes:
    """Intervals and seeds, first arm on top. frame: rows of `arms`; points: rows of `seeds`."""
    for y, row in enumerate(each(frame)):
        values = points["value"][points["arm"] == row.arm]
        ax.plot(values, np.full(len(values), y + 0.17), "o", color=GREY, alpha=0.45, markersize=3, markeredgewidth=0)
        if np.isnan(row.mean):
            ax.axhspan(y - 0.18, y + 0.18, facecolor=PALE, edgecolor=LIGHT, hatch="////", linewidth=0)
            continue
        colour = colour_of(row)
        if not np.isnan(row.low):
            ax.plot([row.low, row.high], [y, y], color=colour, linewidth=1.8, solid_capstyle="butt")
        face = colour if row.reference or row.verdict in RESOLVED else "white"
        ax.plot([row.mean], [y], "D" if row.reference else "o", color=colour, markerfacecolor=face)
    baseline = common_baseline(frame)
    if baseline is not None:
        ax.axvline(baseline, color=current().baseline, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0.5)
    ax.set_ylim(len(frame) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(metric_label(metric))
    if frame["mean"].notna().any():
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        low, high = possible(metric, *ax.dataLim.intervalx)
        ax.set_xlim(low - 0.06 * (high - low or 1.0), high + 0.06 * (high - low or 1.0))
    else:
        ax.set_xticks([])
    return ax


def colour_of(row: Any) -> str:
    style = current()
    return style.baseline if row.reference else {"better": style.better, "worse": style.worse}.get(row.verdict, GREY)


def verdict(row: Any, metric: str) -> str:
    """What is known of an arm against its baseline: "worse" over "−18.2 points [−20.1, −16.3]"."""
    if row.n == 0:
        return f"no finished trial\n{row.gap}"
    if row.reference:
        return "baseline" + count(row)
    known = row.verdict if isinstance(row.verdict, str) else "no verdict"  # None becomes NaN beside texts in a frame
    word = known.replace("-", " ") + count(row)
    if np.isnan(row.delta):
        return word
    digits = places(metric)
    text = signed(row.delta, digits) + unit(metric).of_difference
    if not np.isnan(row.delta_low):
        text += f" [{signed(row.delta_low, digits)}, {signed(row.delta_high, digits)}]"
    return f"{word}\n{text}"


def places(metric: str) -> int:
    """Decimals in a picture: fewer than in the table, unless the style says how many."""
    kind, usual = ("accuracy", 1) if is_accuracy(metric) else ("loss", 3)
    return current().digits.get(kind, usual)


def count(row: Any) -> str:
    return f" (n = {row.n} of {row.planned})" if row.n < row.planned else ""


def text_beside(frame: pd.DataFrame, ax: Axes, metric: str) -> None:
    """Names on the left of the rows, verdicts on their right."""
    ax.set_yticks(
        range(len(frame)), [wrapped(label.replace(",", ", "), LABEL_WIDTH, current().text) for label in frame["label"]]
    )
    right = ax.secondary_yaxis("right")
    right.set_yticks(range(len(frame)), [verdict(row, metric) for row in each(frame)])
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    for label, row in zip(right.get_yticklabels(), each(frame), strict=True):
        label.set_color(colour_of(row))
    beyond: dict[str, Any] = {
        "xycoords": "axes fraction",
        "xytext": (6, 4),
        "textcoords": "offset points",
        "size": current().small,
    }
    ax.annotate("against the baseline, 95% CI, not adjusted", (1, 1), color=GREY, **beyond)


def text_above(frame: pd.DataFrame, ax: Axes, metric: str) -> None:
    """Names over the rows and verdicts under them, for one column of a paper or a telephone."""
    ax.set_yticks([])
    clear = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    to = blended_transform_factory(ax.transAxes, ax.transData)
    for y, row in enumerate(each(frame)):
        line: dict[str, Any] = {"transform": to, "size": current().small, "bbox": clear, "va": "center"}
        ax.text(0, y - 0.27, row.label, weight="bold", **line)
        ax.text(0, y + 0.33, verdict(row, metric).replace("\n", ": "), color=colour_of(row), **line)
        if not np.isnan(row.published):
            ax.text(1, y - 0.27, f"published*: {number(row.published)}", ha="right", color=GREY, **line)


def published_rows(frame: pd.DataFrame, ax: Axes, source: str) -> Axes:
    """The published values on an axis of their own, on grey: another setting."""
    ax.set_facecolor(PALE)
    ax.grid(visible=False)
    for y, row in enumerate(each(frame)):
        if np.isnan(row.published):
            continue
        ax.plot([row.published], [y], "s", color=GREY)
        ax.annotate(
            number(row.published),
            (row.published, y),
            xytext=(0, 5),
            textcoords="offset points",
            size=current().small,
            ha="center",
            color=GREY,
        )
    ax.margins(x=0.3)
    ax.xaxis.set_major_locator(MaxNLocator(3))
    ax.tick_params(axis="y", length=0, labelleft=False)
    ax.set_xlabel(source, size=current().small, color=GREY)
    ax.set_title("published in\nanother setting (%)", size=current().small, color=GREY, loc="left")
    return ax
