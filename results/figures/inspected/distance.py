"""The figure of mean attention distance per layer and head: arXiv 2010.11929, Figures 7 (right) and 11."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from results.figures.page import draw_legend
from results.figures.theme import GREY, MARKERS
from results.store.inspection_data import Inspection
from results.style import current_style


def draw_distance(inside: Inspection, figure: Figure) -> list[str]:
    """Draw the mean attention distance of each layer and head. Return the figure's notes."""
    distances, uniform = inside.arrays["distance"], inside.facts["uniform_distance"]  # (layers, heads), pixels
    (depth, heads), palette = distances.shape, current_style().palette
    figure.set_figheight(2.4)
    ax = figure.subplots()
    for head, values in enumerate(distances.T):
        look: dict[str, Any] = {"color": palette[0], "marker": "o", "alpha": 0.5, "label": None if head else "a head"}
        if heads <= len(palette):
            marker = MARKERS[head % len(MARKERS)]
            look = {"color": palette[head], "marker": marker, "alpha": 0.85, "label": f"head {head + 1}"}
        ax.plot(range(1, depth + 1), values, linestyle="", markeredgewidth=0, **look)
    ax.axhline(uniform, color=GREY, linestyle="--", linewidth=0.9, label="uniform attention")
    ax.set(xlim=(0.5, depth + 0.5), ylim=(0, 1.08 * max(uniform, float(distances.max()))))
    ax.xaxis.set_major_locator(MaxNLocator(min(depth, 12), integer=True, min_n_ticks=1))
    ax.set(xlabel="network depth (layer)", ylabel="mean attention distance (pixels)")
    draw_legend(ax)
    every = "" if heads <= len(palette) else f", {heads} heads a layer"
    return [
        f"Mean over {inside.facts['images']} test images and all patches{every}; class token and registers left out, "
        "the rest of each row scaled to 1"
    ]
