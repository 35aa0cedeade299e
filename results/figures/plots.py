"""Plots of a metric over a setting or compute: axes, and a line per series with intervals, seeds and absent arms.

A `frame` has rows of `arms_frame`, and `rows` of `with_styles` belong to one series. `seeds` has rows of `seeds_frame`.
`aside` is a shift to the right in points (1/72 inch). The limits of `ax` are set before anything is drawn.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from results.figures.frame import is_number, metric_label, rows_of
from results.figures.page import DASHES, FAINT, GREY, MARKERS, UNCLIPPED, wrap_text
from results.statistics.verdict import RESOLVED
from results.store.schemas.metrics import Metric
from results.style import current_style

FLOPS_UNITS = {1e15: "PFLOPs", 1e12: "TFLOPs", 1e9: "GFLOPs", 1e6: "MFLOPs", 1e3: "kFLOPs", 1.0: "FLOPs"}
SETTING_NAMES = {
    "lr": "learning rate",
    "patch": "patch size (pixels a side)",
    "data_fraction": "share of the training images",
    "image_size": "image size (pixels a side)",
    "depth": "depth (blocks)",
}
TICK = 0.9  # inches, the width at which a tick label is wrapped
APART = 4.0  # points (1/72 inch) between series at one position
MAX_SPREAD = 0.25  # share of the distance to the next position that all series at one position may take
STUB = 0.7  # points (1/72 inch), the width of the line to a shifted marker
SEED_OFFSET = 2.5  # points (1/72 inch) from a marker to its seeds
MARK = 10.0  # points (1/72 inch) for a marker and the seeds beside it
GAP = 9.0  # points (1/72 inch) between crosses, as wide as the text above them


def axis_name(field: str) -> str:
    """Return a setting's name for an axis label, such as "learning rate (pretrain)" for pretrain.lr."""
    stage, _, rest = field.partition(".")
    if field in current_style().labels:
        return current_style().labels[field]
    if rest in SETTING_NAMES:
        return f"{SETTING_NAMES[rest]} ({stage})"
    return SETTING_NAMES.get(field, field.replace("_", " "))


def set_swept_axis(frame: pd.DataFrame, ax: Axes, field: str, labels: Sequence[str]) -> None:
    """Set up the horizontal axis of the setting `field`. labels: of each value of `at`, in order."""
    ticks = sorted(set(frame["at"]))
    scale = "linear"
    name = axis_name(field)
    if all(map(is_number, frame["x"])) and scale_for(ticks) == "log":
        scale = "log"
        name += ", log scale"
    ax.set(xscale=scale, xlim=padded_limits(ticks, scale == "log"), xlabel=name)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(ticks, labels)


def tick_labels(frame: pd.DataFrame) -> list[str]:
    places = rows_of(frame.drop_duplicates("at").sort_values("at"))
    return [wrap_text(row.tick or value_text(row.x), TICK, current_style().text) for row in places]


def value_text(value: Any) -> str:
    """Return a setting's value as readable text, such as 0.0004, 5e-5, 8, 1,320 or conv."""
    if not is_number(value):
        return str(value)
    if value and abs(value) < 1e-4:  # as in Python and in the names of arms
        return np.format_float_scientific(value, 5, trim="-", exp_digits=1)
    return f"{float(value):z,.6g}"


def scale_for(ticks: Sequence[float]) -> str:
    if len(ticks) < 2 or ticks[0] <= 0:
        return "linear"
    steps = np.diff(ticks)
    ratios = np.diff(np.log(ticks))
    more_even = ratios.std() / ratios.mean() < steps.std() / steps.mean()
    doubled = len(ticks) == 2 and ticks[1] >= 2 * ticks[0]
    return "log" if more_even or doubled else "linear"


def padded_limits(ticks: Sequence[float], log: bool) -> tuple[float, float]:
    low = ticks[0]
    high = ticks[-1]
    if log:
        margin = (high / low) ** 0.12 if high > low else 2.0
        return low / margin, high * margin
    margin = 0.12 * (high - low) or abs(low) * 0.5 or 1.0
    return low - margin, high + margin


def set_metric_axis(
    ax: Axes, metric: Metric, measured: Sequence[pd.Series], empty: str = "no finished trial yet"
) -> None:
    """Set up the vertical axis for values in display units. Without values, write `empty` in the panel."""
    ax.set_ylabel(metric_label(metric))
    values = pd.concat(measured).dropna()
    if values.empty:
        ax.set_yticks([])
        ax.text(0.5, 0.85, empty, color=GREY, ha="center", va="center", transform=ax.transAxes)
        return
    ax.set_ylim(metric_limits(metric, values.min(), values.max(), 0.08))
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def metric_limits(metric: Metric, low: float, high: float, margin: float) -> tuple[float, float]:
    least, most = (end * metric.scale for end in metric.range)
    low = max(low, least)
    high = min(high, most)
    free = margin * (high - low) or 0.01 * abs(high) or 1.0
    return max(low - free, least), min(high + free, most)


