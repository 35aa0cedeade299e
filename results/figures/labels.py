"""Names beside points: each where it covers neither a mark nor another name."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from results.figures.style import GREY, current

DIRECTIONS = ((1, 0), (-1, 0), (0.8, 0.8), (0.8, -0.8), (-0.8, 0.8), (-0.8, -0.8), (0, 1), (0, -1))
DISTANCES = (8, 14, 22, 32, 44, 58)  # points of paper
LEADER = 20  # from this distance on, a line leads from the name to its point

Point = tuple[float, float, str]  # x, y, name


def label_points(ax: Axes, points: Sequence[Point], bars: Sequence[tuple[float, float, float]]) -> None:
    """Writes each point's name at the nearest place that is free, inside the axes where there is one.

    bars: (x, low, high) of every interval; names keep clear of them. Call it when the axes have their limits:
    places are found for the layout as it is.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    taken = [around_point(ax, x, y, y) for x, y, _ in points] + [around_point(ax, *bar) for bar in bars]
    for x, y, name in points:
        places = [annotation(ax, (x, y), name, d, far) for far in DISTANCES for d in DIRECTIONS]
        boxes = [place.get_window_extent() for place in places]
        costs = [cost(box, taken, ax.bbox) for box in boxes]
        best = costs.index(min(costs))
        for k, place in enumerate(places):
            if k != best:
                place.remove()
        taken.append(boxes[best])


def around_point(ax: Axes, x: float, low: float, high: float) -> Bbox:
    """What a mark covers, in pixels."""
    (left, bottom), (right, top) = ax.transData.transform([(x, low), (x, high)])
    return Bbox.from_extents(left - 6, bottom - 6, right + 6, top + 6)


def annotation(
    ax: Axes, point: tuple[float, float], name: str, direction: tuple[float, float], far: float
) -> Annotation:
    dx, dy = direction
    words = ax.annotate(
        name,
        point,
        xytext=(dx * far, dy * far),
        textcoords="offset points",
        ha="left" if dx > 0 else "right" if dx < 0 else "center",
        va="bottom" if dy > 0 and dx == 0 else "top" if dy < 0 and dx == 0 else "center",
        size=current().text,
        arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkB": 4} if far > LEADER else None,
    )
    words.set_in_layout(False)
    return words


def cost(box: Bbox, taken: Sequence[Bbox], inside: Bbox) -> float:
    """The area, in square pixels, that a name would share with what is there or have outside the axes."""
    shared = sum(overlap(box, other) for other in taken)
    return shared + 4 * (box.width * box.height - overlap(box, inside))


def overlap(a: Bbox, b: Bbox) -> float:
    both = Bbox.intersection(a, b)
    return 0.0 if both is None else float(both.width * both.height)
