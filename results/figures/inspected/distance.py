"""The figure of mean attention distance per layer and head: arXiv 2010.11929, Figures 7 (right) and 11."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from results.figures.page import legend_above
from results.figures.theme import GREY, MARKERS
from results.store.inspection_data import Inspection
from results.style import current


def distance(inside: Inspection, figure: Figure) -> list[str]:
    """Draw the mean attention distance of each layer and head. Return the lines to write below."""
    distances = inside.arrays["distance"]
    figure.set_figheight(2.4)
    legend_above(distance_by_depth(distances, inside.facts["uniform_distance"], figure.subplots()), "")
    heads = distances.shape[1]
    every = "" if heads <= len(current().palette) else f", {heads} heads a layer"
    return [
        f"Mean over {inside.facts['images']} test images and all patches{every}; class token and registers left out, "
        "the rest of each row scaled to 1"
    ]


def distance_by_depth(distances: np.ndarray, uniform: float, ax: Axes) -> Axes:
    """Plot mean attention distances (layers, heads), in pixels, over the layers.

    uniform: the distance of uniform attention in pixels, drawn as a dashed line.
    """
    depth, heads = distances.shape
    palette = current().palette
    for head in range(heads):
        named = heads <= len(palette)
        ax.plot(
            range(1, depth + 1),
            distances[:, head],
            linestyle="",
            marker=MARKERS[head % len(MARKERS)] if named else "o",
            color=palette[head] if named else palette[0],
            alpha=0.85 if named else 0.5,
            markeredgewidth=0,
            label=f"head {head + 1}" if named else "a head" if head == 0 else None,
        )
    ax.axhline(uniform, color=GREY, linestyle="--", linewidth=0.9, label="uniform attention")
    ax.set_xlim(0.5, depth + 0.5)
    ax.set_ylim(0, 1.08 * max(uniform, float(distances.max())))
    ax.xaxis.set_major_locator(MaxNLocator(min(depth, 12), integer=True, min_n_ticks=1))
    ax.set_xlabel("network depth (layer)")
    ax.set_ylabel("mean attention distance (pixels)")
    return ax
