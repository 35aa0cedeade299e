"""A metric over an axis: one line per series with intervals, seeds, and marks for absent arms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from results.figures.flops import log_ticks
from results.figures.frame import is_number, metric_label, rows_of
from results.figures.page import wrap_text
from results.figures.theme import DASHES, GREY, MARKERS, current
from results.units import is_accuracy

SETTING_NAMES = {
    "lr": "learning rate",
    "patch": "patch size (pixels a side)",
    "data_fraction": "share of the training images",
    "image_size": "image size (pixels a side)",
    "depth": "depth (blocks)",
}
TICK = 0.9  # inches that a label of the axis may take before it is broken
APART = 4.0  # points of paper between series that would cover each other at a place on the axis
MAX_SPREAD = 0.25  # of the way from a place to the next, all series of a place together
STUB = 0.7  # points of paper, the width of the line from a mark that stands aside to its place
SEED_OFFSET = 2.5  # points of paper from a mark to its seeds
MARK = 10.0  # points of paper for a mark and the seeds beside it
MARK_HEIGHT = 6.0  # points of paper, the height of a mark
GAP = 9.0  # points of paper between crosses, as wide as what is written above them


@dataclass(frozen=True)
class SeriesStyle:
    """The look of a series in every panel."""

    colour: str
    marker: str
    dash: Any


def series_styles(frame: pd.DataFrame) -> dict[str, SeriesStyle]:
    """Return a style per series in plan order: black diamonds for baselines, the palette for others.

    Colors that the user's style gives by name come first. Series of one color get different marks and dashes while they
    last.
    """
    style, baselines = current(), set(frame["series"][frame["reference"]])
    table: dict[str, SeriesStyle] = {}
    k = 0  # of those that are no baseline's
    for name in dict.fromkeys(frame["series"]):
        baseline = name in baselines
        colour = style.colour(name) or (style.baseline if baseline else style.palette[k % len(style.palette)])
        alike = [look for look in table.values() if look.colour == colour]
        marker = "D" if baseline else least_used(MARKERS, k, [look.marker for look in alike])
        table[name] = SeriesStyle(colour, marker, least_used(DASHES, 0, [look.dash for look in alike]))
        k += not baseline
    return table


def least_used(choices: Sequence[Any], first: int, used: Sequence[Any]) -> Any:
    """Return the least used choice, searching cyclically from place `first`."""
    around = [choices[(first + step) % len(choices)] for step in range(len(choices))]
    return min(around, key=used.count)


def axis_name(field: str) -> str:
    """Return a setting's readable name, with the stage's name for pretrain.lr."""
    stage, _, rest = field.partition(".")
    of_stage = f"{SETTING_NAMES[rest]} ({stage})" if rest in SETTING_NAMES else field.replace("_", " ")
    return current().labels.get(field) or SETTING_NAMES.get(field, of_stage)


def marks_note(field: str) -> str:
    """Explain filled and open marks below a figure."""
    name = axis_name(field).partition(" (")[0]
    return (
        f"Filled: differs from the baseline (diamond) at the same {name}, Holm-adjusted p < 0.05. "
        "Open: equivalent, or not resolved."
    )


def with_positions(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the column `at`: the numeric position on the axis, or the place in plan order for words."""
    if all(map(is_number, frame["x"])):
        return frame.assign(at=frame["x"].astype(float))
    order = list(dict.fromkeys(map(str, frame["x"])))
    return frame.assign(at=[float(order.index(str(value))) for value in frame["x"]])


def draw_lines(frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes) -> Axes:
    """Draw a line per series with means, intervals and seeds, and colliding marks side by side.

    Lines stay at their true place: shifting steep lines could swap their order. A stub joins each shifted mark to its
    line. A line breaks where an arm has no finished trial.

    frame: rows of `arms_frame` with `at`. seeds: rows of `seeds_frame`. Call it once `ax` has its limits.
    """
    table, aside = series_styles(frame), mark_offsets(frame, ax)
    for name, look in table.items():
        rows = frame[frame["series"] == name].sort_values("at", kind="stable")
        ax.plot(rows["at"], rows["mean"], color=look.colour, linestyle=look.dash, zorder=2)
        for points, own in rows.groupby(aside[rows.index]):
            draw_stubs(own, ax, look, points)
            draw_points(own, ax, look, points)
            draw_seeds(own, seeds, ax, look, points + SEED_OFFSET)
            draw_absences(own, ax, look, points)
        if len(table) > 1:
            ax.plot([], [], color=look.colour, marker=look.marker, linestyle=look.dash, label=legend_entry(rows))
    return ax