def measured_columns(frame: pd.DataFrame, seeds: pd.DataFrame) -> Sequence[pd.Series]:
    return frame["mean"], frame["low"], frame["high"], seeds["value"]


def set_compute_axes(frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes, metric: Metric, label: str) -> None:
    set_metric_axis(ax, metric, measured_columns(frame, seeds))
    low, high = padded_limits(sorted(set(frame["at"])) or [1.0], log=True)
    ax.set(xscale="log", xlim=(low, high), xlabel=f"{label}, log scale")
    set_log_ticks(ax.xaxis, low, high)


def flops_unit(most: float) -> tuple[float, str]:
    """Return (size, name) of the largest unit of FLOPs within `most`, such as (1e9, "GFLOPs")."""
    return next(((size, name) for size, name in FLOPS_UNITS.items() if most >= size), (1.0, "FLOPs"))


def set_log_ticks(axis: Axis, low: float, high: float) -> None:
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for steps in ([1, 2, 5], [1, 3], [1], [1, 1.5, 2, 3, 4, 5, 6, 8]):
        ticks = [tick for tick in np.outer(decades, steps).flat if low <= tick <= high]
        if 3 <= len(ticks) <= 7:
            axis.set_major_locator(FixedLocator(ticks))
            break
    axis.set_major_formatter(lambda tick, _: f"{tick:,g}")


def with_styles(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the columns colour, marker and dash of its series.

    Colors that the user's style gives by name take precedence. Series of one color differ in dashes and markers.
    """
    style = current_style()
    baselines = set(frame["series"][frame["reference"]])
    looks: dict[str, tuple[str, str, Any]] = {}
    k = 0  # number of series so far, without baselines
    for name in frame["series"].unique():
        colour = style.colour(name) or style.baseline
        marker = "D"
        if name not in baselines:
            colour = style.colour(name) or style.palette[k % len(style.palette)]
            marker = least_used(MARKERS, k, [look[1] for look in looks.values() if look[0] == colour])
            k += 1
        dash = least_used(DASHES, 0, [look[2] for look in looks.values() if look[0] == colour])
        looks[name] = colour, marker, dash
    styles = pd.DataFrame.from_dict(looks, orient="index", columns=["colour", "marker", "dash"])
    return frame.join(styles, on="series")


def series_rows(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for _, rows in frame.groupby("series", sort=False):
        yield rows.sort_values("at", kind="stable")


def least_used(choices: Sequence[Any], first: int, used: Sequence[Any]) -> Any:
    """Return the choice that is least frequent in `used`, the first in cyclic order from index `first`."""
    first %= len(choices)
    return min([*choices[first:], *choices[:first]], key=used.count)


def marks_note(field: str) -> str:
    name = axis_name(field).partition(" (")[0]
    return f"{filled_note(f' at the same {name}')} Open: equivalent, or not resolved."


def filled_note(where: str = "") -> str:
    return f"Filled: differs from the baseline (diamond){where}, Holm-adjusted p < 0.05."


def draw_over_axis(
    frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes, metric: Metric, field: str, labels: Sequence[str] = ()
) -> None:
    set_swept_axis(frame, ax, field, labels or tick_labels(frame))
    set_metric_axis(ax, metric, measured_columns(frame, seeds))
    draw_lines(with_styles(frame), seeds, ax)


def draw_lines(frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes) -> None:
    """Draw a line per series with means, intervals and seeds.

    Markers at one position are side by side, each joined to its line by a stub. Shifted lines could swap their order.
    """
    aside = mark_offsets(frame, ax)
    for rows in series_rows(frame):
        draw_line(rows, ax)
        for points, shifted in rows.groupby(aside[rows.index]):
            if points:
                draw_stubs(shifted, ax, points)
            draw_points(shifted, seeds, ax, points)
            draw_absences(shifted, ax, points)
        if frame["series"].nunique() > 1:
            add_legend_line(ax, rows, legend_entry(rows))


def draw_stubs(rows: pd.DataFrame, ax: Axes, points: float) -> None:
    """Draw a stub from the line to each marker that is shifted to the right by `points` points (1/72 inch)."""
    for row in rows_of(rows[rows["mean"].notna()]):
        stub = {"arrowstyle": "-", "color": row.colour, "linewidth": STUB, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (row.at, row.mean), (points, 0), textcoords="offset points", arrowprops=stub, zorder=2)


def draw_line(rows: pd.DataFrame, ax: Axes) -> None:
    ax.plot(rows["at"], rows["mean"], color=rows["colour"].iloc[0], linestyle=rows["dash"].iloc[0], zorder=2)


def add_legend_line(ax: Axes, rows: pd.DataFrame, label: str, **other: Any) -> None:
    look = next(rows_of(rows))
    ax.plot([], [], **{"color": look.colour, "marker": look.marker, "linestyle": look.dash, "label": label, **other})


def mark_offsets(frame: pd.DataFrame, ax: Axes) -> pd.Series:
    """Return each arm's offset in points (1/72 inch): markers, or crosses, at one position are side by side."""
    offsets = pd.Series(0.0, index=frame.index)
    is_drawn = frame["mean"].notna()
    for rows, most in ((frame[is_drawn], APART), (frame[~is_drawn], GAP)):
        if rows.empty:
            continue
        together = rows.groupby("at")["at"]
        size = together.transform("size")
        apart = min(most, available_spread(frame, ax) / max(1, size.max() - 1))
        offsets[rows.index] = apart * (together.cumcount() - (size - 1) / 2)
    return offsets


def x_in_points(ax: Axes, x: Any) -> np.ndarray:
    """Return data coordinates (n,) along the horizontal axis in points (1/72 inch)."""
    places = np.column_stack([x, np.zeros(len(x))])
    return np.asarray(ax.transData.transform(places)[:, 0] * 72 / ax.figure.dpi)


def available_spread(frame: pd.DataFrame, ax: Axes) -> float:
    """Return the width, in points (1/72 inch), over which markers at one position may spread."""
    at = x_in_points(ax, sorted(set(frame["at"])))
    left = ax.bbox.x0 * 72 / ax.figure.dpi
    right = ax.bbox.x1 * 72 / ax.figure.dpi
    inside = 2 * min(at[0] - left, right - at[-1]) - MARK
    return max(0.0, float(min([inside, *(MAX_SPREAD * np.diff(at))])))


def legend_entry(rows: pd.DataFrame) -> str:
    """Return a series' legend entry: "cls (baseline)", or "baseline" for one with several settings."""
    name = str(rows["line"].iloc[0])
    if not rows["reference"].any() or name == "baseline":
        return name
    if name.count("=") > 1:
        return "baseline"
    return f"{name} (baseline)"


def series_notes(frame: pd.DataFrame, field: str) -> list[str]:
    if frame["series"].nunique() == 1:
        return []
    return [marks_note(field), *baseline_notes(frame)]


def baseline_notes(frame: pd.DataFrame) -> list[str]:
    names = dict.fromkeys(frame["line"][frame["reference"]])
    return [f"Baseline: {name}." for name in names if name.count("=") > 1]


def shifted_transform(ax: Axes, points: float, to: Transform | None = None) -> Transform:
    return (to or ax.transData) + ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)


