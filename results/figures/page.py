"""What stands around a figure: the question above it, what was measured under that, what is absent below."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import TextToPath
from matplotlib.ticker import FixedFormatter
from matplotlib.transforms import Bbox

from results.figures.frame import each
from results.figures.theme import COLUMN, GREY, current
from results.safe_text import plain

MARGIN = 0.08  # inches
LEADING = 1.35  # line height over font size, at least
HANDLE = 0.5  # inches of a legend's line and the space around it
STACKED = 2  # rows that a legend over its panel may have, where it could have the figure's width
NAMED = 6  # arms with absent trials that are named under a figure


def make_plain(figure: Figure) -> None:
    """Escapes what does not print in all of a figure's texts: in an SVG it would be no XML."""
    for text in figure.findobj(Text):
        text.set_text(plain(text.get_text(), "\n"))
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(formatter := axis.get_major_formatter(), FixedFormatter):
                formatter.seq = [plain(label, "\n") for label in formatter.seq]


def narrow(figure: Figure) -> bool:
    """Whether a figure is one column wide: panels are then stacked and labels stand above what they name."""
    return bool(figure.get_figwidth() < COLUMN + 1)


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """The width of a line of text in inches."""
    font = FontProperties(size=size, weight=weight)
    width, _, _ = TextToPath().get_text_width_height_descent(plain(text), font, ismath=False)
    return float(width) / 72


def wrapped(text: str, width: float, size: float, weight: str = "normal") -> str:
    """Text broken into lines of at most `width` inches, between words where it can be."""
    lines, text = [""], plain(text, "\n")
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size, weight) <= width:
            lines[-1] = longer
            continue
        while text_width(word, size, weight) > width and len(word) > 1:
            start = word[: break_at(word, width, size, weight)]
            lines.append(start)
            word = word[len(start) :]
        lines.append(word)
    return "\n".join(line for line in lines if line)


def break_at(word: str, width: float, size: float, weight: str) -> int:
    """How much of a word that is too long stands on the first line: up to a hyphen or the like if one is near."""
    fits = max(k for k in range(1, len(word)) if k == 1 or text_width(word[:k], size, weight) <= width)
    joint = max(word[:fits].rfind(sign) for sign in "-=_,/") + 1
    return joint if joint > fits / 2 else fits


def compose(figure: Figure, title: str, subtitle: str, notes: Sequence[str]) -> None:
    """Makes the figure higher by its header and footer and writes them there; the axes keep their space."""
    make_plain(figure)
    width, body = figure.get_size_inches()
    inside, style = width - 2 * MARGIN, current()
    head = wrapped(title, inside, style.title, "bold")
    under = wrapped(subtitle, inside, style.text)
    foot = "\n".join(wrapped(note, inside, style.small) for note in notes)
    head_height, under_height, foot_height = (
        height(head, style.title),
        height(under, style.text),
        height(foot, style.small),
    )
    keys = [legend.get_window_extent().height / figure.dpi + MARGIN for legend in figure.legends]
    top = MARGIN + head_height + under_height + MARGIN + sum(keys)
    bottom = foot_height + MARGIN if foot else 0.0
    total = top + body + bottom
    figure.set_size_inches(width, total)
    left = MARGIN / width
    figure.text(left, 1 - MARGIN / total, head, size=style.title, weight="bold", va="top", linespacing=LEADING * 0.9)
    figure.text(left, 1 - (MARGIN + head_height) / total, under, size=style.text, color=GREY, va="top")
    for k, legend in enumerate(figure.legends):
        legend.set_bbox_to_anchor((left, 1 - (top - sum(keys[k:])) / total), transform=figure.transFigure)
    if foot:
        figure.text(left, MARGIN / total, foot, size=style.small, color=GREY, va="bottom")
    figure.set_layout_engine("constrained", rect=(left, bottom / total, inside / width, body / total), w_pad=MARGIN)
    uncrowd(figure)
    freeze(figure)


def height(text: str, size: float) -> float:
    """The height of a block of lines in inches."""
    return (text.count("\n") + 1) * size * max(LEADING, leading(current().family)) / 72 if text else 0.0


