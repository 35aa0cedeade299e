"""The figure kind `intervals`: a row per arm, for arms without an order (compare arXiv 2010.11929, Table 8)."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import CARETLEFT, CARETRIGHT
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from results.figures.frame import arms_frame, metric_label, minus_text, rows_of, seeds_frame, signed_text
from results.figures.kinds import FigureKind
from results.figures.page import (
    BOLD,
    FAINT,
    GREY,
    HANDLE,
    LIGHT,
    PALE,
    UNCLIPPED,
    is_narrow,
    text_height,
    text_width,
    wrap_text,
)
from results.figures.plots import face_color, metric_limits
from results.records import Table
from results.statistics.verdict import RESOLVED
from results.store.schemas.metrics import Metric
from results.study_results import StudyResults
from results.style import COLUMN, current_style
from results.tables import layout, sentences
from results.tables.sentences import EARLIER
from results.units import decimals_apart

LABEL_WIDTH = 1.5  # inches, the width at which an arm's name is wrapped
ROW, NARROW_ROW = 0.44, 0.6  # inches
DENSE_ROW, NARROW_DENSE_ROW = 0.22, 0.25  # inches, with the verdict on one line, if rows would exceed MOST
MOST = 9.0  # inches, the largest height of all rows together
FRAME = 0.85  # inches for the axis and the column headings
FILLED = "Color, filled marks: resolved after correction for all comparisons (Holm, p < 0.05)."


def draw(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw a row per arm, for arms without an order (arXiv 2010.11929, Table 8).

    A row shows mean, interval, seeds, verdict and published value.
    """
    frame = arms_frame(study, table)
    metric = table.plan.primary_metric
    published = bool(frame["published"].notna().any())
    source = layout.published_source(table)
    stacked = is_narrow(figure)
    aside = published and not stacked
    dense = set_height(figure, frame, metric)
    ax, *others = figure.subplots(1, 1 + aside, sharey=True, squeeze=False, width_ratios=[3, 1.25][: 1 + aside])[0]
    draw_intervals(frame, seeds_frame(study, metric), ax, metric)
    if stacked:
        write_text_above(frame, ax, metric, dense)
    else:
        write_text_beside(frame, ax, metric, dense)
    for beside in others:
        draw_published(frame, beside, metric, wrap_text(source, 1.35, current_style().small))
    notes = [marks_note(frame, ax)]
    if published and stacked:
        notes.append(f"* published in another setting, its level is not comparable: {source}.")
    return [*filter(None, [*notes, sentences.first_declared_text(table.rows)])]


def set_height(figure: Figure, frame: pd.DataFrame, metric: Metric) -> bool:
    """Fit a figure's height to its rows, and return whether they are dense, with the verdict on one line."""
    row = ROW
    least = max([DENSE_ROW, *(text_height(name, current_style().text) for name in wrapped_names(frame))])
    if is_narrow(figure):
        row = NARROW_ROW
        least = NARROW_ROW
        small = current_style().small
        widths = [
            text_width(r.label, small * BOLD) + text_width(short_verdict(r, metric), small) for r in rows_of(frame)
        ]
        if max(widths) < COLUMN - HANDLE:
            least = NARROW_DENSE_ROW
    dense = least < row and len(frame) * row > MOST
    figure.set_figheight(FRAME + len(frame) * (least if dense else row))
    return dense


def marks_note(frame: pd.DataFrame, ax: Axes) -> str:
    baseline = "Diamond, dashed line: baseline."
    if frame["reference"].sum() > 1:
        baseline = "Diamonds: baselines, each of the arms at the same point."
    left, right = ax.get_xlim()
    marks = {
        FILLED: frame["verdict"].isin(RESOLVED),
        "Intervals are uncorrected.": frame["low"].notna(),
        baseline: frame["mean"][frame["reference"]].notna(),
        "Arrow: the interval continues beyond the axis.": (frame["low"] < left) | (frame["high"] > right),
    }
    return " ".join(note for note, rows in marks.items() if rows.any())


