"""The metric over an axis: a line a series, its intervals and seeds, and a mark where nothing was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from results.figures.flops import log_ticks
from results.figures.frame import each, is_number, metric_label
from results.figures.page import wrapped
from results.figures.theme import DASHES, GREY, MARKERS, current
from results.units import is_accuracy

NAMES = {
    "lr": "learning rate",
    "patch": "patch size (pixels a side)",
    "data_fraction": "share of the training images",
    "image_size": "image size (pixels a side)",
    "depth": "depth (blocks)",
}
TICK = 0.9  # inches that a label of the axis may take before it is broken
APART = 4.0  # points of paper between series that would cover each other at a place on the axis
NEARER = 0.25  # of the way from a place to the next, all series of a place together
STUB = 0.7  # points of paper, the width of the line from a mark that stands aside to its place
BESIDE = 2.5  # points of paper from a mark to its seeds
MARK = 10.0  # points of paper for a mark and the seeds beside it
HIGH = 6.0  # points of paper, the height of a mark
GAP = 9.0  # points of paper between crosses, as wide as what is written above them


@dataclass(frozen=True)
class Look:
    """How a series is drawn, in every panel alike."""

    colour: str
    marker: str
    dash: Any


def looks(frame: pd.DataFrame) -> dict[str, Look]:
    """A look a series, in plan order: black diamonds for the baseline's, the palette for the others.

    The colour that a style gives to a series by name comes first. Those of one colour have other marks and other
    dashes, as long as there are any.
    """
    style, baselines = current(), set(frame["series"][frame["reference"]])
    table: dict[str, Look] = {}
    k = 0  # of those that are no baseline's
    for name in dict.fromkeys(frame["series"]):
        baseline = name in baselines
        colour = style.colour(name) or (style.baseline if baseline else style.palette[k % len(style.palette)])
        alike = [look for look in table.values() if look.colour == colour]
        marker = "D" if baseline else unused(MARKERS, k, [look.marker for look in alike])
        table[name] = Look(colour, marker, unused(DASHES, 0, [look.dash for look in alike]))
        k += not baseline
    return table


def unused(choices: Sequence[Any], first: int, used: Sequence[Any]) -> Any:
    """The first of the choices, from place `first` on and round, that fewest have."""
    around = [choices[(first + step) % len(choices)] for step in range(len(choices))]
    return min(around, key=used.count)


def axis_name(field: str) -> str:
    """In words; a stage's setting, pretrain.lr, with the stage's name."""
    stage, _, rest = field.partition(".")
    of_stage = f"{NAMES[rest]} ({stage})" if rest in NAMES else field.replace("_", " ")
    return current().labels.get(field) or NAMES.get(field, of_stage)


def marks(field: str) -> str:
    """The sentence under a figure that says what filled and open marks are."""
    name = axis_name(field).partition(" (")[0]
    return (
        f"Filled: differs from the baseline (diamond) at the same {name}, Holm-adjusted p < 0.05. "
        "Open: equivalent, or not resolved."
    )


def place(frame: pd.DataFrame) -> pd.DataFrame:
    """Adds `at`, where an arm stands on the axis: its number, or its place in plan order for words."""
    if all(map(is_number, frame["x"])):
        return frame.assign(at=frame["x"].astype(float))
    order = list(dict.fromkeys(map(str, frame["x"])))
    return frame.assign(at=[float(order.index(str(value))) for value in frame["x"]])


def draw_lines(frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes) -> Axes:
    """Means with intervals over `at`, a line a series, marks that would cover each other side by side.

    The line stays at the true place, and a stub leads from it to a mark that stands aside: of two steep lines that are
    moved along, the lower one may seem to lie above the other.

    frame: rows of `arms` with `at`; seeds: rows of `seeds`. A line is broken where an arm has no finished trial.
    Call it when `ax` has its limits.
    """
    table, aside = looks(frame), side_by_side(frame, ax)
    for name, look in table.items():
        rows = frame[frame["series"] == name].sort_values("at", kind="stable")
        ax.plot(rows["at"], rows["mean"], color=look.colour, linestyle=look.dash, zorder=2)
        for points, own in rows.groupby(aside[rows.index]):
            draw_stubs(own, ax, look, points)
            draw_points(own, ax, look, points)
            draw_seeds(own, seeds, ax, look, points + BESIDE)
            draw_gaps(own, ax, look, points)
        if len(table) > 1:
            ax.plot([], [], color=look.colour, marker=look.marker, linestyle=look.dash, label=caption(rows))
    return ax


def side_by_side(frame: pd.DataFrame, ax: Axes) -> pd.Series:
    """How many points of paper beside its place `at` each arm's mark stands: in plan order, 0 where it is free."""
    found = pd.Series(0.0, index=frame.index)
    known = frame[frame["mean"].notna()]
    together = [group for _, rows in known.groupby("at") for group in colliding(rows, ax)]
    together_absent = [list(rows.index) for _, rows in frame[frame["mean"].isna()].groupby("at")]
    for groups, most in ((together, APART), (together_absent, GAP)):
        apart = min(most, room(frame, ax) / max([1, *(len(group) - 1 for group in groups)]))
        for group in groups:
            found[group] = apart * (np.arange(len(group)) - (len(group) - 1) / 2)
    return found


