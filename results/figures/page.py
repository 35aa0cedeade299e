"""The text around a figure: the question above it, the setting below the question, and notes at the bottom."""

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
from matplotlib.transforms import Bbox

from results.figures.frame import rows_of
from results.figures.theme import GREY
from results.safe_text import printable
from results.style import COLUMN, current_style
from results.units import amount_text

MARGIN = 0.08  # inches
LEADING = 1.35  # minimum line height, as a multiple of the font size
HANDLE = 0.5  # inches of a legend's line and the space around it
STACKED = 2  # maximum rows of a legend above its panel; longer legends span the figure
NAMED = 6  # maximum number of arms with absent trials that are named below a figure


def is_narrow(figure: Figure) -> bool:
    """Return whether a figure is at most about one column wide."""
    return bool(figure.get_figwidth() < COLUMN + 1)


def add_panels(figure: Figure, count: int, height: float) -> list[Axes]:
    """Add `count` panels of `height` inches side by side, or stacked on a narrow page, and return their axes."""
    rows, columns = (count, 1) if is_narrow(figure) else (1, count)
    figure.set_figheight(rows * height)
    return list(figure.subplots(rows, columns, squeeze=False).flat)


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a line of text in inches. size: font size in points."""
    font = FontProperties(size=size, weight=weight)
    width, _, _ = TextToPath().get_text_width_height_descent(printable(text), font, ismath=False)
    return float(width) / 72


def wrap_text(text: str, width: float, size: float, weight: str = "normal") -> str:
    """Return text broken into lines of at most `width` inches, between words where possible. size: in points."""
    lines, text = [""], printable(text, "\n")
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size, weight) <= width:
            lines[-1] = longer
            continue
        while text_width(word, size, weight) > width and len(word) > 1:
            fits = max(k for k in range(1, len(word)) if k == 1 or text_width(word[:k], size, weight) <= width)
            joint = max(word[:fits].rfind(sign) for sign in "-=_,/") + 1
            end = joint if joint > fits / 2 else fits  # after a separator that fills more than half of the line
            lines.append(word[:end])
            word = word[end:]
        lines.append(word)
    return "\n".join(line for line in lines if line)


def compose(figure: Figure, title: str, subtitle: str, notes: Sequence[str]) -> None:
    """Add title, subtitle and notes to a figure, and enlarge it so that the axes keep their size.

    The layout is then final. Tick labels that would overlap are rotated.
    """
    for text in figure.findobj(Text):  # an unprintable character would make an SVG file invalid
        text.set_text(printable(text.get_text(), "\n"))
    width, body = figure.get_size_inches()
    inside, style = width - 2 * MARGIN, current_style()
    head = wrap_text(title, inside, style.title, "bold")
    under = wrap_text(subtitle, inside, style.text)
    foot = "\n".join(wrap_text(note, inside, style.small) for note in notes)
    head_height, under_height = text_height(head, style.title), text_height(under, style.text)
    keys = [legend.get_window_extent().height / figure.dpi + MARGIN for legend in figure.legends]
    top = MARGIN + head_height + under_height + MARGIN + sum(keys)
    bottom = text_height(foot, style.small) + MARGIN if foot else 0.0
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
    rotate_crowded_ticks(figure)
    freeze_layout(figure)


def text_height(text: str, size: float) -> float:
    """Return the height of a block of lines in inches, or 0 for an empty text. size: font size in points."""
    return (text.count("\n") + 1) * size * max(LEADING, line_spacing(current_style().family)) / 72 if text else 0.0


@lru_cache
def line_spacing(family: str) -> float:
    """Return matplotlib's distance between lines, as a multiple of the font size."""
    page, font = Figure(dpi=72), FontProperties(family=family, size=100)
    two, three = (page.text(0, 0, "lp" + "\nlp" * k, fontproperties=font).get_window_extent().height for k in (1, 2))
    return float(three - two) / 100


def rotate_crowded_ticks(figure: Figure) -> None:
    figure.draw_without_rendering()
    for ax in figure.axes:
        labels = [label for label in ax.get_xticklabels() if label.get_text()]
        boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: float(box.x0))
        if any(a.x1 + 2 > b.x0 for a, b in pairwise(boxes)):
            ax.tick_params(axis="x", labelrotation=90)


def freeze_layout(figure: Figure) -> None:
    """Fix the layout of a figure, rounded to 4 decimals because the solver's last bits vary between runs."""
    figure.draw_without_rendering()
    for ax in figure.axes:
        ax.set_position(Bbox.from_bounds(*(round(side, 4) for side in ax.get_position().bounds)))
    figure.set_layout_engine("none")


def absence_lines(frame: pd.DataFrame) -> list[str]:
    """Return a line for each of the first NAMED arms with unfinished seeds, and a line that counts any others."""
    short = frame[frame["n"] < frame["planned"]]
    lines = [f"{r.label}: {r.n} of {amount_text(r.planned, 'seed')} finished ({r.gap})" for r in rows_of(short[:NAMED])]
    return lines + [f"and {len(short) - NAMED} more arms with unfinished seeds, see the table"] * (len(short) > NAMED)


def draw_legends(figure: Figure, panels: Sequence[tuple[Axes, str]]) -> None:
    """Draw legends above one or two panels (axes, title), or across a wide figure if any exceeds STACKED rows."""
    across = len(panels) > 1 and not is_narrow(figure) and max(len(legend_columns(ax)[0]) for ax, _ in panels) > STACKED
    for (ax, title), side in zip(panels, ("left: ", "right: "), strict=False):
        draw_legend(ax, f"{side if across else ''}{title}", across)


def draw_legend(ax: Axes, title: str = "", across: bool = False) -> None:
    """Draw a legend in as many columns as fit above `ax`, or across the whole figure. Without entries, draw its title.

    The figure is enlarged to hold a legend above `ax`. `compose` sets the place of a legend across the figure.
    """
    (handles, labels), figure = ax.get_legend_handles_labels(), ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    if not handles:
        ax.set_title(title, loc="left")
        return
    columns = legend_columns(ax, across)
    look: dict[str, Any] = {"ncols": len(columns), "title": title, "alignment": "left"}
    if across:
        figure.legend(handles, labels, loc="upper left", **look).set_in_layout(False)
        return
    wrapped = [label for stack in columns for label in stack]
    added = max(text_height("\n".join(stack), current_style().text) for stack in columns)
    figure.set_figheight(figure.get_figheight() + added)
    ax.legend(handles, wrapped, loc="lower left", bbox_to_anchor=(0, 1.0), **look)


def legend_columns(ax: Axes, across: bool = False) -> list[list[str]]:
    """Return the legend's wrapped entries in columns that fit the width of `ax` or of the figure, or [[]] for none."""
    labels, text, figure = ax.get_legend_handles_labels()[1], current_style().text, ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    if not labels:
        return [[]]
    room = figure.get_figwidth() - 2 * MARGIN if across else ax.get_position().width * figure.get_figwidth()
    broken = [wrap_text(label, room - HANDLE, text) for label in labels]
    widest = max(text_width(line, text) for label in broken for line in label.split("\n")) + HANDLE
    columns = max(1, min(len(broken), int(room / widest)))
    return [list(map(str, stack)) for stack in np.array_split(np.array(broken, dtype=object), columns)]