def draw_intervals(frame: pd.DataFrame, points: pd.DataFrame, ax: Axes, metric: Metric) -> None:
    for y, row in enumerate(rows_of(frame)):
        values = points["value"][points["arm"] == row.arm]
        ax.plot(values, np.full(len(values), y + 0.17), "o", color=GREY, markersize=3, **FAINT)
        if np.isnan(row.mean):
            ax.axhspan(y - 0.18, y + 0.18, facecolor=PALE, edgecolor=LIGHT, hatch="////", linewidth=0)
            continue
        colour = verdict_color(row)
        if not np.isnan(row.low):
            ax.plot([row.low, row.high], [y, y], color=colour, linewidth=1.8, solid_capstyle="butt")
        marker = "D" if row.reference else "o"
        ax.plot([row.mean], [y], marker, color=colour, markerfacecolor=face_color(row, colour), **UNCLIPPED)
    baselines = frame["mean"][frame["reference"]]
    if len(baselines) == 1 and baselines.notna().all():
        ax.axvline(baselines.iloc[0], color=current_style().baseline, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0.5)
    ax.set_ylim(len(frame) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(metric_label(metric))
    if frame["mean"].isna().all():
        ax.set_xticks([])
        return
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    low, high = ax.dataLim.intervalx
    ax.set_xlim(metric_limits(metric, low, high, 0.06))
    draw_arrows(frame, ax)


def draw_arrows(frame: pd.DataFrame, ax: Axes) -> None:
    left, right = ax.get_xlim()
    for y, row in enumerate(rows_of(frame)):
        for edge, beyond, mark in ((left, row.low < left, CARETLEFT), (right, row.high > right, CARETRIGHT)):
            if beyond:
                ax.plot([edge], [y], marker=mark, color=verdict_color(row), markersize=6, clip_on=False, zorder=4)


def verdict_color(row: Any) -> str:
    style = current_style()
    return {"baseline": style.baseline, "better": style.better, "worse": style.worse}.get(row.word.strip(EARLIER), GREY)


def verdict_text(row: Any, metric: Metric) -> str:
    """Return the verdict and, below it, the difference ("−18.2 points [−20.1, −16.3]") or absent trials."""
    if row.n == 0:
        return f"{counted_verdict(row)}\n{row.gap}"
    if row.reference or np.isnan(row.delta):
        return counted_verdict(row)
    kind, usual = ("accuracy", 1) if metric.is_accuracy else ("loss", 3)
    usual += any(round(bound, usual) == 0 != bound for bound in (row.delta_low, row.delta_high))  # 0 has no sign
    digits = decimals_apart((row.delta_low, row.delta_high), current_style().digits.get(kind, usual))
    text = f"{counted_verdict(row)}\n{signed_text(row.delta, digits)}{metric.unit_of_difference}"
    if not np.isnan(row.delta_low):
        text += f" [{signed_text(row.delta_low, digits)}, {signed_text(row.delta_high, digits)}]"
    return text


def counted_verdict(row: Any) -> str:
    """Return the verdict with the number of finished trials, as in "better (n = 3 of 5)"."""
    if row.n == 0:
        return "no finished trial"
    word = row.word or "no verdict"
    return f"{word} (n = {row.n} of {row.planned})" if row.n < row.planned else word


def short_verdict(row: Any, metric: Metric) -> str:
    if np.isnan(row.published):
        return counted_verdict(row)
    return f"{counted_verdict(row)}; published*: {published_text(row, metric)}"


def published_text(row: Any, metric: Metric) -> str:
    return minus_text(row.published, 1 if metric.is_accuracy else metric.digits)


def write_text_beside(frame: pd.DataFrame, ax: Axes, metric: Metric, dense: bool) -> None:
    ax.set_yticks(range(len(frame)), wrapped_names(frame))
    right = ax.secondary_yaxis("right")
    between = ": " if dense else "\n"
    right.set_yticks(range(len(frame)), [verdict_text(row, metric).replace("\n", between) for row in rows_of(frame)])
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    for label, row in zip(right.get_yticklabels(), rows_of(frame), strict=True):
        label.set_color(verdict_color(row))
    corner: dict[str, Any] = {"xy": (1, 1), "xycoords": "axes fraction"}
    above: dict[str, Any] = {"xytext": (6, 4), "textcoords": "offset points", "color": GREY}
    heading = "against the baseline"
    if frame["delta_low"].notna().any():
        heading += ", 95% CI, not adjusted"
    ax.annotate(heading, **corner, **above, size=current_style().small)


def wrapped_names(frame: pd.DataFrame) -> list[str]:
    return [wrap_text(label.replace(",", ", "), LABEL_WIDTH, current_style().text) for label in frame["label"]]


def write_text_above(frame: pd.DataFrame, ax: Axes, metric: Metric, dense: bool) -> None:
    ax.set_yticks([])
    clear = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    to = blended_transform_factory(ax.transAxes, ax.transData)
    for y, row in enumerate(rows_of(frame)):
        write = partial(ax.text, transform=to, size=current_style().small, bbox=clear, va="center")
        above = y - (0.36 if dense else 0.27)
        write(0, above, row.label, weight="bold")
        if dense:
            write(1, above, short_verdict(row, metric), ha="right", color=verdict_color(row))
            continue
        write(0, y + 0.33, verdict_text(row, metric).replace("\n", ": "), color=verdict_color(row))
        if not np.isnan(row.published):
            write(1, above, f"published*: {published_text(row, metric)}", ha="right", color=GREY)


def draw_published(frame: pd.DataFrame, ax: Axes, metric: Metric, source: str) -> None:
    ax.set_facecolor(PALE)  # a separate gray axis, because they come from another setting
    ax.grid(visible=False)
    for y, row in enumerate(rows_of(frame)):
        if np.isnan(row.published):
            continue
        ax.plot([row.published], [y], "s", color=GREY)
        above: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center"}
        text = published_text(row, metric)
        ax.annotate(text, (row.published, y), size=current_style().small, color=GREY, **above)
    ax.margins(x=0.3)
    ax.xaxis.set_major_locator(MaxNLocator(3))
    ax.tick_params(axis="y", length=0, labelleft=False)
    # Aligned to the right edge: the layout leaves no room for a label wider than its panel.
    ax.set_xlabel(source, size=current_style().small, color=GREY, loc="right")
    unit = f" ({metric.unit.strip()})" if metric.unit else ""
    ax.set_title(f"published in\nanother setting{unit}", size=current_style().small, color=GREY, loc="left")


INTERVALS = FigureKind(draw)