def colliding(rows: pd.DataFrame, ax: Axes) -> list[list[Any]]:
    """The arms of one place, by index, in groups that reach over each other in height, with a mark's room between."""
    bottom, top = (heights(rows[end].fillna(rows["mean"]), ax) for end in ("low", "high"))
    groups: list[list[Any]] = []
    reach = -np.inf
    for index in bottom.sort_values(kind="stable").index:
        if bottom[index] > reach + HIGH:
            groups.append([])
        groups[-1].append(index)
        reach = max(reach, top[index])
    return [[index for index in rows.index if index in group] for group in groups]


def heights(values: pd.Series, ax: Axes) -> pd.Series:
    """Where values stand on `ax`, in points of paper."""
    pixels = ax.transData.transform([(1.0, value) for value in values])[:, 1]
    return pd.Series(pixels * 72 / ax.figure.dpi, index=values.index)


def over_axis(
    frame: pd.DataFrame, seeds: pd.DataFrame, ax: Axes, metric: str, field: str, labels: Sequence[str] | None = None
) -> Axes:
    """The metric over the setting `field`: `draw_lines` between axes that fit them.

    frame: rows of `arms` with `at`; seeds: rows of `seeds`; labels: of the ticks, if not the values of `field`.
    """
    swept_axis(frame, ax, field, labels or values(frame))
    metric_axis(ax, metric, *extent(frame, seeds))
    draw_lines(frame, seeds, ax)
    if not (frame["n"] > 0).any():
        nothing_yet(ax)
    return ax


def room(frame: pd.DataFrame, ax: Axes) -> float:
    """The points of paper that series may spread over at a place: inside the axes, and nearer to it than to others."""
    ticks = np.array(sorted(set(frame["at"])))
    at = ax.transData.transform(np.column_stack([ticks, np.zeros_like(ticks)]))[:, 0] * 72 / ax.figure.dpi
    left, right = ax.bbox.x0 * 72 / ax.figure.dpi, ax.bbox.x1 * 72 / ax.figure.dpi
    inside = 2 * min(at[0] - left, right - at[-1]) - MARK
    return max(0.0, float(min([inside, *(NEARER * np.diff(at))])))


def caption(rows: pd.DataFrame) -> str:
    """What is written for a series; the baseline says that it is, where its name does not, or that alone."""
    name = str(rows["line"].iloc[0])
    if not rows["reference"].any() or name == "baseline":
        return name
    return "baseline" if is_long(name) else f"{name} (baseline)"


def is_long(name: str) -> bool:
    """Whether it gives the values of several factors."""
    return name.count("=") > 1


