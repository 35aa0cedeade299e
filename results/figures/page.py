"""A figure's page: its fonts and colors, its panels, the text around them, and the file.

Nothing depends on the user's matplotlibrc, the date or the machine, so equal results give equal bytes.
"""

import io
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from commonfloor.messages import printable
from results.style import COLUMN, Style, current_style

GREY, LIGHT, PALE = "#6e6e6e", "#d0d0d0", "#f3f3f3"
MARKERS = ("o", "s", "^", "v", "P", "X", "<")  # seven, which shares no divisor with the palette's six colors
DASHES: tuple[Any, ...] = (
    *("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)), (0, (9, 2)), (0, (2, 3))),
    *((0, (5, 1.2, 1, 1.2, 1, 1.2)), (0, (1, 4)), (0, (9, 2, 3, 2)), (0, (3, 1, 3, 4))),
)

# For marks and lines at 100%, which lie on the edge of the axes. The layout ignores them.
UNCLIPPED: dict[str, Any] = {"clip_on": False, "in_layout": False}
FAINT: dict[str, Any] = {"alpha": 0.45, "markeredgewidth": 0, **UNCLIPPED}  # dots of single seeds

# Metadata to leave out, because a date or a version would change the bytes.
UNSTAMPED: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}

MARGIN = 0.08  # inches
LEADING = 1.4  # height of a line, as a multiple of the font size
LETTER = 0.54  # width of an average letter, as a multiple of the font size
BOLD = 1.12  # width of a bold letter, as a multiple of a normal one
HANDLE = 0.5  # inches of a legend's line and the space around it
TICKS = 0.65  # inches of the tick labels and the label of a vertical axis


def matplotlib_settings(chosen: Style) -> Any:
    return {
        "font.family": list(dict.fromkeys([chosen.family, "DejaVu Sans"])),  # the fallback for missing glyphs
        "font.size": chosen.text,
        "axes.titlesize": "medium",  # as large as all other texts
        "text.hinting": "none",  # so that text is equally wide on screen and in print
        "text.parse_math": False,  # a dollar sign in a question is a dollar sign
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.formatter.useoffset": False,  # 100.05, not 0.05 and an offset of 1e2 in a corner
        "axes.linewidth": 0.7,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": "#ebebeb",
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.borderaxespad": 0.2,
        "legend.borderpad": 0.2,
        "legend.handlelength": 2.6,
        "legend.columnspacing": 1.2,
        "lines.linewidth": 1.3,
        "lines.markersize": 5.0,
        "savefig.dpi": chosen.dpi,
        "pdf.fonttype": 42,
        "svg.fonttype": "path",
        "svg.hashsalt": "ablations",
    }


@contextmanager
def apply_style() -> Iterator[None]:
    """Apply the user's style to matplotlib in a `with` block. Raises ValueError if its font is not installed."""
    chosen = current_style()
    try:
        font_manager.findfont(chosen.family, fallback_to_default=False)
    except ValueError:
        shipped = "DejaVu Sans, DejaVu Serif, STIXGeneral"
        raise ValueError(f"fonts.family={chosen.family}: not on this machine (everywhere: {shipped})") from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(matplotlib_settings(chosen))
        yield


def file_content(figure: Figure, format: str) -> bytes:
    """Return a figure encoded as png, pdf or svg. Raises ValueError for others."""
    if format not in UNSTAMPED:
        raise ValueError(f"format={format}: one of {', '.join(UNSTAMPED)}")
    stream = io.BytesIO()
    figure.savefig(stream, format=format, metadata=UNSTAMPED[format])
    return stream.getvalue()


def is_narrow(figure: Figure) -> bool:
    return bool(figure.get_figwidth() < COLUMN + 1)


def add_panels(figure: Figure, count: int, height: float, rows: int = 1) -> list[Axes]:
    """Add `count` panels of `height` inches in `rows`, or stacked on a narrow page."""
    columns = count // rows
    if is_narrow(figure):
        rows, columns = count, 1
    figure.set_figheight(rows * height)
    return list(figure.subplots(rows, columns, squeeze=False).flat)