def draw_points(
    rows: pd.DataFrame, seeds: pd.DataFrame, ax: Axes, aside: float = 0.0, seed_offset: float = SEED_OFFSET
) -> None:
    """Draw means and intervals, filled for baselines and resolved differences, and single trials beside them.

    An interval that leaves the axes ends in an arrow.
    """
    to = shifted_transform(ax, aside)
    bottom, top = ax.get_ylim()
    for row in rows_of(rows[rows["mean"].notna()]):
        if not np.isnan(row.low):
            ax.plot([row.at, row.at], [row.low, row.high], color=row.colour, transform=to, zorder=3)
        for edge, beyond, mark in ((bottom, row.low < bottom, "v"), (top, row.high > top, "^")):
            if beyond:  # the interval goes on outside the axes
                ax.plot([row.at], [edge], mark, color=row.colour, transform=to, clip_on=False, zorder=4)
        colours: dict[str, Any] = {"color": row.colour, "markerfacecolor": face_color(row, row.colour)}
        ax.plot([row.at], [row.mean], row.marker, transform=to, zorder=4, **colours, **UNCLIPPED)
    singles = seeds.merge(rows[["arm", "at"]], on="arm")
    look = {"color": rows["colour"].iloc[0], "markersize": 2.5, **FAINT}
    ax.plot(singles["at"], singles["value"], "o", transform=shifted_transform(ax, aside + seed_offset), **look)


def face_color(row: Any, colour: str) -> str:
    return colour if row.reference or row.verdict in RESOLVED else "white"


def draw_absences(rows: pd.DataFrame, ax: Axes, aside: float, name: str = "") -> None:
    foot = shifted_transform(ax, aside, blended_transform_factory(ax.transData, ax.transAxes))
    small = current_style().small
    upright: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "bottom", "size": small, "color": GREY}
    for row in rows_of(rows[rows["n"] == 0]):
        what = row.gap.partition(",")[0].partition(" ")[2]  # "missing" of "3 missing, 2 failed"
        ax.plot([row.at], [0.03], "x", color=row.colour, transform=foot, zorder=4)
        ax.text(row.at, 0.07, ": ".join(filter(None, [name, what])), transform=foot, **upright)


def draw_spread_absences(frame: pd.DataFrame, ax: Axes) -> None:
    """Draw the crosses of all series, each at least GAP from the one before."""
    absent = frame[frame["n"] == 0].sort_values("at", kind="stable")
    free = -np.inf
    for k, place in enumerate(x_in_points(ax, absent["at"])):
        row = absent.iloc[[k]]
        aside = max(free - place, 0.0)
        draw_absences(row, ax, aside, row["line"].iloc[0])
        free = place + aside + GAP