def spelled(frame: pd.DataFrame) -> list[str]:
    """The values of a baseline that is called no more than that in the legend."""
    names = dict.fromkeys(frame["line"][frame["reference"]])
    return [f"Baseline: {name}." for name in names if is_long(name)]


def beside(ax: Axes, points: float, to: Transform | None = None) -> Transform:
    """Data coordinates (or `to`) moved right by some points of paper: the same length on a log axis."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return (to or ax.transData) + ScaledTranslation(points / 72, 0, figure.dpi_scale_trans)


def draw_points(rows: pd.DataFrame, ax: Axes, look: Look, aside: float = 0.0) -> None:
    """Means with their intervals: filled for a baseline and for a difference that the verdict calls one."""
    to = beside(ax, aside)
    for row in each(rows[rows["mean"].notna()]):
        if not np.isnan(row.low):
            ax.plot([row.at, row.at], [row.low, row.high], color=look.colour, transform=to, zorder=3)
        face = look.colour if row.reference or row.verdict in ("better", "worse") else "white"
        ax.plot([row.at], [row.mean], look.marker, color=look.colour, markerfacecolor=face, transform=to, zorder=4)


def draw_stubs(rows: pd.DataFrame, ax: Axes, look: Look, aside: float) -> None:
    """From the true place of each mean to the mark that stands so many points of paper beside it."""
    for row in each(rows[rows["mean"].notna()] if aside else rows[:0]):
        ends: dict[str, Any] = {"xycoords": "data", "textcoords": "offset points", "xytext": (aside, 0)}
        line = {"arrowstyle": "-", "color": look.colour, "linewidth": STUB, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (row.at, row.mean), arrowprops=line, zorder=2, **ends)


def draw_seeds(rows: pd.DataFrame, seeds: pd.DataFrame, ax: Axes, look: Look, aside: float) -> None:
    """Single trials, faint, beside their mean."""
    own = seeds.merge(rows[["arm", "at"]], on="arm")
    faint: dict[str, Any] = {"alpha": 0.45, "markersize": 2.5, "markeredgewidth": 0}
    ax.plot(own["at"], own["value"], "o", color=look.colour, transform=beside(ax, aside), **faint)


def draw_gaps(rows: pd.DataFrame, ax: Axes, look: Look, aside: float = 0.0, name: str = "") -> None:
    """A cross at the foot of the axes for every arm without a finished trial, and what became of it."""
    foot = beside(ax, aside, blended_transform_factory(ax.transData, ax.transAxes))
    for row in each(rows[rows["n"] == 0]):
        what = row.gap.partition(",")[0].partition(" ")[2]  # "missing" of "3 missing, 2 failed"
        ax.plot([row.at], [0.03], "x", color=look.colour, transform=foot, zorder=4)
        above: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "bottom", "size": current().small, "color": GREY}
        ax.text(row.at, 0.07, f"{name}: {what}" if name else what, transform=foot, **above)


def draw_gaps_apart(rows: pd.DataFrame, frame: pd.DataFrame, ax: Axes, look: Look) -> None:
    """The crosses of a line's `rows`, named by it; no two of all lines in `frame` cover each other.

    Call it when `ax` has its limits: how close they are depends on those.
    """
    aside = asides(frame[frame["n"] == 0], ax)
    for index in aside.index.intersection(rows.index):
        draw_gaps(rows.loc[[index]], ax, look, aside[index], rows["line"].iloc[0])


def asides(frame: pd.DataFrame, ax: Axes) -> pd.Series:
    """How many points of paper to the right of its place `at` each arm is put, so that all are GAP apart."""
    in_order = frame["at"].sort_values(kind="stable")
    pixels = ax.transData.transform([(at, 0.0) for at in in_order]) if len(in_order) else np.empty((0, 2))
    free, found = -np.inf, []
    for place in pixels[:, 0] * 72 / ax.figure.dpi:
        found.append(max(free - place, 0.0))
        free = place + found[-1] + GAP
    return pd.Series(found, index=in_order.index, dtype=float)


def compute_axis(frame: pd.DataFrame, ax: Axes) -> None:
    """A logarithmic axis around what lies at `at`."""
    ax.set_xscale("log")
    low, high = around(sorted(set(frame["at"])), log=True)
    ax.set_xlim(low, high)
    log_ticks(ax.xaxis, low, high)


def swept_axis(frame: pd.DataFrame, ax: Axes, field: str, labels: Sequence[str]) -> None:
    """The horizontal axis of a study: a tick at every value of `at`, and nowhere else."""
    ticks = sorted(set(frame["at"]))
    log = scale_for(ticks) == "log" and all(map(is_number, frame["x"]))
    ax.set_xscale("log" if log else "linear")
    ax.set_xlim(*around(ticks, log))
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xticks(ticks, labels)
    ax.set_xlabel(f"{axis_name(field)}, log scale" if log else axis_name(field))


def values(frame: pd.DataFrame) -> list[str]:
    """A label a place on the axis: the value as a person writes it, in lines that leave room for others."""
    places = each(frame.drop_duplicates("at").sort_values("at"))
    return [wrapped(row.tick or plain(row.x), TICK, current().text) for row in places]


def plain(value: Any) -> str:
    """A number without noise, a word as it is: 0.0004, 5e-5, 8, 1,320, conv."""
    if not is_number(value):
        return str(value)
    if value and abs(value) < 1e-4:  # as Python does, and so the names of arms
        mantissa, exponent = f"{value:.6e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:,.6g}"


def scale_for(ticks: Sequence[float]) -> str:
    """`log` where the values lie more evenly by ratio than by difference, else `linear`."""
    if len(ticks) < 2 or ticks[0] <= 0:
        return "linear"
    if len(ticks) == 2:
        return "log" if ticks[1] >= 2 * ticks[0] else "linear"
    steps, ratios = np.diff(ticks), np.diff(np.log(ticks))
    return "log" if ratios.std() / ratios.mean() < steps.std() / steps.mean() else "linear"


def around(ticks: Sequence[float], log: bool) -> tuple[float, float]:
    """Limits that leave a margin on both sides, also of a single value."""
    low, high = ticks[0], ticks[-1]
    if log:
        margin = (high / low) ** 0.12 if high > low else 2.0
        return low / margin, high * margin
    margin = 0.12 * (high - low) or abs(low) * 0.5 or 1.0
    return low - margin, high + margin


def metric_axis(ax: Axes, metric: str, *measured: pd.Series) -> None:
    """The vertical axis, as high as what was measured: few ticks, none where nothing was.

    Of an accuracy nothing beyond 0 and 100%: intervals over few seeds run out of the picture.
    """
    ax.set_ylabel(metric_label(metric))
    known = pd.concat(measured).dropna()
    if known.empty:
        ax.set_yticks([])
        return
    low, high = possible(metric, known.min(), known.max())
    margin = 0.08 * (high - low) or 0.01 * abs(high) or 1.0
    ax.set_ylim(low - margin, high + margin)
    ticks = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low - margin, high + margin)
    most = 100.0 if is_accuracy(metric) else float("inf")
    ax.set_yticks([tick for tick in ticks if low - margin <= tick <= min(high + margin, most)])


def possible(metric: str, low: float, high: float) -> tuple[float, float]:
    """The part of an interval that the metric can reach."""
    return (max(low, 0.0), min(high, 100.0)) if is_accuracy(metric) else (low, high)


def extent(frame: pd.DataFrame, seeds: pd.DataFrame) -> tuple[pd.Series, ...]:
    """Everything that has to fit on a metric axis: means, intervals and seeds."""
    return frame["mean"], frame["low"], frame["high"], seeds["value"]


def nothing_yet(ax: Axes, words: str = "no finished trial yet") -> None:
    """Says so in place of an empty panel."""
    ax.text(0.5, 0.85, words, color=GREY, ha="center", va="center", transform=ax.transAxes)
