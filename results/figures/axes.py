"""The axes of figures: limits, ticks and labels for settings, metrics and compute.

A `frame` has rows of `arms_frame`, with the column `at` of `with_positions`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from results.figures.frame import is_number, metric_label, rows_of
from results.figures.page import GREY, wrap_text
from results.store.schemas import Metric
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


def axis_name(field: str) -> str:
    """Return the readable name of a setting for an axis label, such as "learning rate (pretrain)" for pretrain.lr."""
    stage, _, rest = field.partition(".")
    if field in current_style().labels:
        return current_style().labels[field]
    if rest in SETTING_NAMES:
        return f"{SETTING_NAMES[rest]} ({stage})"
    return SETTING_NAMES.get(field, field.replace("_", " "))


def with_positions(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with a column `at`: the value in column `x` if all are numbers, else the value's index."""
    if all(map(is_number, frame["x"])):
        return frame.assign(at=frame["x"].astype(float))
    return frame.assign(at=pd.factorize(frame["x"].map(str))[0].astype(float))


def set_swept_axis(frame: pd.DataFrame, ax: Axes, field: str, labels: Sequence[str]) -> None:
    """Set up the horizontal axis of the setting `field`, with one of `labels` at each value of `at`, in order."""
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
    """Return a wrapped label for each value of `at`, in increasing order."""
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
    """Return the scale that spaces increasing ticks more evenly: "log" or "linear"."""
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
    """Set up the vertical axis of `ax` for values in display units. Without values, write `empty` in the panel."""
    ax.set_ylabel(metric_label(metric))
    values = pd.concat(measured).dropna()
    if values.empty:
        ax.set_yticks([])
        ax.text(0.5, 0.85, empty, color=GREY, ha="center", va="center", transform=ax.transAxes)
        return
    ax.set_ylim(metric_limits(metric, values.min(), values.max(), 0.08))
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def metric_limits(metric: Metric, low: float, high: float, margin: float) -> tuple[float, float]:
    """Return limits with a share `margin` of the range free on either side, but within the metric's range."""
    least, most = (end * metric.scale for end in metric.range)
    low = max(low, least)
    high = min(high, most)
    free = margin * (high - low) or 0.01 * abs(high) or 1.0
    return max(low - free, least), min(high + free, most)


def measured_columns(frame: pd.DataFrame, seeds: pd.DataFrame) -> Sequence[pd.Series]:
    return frame["mean"], frame["low"], frame["high"], seeds["value"]


def set_compute_axes(frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes, metric: Metric, label: str) -> None:
    """Set up the axes of a plot over compute: `at` on a log scale, labeled `label`, and the metric."""
    set_metric_axis(ax, metric, measured_columns(frame, seeds))
    low, high = padded_limits(sorted(set(frame["at"])), log=True)
    ax.set(xscale="log", xlim=(low, high), xlabel=f"{label}, log scale")
    set_log_ticks(ax.xaxis, low, high)


def flops_unit(most: float) -> tuple[float, str]:
    """Return (size, name) of the largest unit of FLOPs that is at most `most`, such as (1e9, "GFLOPs")."""
    return next(((size, name) for size, name in FLOPS_UNITS.items() if most >= size), (1.0, "FLOPs"))


def set_log_ticks(axis: Axis, low: float, high: float) -> None:
    """Put three to seven ticks on a log axis: at multiples of powers of ten, or evenly spaced in a short range."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for steps in ([1, 2, 5], [1, 3], [1], [1, 1.5, 2, 3, 4, 5, 6, 8]):
        ticks = [tick for tick in np.outer(decades, steps).flat if low <= tick <= high]
        if 3 <= len(ticks) <= 7:
            axis.set_major_locator(FixedLocator(ticks))
            break
    axis.set_major_formatter(lambda tick, _: f"{tick:,g}")