def text_width(text: str, size: float) -> float:
    """Return the approximate width of a text's longest line in inches. size: font size in points."""
    longest = max(map(len, text.split("\n")))
    return longest * LETTER * size / 72


def text_height(text: str, size: float) -> float:
    return len(text.splitlines()) * size * LEADING / 72


def wrap_text(text: str, width: float, size: float) -> str:
    """Return text broken into lines of about `width` inches. size: in points."""
    letters = int(width * 72 / (LETTER * size))
    return textwrap.fill(printable(text, "\n"), max(1, letters))


def compose(figure: Figure, title: str, subtitle: str, notes: Sequence[str]) -> None:
    """Add title, subtitle and notes to a figure, enlarge it so that the axes keep their size, and fix the layout."""
    for text in figure.findobj(Text):  # an unprintable character would make an SVG file invalid
        text.set_text(printable(text.get_text(), "\n"))
    width, body = figure.get_size_inches()
    inside = width - 2 * MARGIN
    style = current_style()
    head = wrap_text(title, inside, style.title * BOLD)
    under = wrap_text(subtitle, inside, style.text)
    foot = "\n".join(wrap_text(note, inside, style.small) for note in notes)
    head_height = text_height(head, style.title)
    top = head_height + text_height(under, style.text) + 2 * MARGIN
    bottom = text_height(foot, style.small) + MARGIN if foot else 0.0
    body += legends_height(figure)
    total = top + body + bottom
    figure.set_size_inches(width, total)
    left = MARGIN / width
    figure.text(left, 1 - MARGIN / total, head, size=style.title, weight="bold", va="top")
    figure.text(left, 1 - (MARGIN + head_height) / total, under, size=style.text, color=GREY, va="top")
    figure.text(left, MARGIN / total, foot, size=style.small, color=GREY, va="bottom")
    figure.set_layout_engine("constrained", rect=(left, bottom / total, inside / width, body / total), w_pad=MARGIN)
    rotate_crowded_ticks(figure)
    freeze_layout(figure)


def legends_height(figure: Figure) -> float:
    by_row: dict[int, float] = defaultdict(float)
    for ax in figure.axes:
        legend = ax.get_legend()
        place = ax.get_subplotspec()
        if legend is not None and place is not None:
            height = legend.get_window_extent().height / figure.dpi
            by_row[place.rowspan.start] = max(by_row[place.rowspan.start], height)
    return sum(by_row.values())


def lay_out(figure: Figure) -> None:
    """Place axes and ticks, without the cost of drawing what does not move them."""
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)
    for ax in figure.axes:
        ax.apply_aspect()


def rotate_crowded_ticks(figure: Figure) -> None:
    lay_out(figure)
    for ax in figure.axes:
        labels = [label for label in ax.get_xticklabels() if label.get_text()]
        boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: float(box.x0))
        if any(a.x1 + 2 > b.x0 for a, b in pairwise(boxes)):
            ax.tick_params(axis="x", labelrotation=90)


def freeze_layout(figure: Figure) -> None:
    """Fix the layout of a figure, rounded to 4 decimals because the solver's last bits vary between runs."""
    lay_out(figure)
    for ax in figure.axes:
        ax.set_position(Bbox.from_bounds(*(round(side, 4) for side in ax.get_position().bounds)))
    figure.set_layout_engine("none")


def draw_legend(ax: Axes, title: str = "") -> None:
    figure = ax.get_figure(root=True)
    assert figure is not None
    handles, labels = ax.get_legend_handles_labels()
    if not handles:
        ax.set_title(title, loc="left")
        return
    place = ax.get_subplotspec()
    size = current_style().text
    assert place is not None
    room = figure.get_figwidth() / place.get_gridspec().ncols - TICKS
    wrapped = [wrap_text(label, room - HANDLE, size) for label in labels]
    columns = int(room / (text_width("\n".join(wrapped), size) + HANDLE))
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "alignment": "left"}
    ax.legend(handles, wrapped, ncols=max(1, columns), title=title, **above)