@lru_cache
def leading(family: str) -> float:
    """The distance of two lines over the font's size, as matplotlib sets them."""
    page, font = Figure(dpi=72), FontProperties(family=family, size=100)
    two, three = (page.text(0, 0, "lp" + "\nlp" * k, fontproperties=font).get_window_extent().height for k in (1, 2))
    return float(three - two) / 100


def uncrowd(figure: Figure) -> None:
    """Turns the labels of a horizontal axis where they would touch each other."""
    figure.draw_without_rendering()
    for ax in figure.axes:
        labels = [label for label in ax.get_xticklabels() if label.get_text()]
        boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: float(box.x0))
        if any(a.x1 + 2 > b.x0 for a, b in pairwise(boxes)):
            ax.tick_params(axis="x", labelrotation=90)


def freeze(figure: Figure) -> None:
    """Lays the axes out for good, rounded: the last bits of the solver depend on memory addresses."""
    figure.draw_without_rendering()
    for ax in figure.axes:
        ax.set_position(Bbox.from_bounds(*(round(side, 4) for side in ax.get_position().bounds)))
    figure.set_layout_engine("none")


def absences(frame: pd.DataFrame) -> list[str]:
    """A line an arm that has fewer finished trials than planned, and why; nothing is dropped in silence."""
    short = list(each(frame[frame["n"] < frame["planned"]]))
    lines = [f"{row.label}: {row.n} of {row.planned} seeds finished ({row.gap})" for row in short[:NAMED]]
    return lines + [f"and {len(short) - NAMED} more arms with unfinished seeds, see the table"] * (len(short) > NAMED)


def legends_above(figure: Figure, panels: Sequence[tuple[Axes, str]]) -> None:
    """Each panel's legend over it under its title; panels side by side whose legends are high have them over both."""
    if len(panels) < 2 or narrow(figure) or max(len(stacks(ax)[0]) for ax, _ in panels) <= STACKED:
        for ax, title in panels:
            legend_above(ax, title)
        return
    for (ax, title), side in zip(panels, ("left", "right"), strict=True):
        legend_across(figure, ax, f"{side}: {title}")


def legend_above(ax: Axes, title: str) -> None:
    """A legend over the axes, in as many columns as fit; the figure grows by its height."""
    handles, labels = ax.get_legend_handles_labels()
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    if not handles:
        ax.set_title(title, loc="left")
        return
    found = stacks(ax)
    figure.set_figheight(figure.get_figheight() + max(height("\n".join(stack), current().text) for stack in found))
    labels = [label for stack in found for label in stack]
    ax.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(found), title=title, **layout())


def legend_across(figure: Figure, ax: Axes, title: str) -> None:
    """The legend of `ax` over the whole figure, of which it may have any part; `compose` finds its place."""
    handles, labels = ax.get_legend_handles_labels()
    if not handles:
        ax.set_title(title, loc="left")
        return
    columns = len(stacked(labels, figure.get_figwidth() - 2 * MARGIN))
    legend = figure.legend(handles, labels, loc="upper left", ncols=columns, title=title, **layout())
    legend.set_in_layout(False)


def stacks(ax: Axes) -> list[list[str]]:
    """The entries of a legend as wide as `ax`, a list a column; [[]] where there is none."""
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    return stacked(ax.get_legend_handles_labels()[1], ax.get_position().width * figure.get_figwidth())


def stacked(labels: Sequence[str], room: float) -> list[list[str]]:
    """Entries in as many columns as fit into `room` inches, broken where one is too long."""
    if not labels:
        return [[]]
    text = current().text
    broken = [wrapped(label, room - HANDLE, text) for label in labels]
    widest = max(text_width(line, text) for label in broken for line in label.split("\n")) + HANDLE
    columns = max(1, min(len(broken), int(room / widest)))
    return [list(map(str, stack)) for stack in np.array_split(np.array(broken, dtype=object), columns)]


def layout() -> dict[str, Any]:
    """What all legends have in common."""
    return {
        "title_fontsize": current().text,
        "alignment": "left",
        "borderaxespad": 0.2,
        "borderpad": 0.2,
        "handlelength": 2.6,
        "columnspacing": 1.2,
    }
