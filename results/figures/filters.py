"""Principal components of the filters that see the image: arXiv 2010.11929, Figure 7, left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from results.figures.images import bare, colours, stretched

if TYPE_CHECKING:
    from results.inspection import Inspection

COLUMNS = 7  # of 28


def filters(inside: Inspection, figure: Figure) -> list[str]:
    """Each component in its own colours: its smallest value black, its largest white (per component, all channels)."""
    components, share = inside.arrays["filters"], inside.arrays["filters_share"]
    columns = min(COLUMNS, len(components))
    rows = -(-len(components) // columns)
    figure.set_figheight((figure.get_figwidth() - 0.3) / columns * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for k, ax in enumerate(grid.flat):
        bare(ax)
        if k < len(components):
            ax.imshow(colours(stretched(components[k])), interpolation="nearest")
        else:
            ax.set_visible(False)
    what = "component" if len(components) == 1 else f"{len(components)} principal components"
    return [
        f"First {what} of {inside.facts['filters_of']}, largest first, with {share.sum():.0%} of its variance "
        f"({share[0]:.0%} in the first); each stretched to its own range, sign arbitrary"
    ]
