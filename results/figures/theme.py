"""The appearance of all figures: embedded fonts, colorblind-safe colors, and the user's style.

Nothing depends on the user's matplotlibrc, the date or the machine, so equal results give equal bytes.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.figure import Figure

from results.style import Style, current_style

GREY, LIGHT, PALE = "#6e6e6e", "#d0d0d0", "#f3f3f3"
MARKERS = ("o", "s", "^", "v", "P", "X", "<")  # seven, which shares no divisor with the palette's six colors
DASHES: tuple[Any, ...] = (
    *("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)), (0, (9, 2)), (0, (2, 3))),
    *((0, (5, 1.2, 1, 1.2, 1, 1.2)), (0, (1, 4)), (0, (9, 2, 3, 2)), (0, (3, 1, 3, 4))),
)

# For marks and lines at 100%, which lie on the edge of the axes. The layout ignores them.
UNCLIPPED: dict[str, Any] = {"clip_on": False, "in_layout": False}

# Metadata to leave out, because a date or a version would change the bytes.
UNSTAMPED: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}


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


def check_format(format: str) -> None:
    """Raise ValueError unless the format is png, pdf or svg."""
    if format not in UNSTAMPED:
        raise ValueError(f"format={format}: one of {', '.join(UNSTAMPED)}")


def file_content(figure: Figure, format: str) -> bytes:
    """Return a figure encoded as png, pdf or svg. Equal figures give equal bytes."""
    stream = io.BytesIO()
    figure.savefig(stream, format=format, metadata=UNSTAMPED[format])
    return stream.getvalue()