def mark_offsets(frame: pd.DataFrame, ax: Axes) -> pd.Series:
    """Return each mark's horizontal offset from `at` in points: 0 for a mark that collides with no other."""
    found = pd.Series(0.0, index=frame.index)
    known = frame[frame["mean"].notna()]
    together = [group for _, rows in known.groupby("at") for group in colliding_groups(rows, ax)]
    together_absent = [list(rows.index) for _, rows in frame[frame["mean"].isna()].groupby("at")]
    for groups, most in ((together, APART), (together_absent, GAP)):
        apart = min(most, available_spread(frame, ax) / max([1, *(len(group) - 1 for group in groups)]))
        for group in groups:
            found[group] = apart * (np.arange(len(group)) - (len(group) - 1) / 2)
    return found


def colliding_groups(rows: pd.DataFrame, ax: Axes) -> list[list[Any]]:
    """Group the arms at one position whose intervals overlap vertically."""
    bottom, top = (heights_in_points(rows[end].fillna(rows["mean"]), ax) for end in ("low", "high"))
    groups: list[list[Any]] = []
    reach = -np.inf
    for index in bottom.sort_values(kind="stable").index:
        if bottom[index] > reach + MARK_HEIGHT:
            groups.append([])
        groups[-1].append(index)
        reach = max(reach, top[index])
    return [[index for index in rows.index if index in group] for group in groups]


def heights_in_points(values: pd.Series, ax: Axes) -> pd.Series:
    """Convert values on `ax` to heights in points."""
    pixels = ax.transData.transform([(1.0, value) for value in values])[:, 1]
    return pd.Series(pixels * 72 / ax.figure.dpi, index=values.index)


def draw_over_axis(
    frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes, metric: str, field: str, labels: Sequence[str] | None = None
) -> Axes:
    """Draw the metric over a setting, with fitting axes.

    frame: rows of `arms_frame` with `at`. seeds: rows of `seeds_frame`. labels: tick labels, if not the setting's
    values.
    """
    swept_axis(frame, ax, field, labels or tick_labels(frame))
    metric_axis(ax, metric, *measured_columns(frame, seeds))
    draw_lines(frame, seeds, ax)
    if not (frame["n"] > 0).any():
        empty_panel(ax)
    return ax


def available_spread(frame: pd.DataFrame, ax: Axes) -> float:
    """Return the width in points that marks at one position may take."""
    ticks = np.array(sorted(set(frame["at"])))
    at = ax.transData.transform(np.column_stack([ticks, np.zeros_like(ticks)]))[:, 0] * 72 / ax.figure.dpi
    left, right = ax.bbox.x0 * 72 / ax.figure.dpi, ax.bbox.x1 * 72 / ax.figure.dpi
    inside = 2 * min(at[0] - left, right - at[-1]) - MARK
    return max(0.0, float(min([inside, *(MAX_SPREAD * np.diff(at))])))


def legend_entry(rows: pd.DataFrame) -> str:
    """Return the legend's entry of a series, marking the baseline."""
    name = str(rows["line"].iloc[0])
    if not rows["reference"].any() or name == "baseline":
        return name
    return "baseline" if names_several_settings(name) else f"{name} (baseline)"


def names_several_settings(name: str) -> bool:
    """Tell whether a name gives several settings."""
    return name.count("=") > 1


def baseline_notes(frame: pd.DataFrame) -> list[str]:
    """Spell out baselines that the legend shortens to "baseline"."""
    names = dict.fromkeys(frame["line"][frame["reference"]])
    return [f"Baseline: {name}." for name in names if names_several_settings(name)]


