"""How every figure looks: sizes for a two-column paper, fonts that embed, colours that the colour-blind can tell.

Nothing here depends on the user's matplotlibrc, the date or the machine: the same results give the same bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib

FULL, COLUMN = 7.0, 3.4  # inches: the text width and the column width of a two-column paper

# Okabe and Ito, "Color Universal Design" (2008), without the yellow that white paper swallows.
BLACK, GREY, LIGHT, PALE = "#000000", "#6e6e6e", "#d0d0d0", "#f3f3f3"
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)  # black is the baseline's, in every figure
MARKERS = ("o", "s", "^", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)), (0, (7, 2)), (0, (2, 3)))

TITLE, TEXT, SMALL = 9.0, 7.5, 6.5  # points

SETTINGS: Any = {  # names and values as in a matplotlibrc
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine has the same one
    "font.size": TEXT,
    "text.hinting": "none",  # a line is as wide on a screen as in print
    "text.parse_math": False,  # a dollar sign in a question is a dollar sign
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#ebebeb",
    "grid.linewidth": 0.6,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "legend.fontsize": TEXT,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 5.0,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "ablations",
}


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's own defaults under SETTINGS, for the time of one figure."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield
