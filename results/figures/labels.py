"""Names beside points of a plot, in the points' colors, placed so that they cover nothing."""

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from results.figures.theme import GREY
from results.style import current_style

DIRECTIONS = ((1, 0), (-1, 0), (0.8, 0.8), (0.8, -0.8), (-0.8, 0.8), (-0.8, -0.8), (0, 1), (0, -1))
DISTANCES = (8, 14, 22, 32, 44, 58)  # points (1/72 inch)
STEP = 4.0  # pixels
LEADER = 20  # beyond this distance, a line leads from the name to its point

Point = tuple[float, float, str, str]  # x, y, name, color


def label_points(ax: Axes, points: Sequence[Point], taken: Sequence[Bbox]) -> bool:
    """Write each point's name in the nearest free place inside the axes, and return whether all names fit.

    If a name does not fit, none is written. taken: boxes in pixels that names must not cover. The layout must be final.
    """
    taken = [*taken, *(box_around(ax, x, y, y) for x, y, *_ in points)]
    written: list[Annotation] = []
    for x, y, name, colour in points:
        for far, direction in product(DISTANCES, DIRECTIONS):
            written.append(annotation(ax, (x, y), name, colour, direction, far))
            box = written[-1].get_window_extent()
            if is_free(box, taken, ax.bbox):
                taken.append(box)
                break
            written.pop().remove()
        else:
            for place in written:
                place.remove()
            return False
    return True


def boxes_along(ax: Axes, line: Sequence[tuple[float, float]]) -> list[Bbox]:
    """Return a chain of small boxes, in pixels, that cover a line of points (x, y) in data coordinates."""
    pairs = pairwise(ax.transData.transform(line))
    points = (point for a, b in pairs for point in np.linspace(a, b, 2 + int(np.abs(b - a).max() / STEP)))
    return [Bbox.from_bounds(x - STEP / 2, y - STEP / 2, STEP, STEP) for x, y in points]


def box_around(ax: Axes, x: float, low: float, high: float) -> Bbox:
    """Return the box, in pixels, of a marker and its interval, given in data coordinates."""
    (left, bottom), (right, top) = ax.transData.transform([(x, low), (x, high)])
    return Bbox.from_extents(left - 6, bottom - 6, right + 6, top + 6)


def annotation(
    ax: Axes, point: tuple[float, float], name: str, colour: str, direction: tuple[float, float], far: float
) -> Annotation:
    """Write a name at `far` * `direction` points (1/72 inch) from `point`, with a line to it if `far` > LEADER."""
    dx, dy = direction
    words = ax.annotate(
        name,
        point,
        xytext=(dx * far, dy * far),
        textcoords="offset points",
        ha="left" if dx > 0 else "right" if dx < 0 else "center",
        va="bottom" if dy > 0 and dx == 0 else "top" if dy < 0 and dx == 0 else "center",
        size=current_style().text,
        color=colour,
        arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkB": 4} if far > LEADER else None,
    )
    words.set_in_layout(False)
    return words


def is_free(box: Bbox, taken: Sequence[Bbox], inside: Bbox) -> bool:
    within = inside.contains(*box.min) and inside.contains(*box.max)
    return within and not any(box.fully_overlaps(other) for other in taken)  # boxes may touch