def shifted(ax: Axes, points: float, to: Transform | None = None) -> Transform:
    """Shift a transform to the right by some points, also on a log axis."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return (to or ax.transData) + ScaledTranslation(points / 72, 0, figure.dpi_scale_trans)


def draw_points(rows: pd.DataFrame, ax: Axes, look: SeriesStyle, aside: float = 0.0) -> None:
    """Draw means and intervals; filled marks are baselines and resolved differences.

    Call it once `ax` has its limits.
    """
    to = shifted(ax, aside)
    for row in rows_of(rows[rows["mean"].notna()]):
        if not np.isnan(row.low):
            ax.plot([row.at, row.at], [row.low, row.high], color=look.colour, transform=to, zorder=3)
            draw_arrows(row, ax, look.colour, to)
        face = look.colour if row.reference or row.verdict in ("better", "worse") else "white"
        ax.plot([row.at], [row.mean], look.marker, color=look.colour, markerfacecolor=face, transform=to, zorder=4)


def draw_arrows(row: Any, ax: Axes, colour: str, to: Transform) -> None:
    """Draw a mark at each edge of the axis beyond which an interval goes on."""
    bottom, top = ax.get_ylim()
    for edge, beyond, mark in ((bottom, row.low < bottom, "v"), (top, row.high > top, "^")):
        if beyond:
            ax.plot([row.at], [edge], mark, color=colour, transform=to, clip_on=False, zorder=4)


def draw_stubs(rows: pd.DataFrame, ax: Axes, look: SeriesStyle, aside: float) -> None:
    """Draw a stub from each mean's true place to its shifted mark."""
    for row in rows_of(rows[rows["mean"].notna()] if aside else rows[:0]):
        line = {"arrowstyle": "-", "color": look.colour, "linewidth": STUB, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (row.at, row.mean), (aside, 0), textcoords="offset points", arrowprops=line, zorder=2)


def draw_seeds(rows: pd.DataFrame, seeds: pd.DataFrame, ax: Axes, look: SeriesStyle, aside: float) -> None:
    """Draw single trials faintly beside their mean."""
    own = seeds.merge(rows[["arm", "at"]], on="arm")
    to = shifted(ax, aside)
    ax.plot(
        own["at"], own["value"], "o", color=look.colour, alpha=0.45, markersize=2.5, markeredgewidth=0, transform=to
    )


def draw_absences(rows: pd.DataFrame, ax: Axes, look: SeriesStyle, aside: float = 0.0, name: str = "") -> None:
    """Draw a cross at the bottom for each arm without a finished trial, with the reason."""
    foot = shifted(ax, aside, blended_transform_factory(ax.transData, ax.transAxes))
    for row in rows_of(rows[rows["n"] == 0]):
        what = row.gap.partition(",")[0].partition(" ")[2]  # "missing" of "3 missing, 2 failed"
        ax.plot([row.at], [0.03], "x", color=look.colour, transform=foot, zorder=4)
        ax.text(
            row.at,
            0.07,
            f"{name}: {what}" if name else what,
            transform=foot,
            rotation=90,
            ha="center",
            va="bottom",
            size=current().small,
            color=GREY,
        )


def draw_spread_absences(rows: pd.DataFrame, frame: pd.DataFrame, ax: Axes, look: SeriesStyle) -> None:
    """Draw the crosses of one line's rows so that none in `frame` overlap.

    Call it once `ax` has its limits.
    """
    aside = absence_offsets(frame[frame["n"] == 0], ax)
    for index in aside.index.intersection(rows.index):
        draw_absences(rows.loc[[index]], ax, look, aside[index], rows["line"].iloc[0])


def absence_offsets(frame: pd.DataFrame, ax: Axes) -> pd.Series:
    """Return offsets in points that keep crosses GAP apart."""
    in_order = frame["at"].sort_values(kind="stable")
    pixels = ax.transData.transform([(at, 0.0) for at in in_order]) if len(in_order) else np.empty((0, 2))
    free, found = -np.inf, []
    for place in pixels[:, 0] * 72 / ax.figure.dpi:
        found.append(max(free - place, 0.0))
        free = place + found[-1] + GAP
    return pd.Series(found, index=in_order.index, dtype=float)


def compute_axis(frame: pd.DataFrame, ax: Axes) -> None:
    """Set up a logarithmic compute axis around the values of `at`."""
    ax.set_xscale("log")
    low, high = padded_limits(sorted(set(frame["at"])), log=True)
    ax.set_xlim(low, high)
    log_ticks(ax.xaxis, low, high)


def swept_axis(frame: pd.DataFrame, ax: Axes, field: str, labels: Sequence[str]) -> None:
    """Set up the horizontal axis with a tick at each value of `at`."""
    ticks = sorted(set(frame["at"]))
    log = scale_for(ticks) == "log" and all(map(is_number, frame["x"]))
    ax.set_xscale("log" if log else "linear")
    ax.set_xlim(*padded_limits(ticks, log))
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xticks(ticks, labels)
    ax.set_xlabel(f"{axis_name(field)}, log scale" if log else axis_name(field))


def tick_labels(frame: pd.DataFrame) -> list[str]:
    """Return a wrapped label per tick."""
    places = rows_of(frame.drop_duplicates("at").sort_values("at"))
    return [wrap_text(row.tick or value_text(row.x), TICK, current().text) for row in places]


def value_text(value: Any) -> str:
    """Write a value for people: 0.0004, 5e-5, 8, 1,320, conv."""
    if not is_number(value):
        return str(value)
    if value and abs(value) < 1e-4:  # as Python does, and so the names of arms
        mantissa, exponent = f"{value:.6e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{float(value):z,.6g}"


def scale_for(ticks: Sequence[float]) -> str:
    """Choose `log` where values are spaced more evenly by ratio, else `linear`."""
    if len(ticks) < 2 or ticks[0] <= 0:
        return "linear"
    if len(ticks) == 2:
        return "log" if ticks[1] >= 2 * ticks[0] else "linear"
    steps, ratios = np.diff(ticks), np.diff(np.log(ticks))
    return "log" if ratios.std() / ratios.mean() < steps.std() / steps.mean() else "linear"


def padded_limits(ticks: Sequence[float], log: bool) -> tuple[float, float]:
    """Return axis limits with a margin on both sides."""
    low, high = ticks[0], ticks[-1]
    if log:
        margin = (high / low) ** 0.12 if high > low else 2.0
        return low / margin, high * margin
    margin = 0.12 * (high - low) or abs(low) * 0.5 or 1.0
    return low - margin, high + margin


def metric_axis(ax: Axes, metric: str, *measured: pd.Series) -> None:
    """Set up the vertical axis to fit what was measured, within 0 and 100% for accuracies."""
    ax.set_ylabel(metric_label(metric))
    known = pd.concat(measured).dropna()
    if known.empty:
        ax.set_yticks([])
        return
    low, high = attainable(metric, known.min(), known.max())
    margin = 0.08 * (high - low) or 0.01 * abs(high) or 1.0
    ax.set_ylim(low - margin, high + margin)
    ticks = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low - margin, high + margin)
    most = 100.0 if is_accuracy(metric) else float("inf")
    ax.set_yticks([tick for tick in ticks if low - margin <= tick <= min(high + margin, most)])


def attainable(metric: str, low: float, high: float) -> tuple[float, float]:
    """Clip an interval to the metric's range."""
    return (max(low, 0.0), min(high, 100.0)) if is_accuracy(metric) else (low, high)


def measured_columns(frame: pd.DataFrame, seeds: pd.DataFrame) -> tuple[pd.Series, ...]:
    """Return the columns that a metric axis must fit: means, interval ends and seeds."""
    return frame["mean"], frame["low"], frame["high"], seeds["value"]


def empty_panel(ax: Axes, words: str = "no finished trial yet") -> None:
    """Write a message in an empty panel."""
    ax.text(0.5, 0.85, words, color=GREY, ha="center", va="center", transform=ax.transAxes)
