"""Principal components of the filters that see the image: arXiv 2010.11929, Figure 7, left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.images import bare, colours, stretched

if TYPE_CHECKING:
    from results.store.inspection_data import Inspection

COLUMNS = 7  # of 28
SIDE, GAP = 48, 4  # of one filter, and between two, in the picture's pixels
PAPER = 0.85


def filters(inside: Inspection, figure: Figure) -> list[str]:
    """Each component in its own colours: its smallest value black, its largest white (over all channels)."""
    components, share = inside.arrays["filters"], inside.arrays["filters_share"]
    ax = figure.subplots()
    tiles(components, ax)
    height, width = ax.images[0].get_size()
    figure.set_figheight((figure.get_figwidth() - 0.2) * height / width)
    what = "component" if len(components) == 1 else f"{len(components)} principal components"
    return [
        f"First {what} of {inside.facts['filters_of']}, largest first, with {share.sum():.0%} of its variance "
        f"({share[0]:.0%} in the first); each stretched to its own range, sign arbitrary"
    ]


def tiles(components: np.ndarray, ax: Axes) -> Axes:
    """components (K, C, H, W): each as a picture, in rows."""
    bare(ax).set_frame_on(False)
    pictures = [colours(stretched(one)) for one in components]
    ax.imshow(tiled(pictures, min(COLUMNS, len(pictures))), interpolation="nearest")
    return ax


def tiled(tiles: list[np.ndarray], columns: int) -> np.ndarray:
    """Pictures (H, W, 3), enlarged to about SIDE pixels, in rows on pale grey: white and black both end somewhere."""
    zoom = max(1, SIDE // max(tiles[0].shape[:2]))
    tiles = [tile.repeat(zoom, axis=0).repeat(zoom, axis=1) for tile in tiles]
    H, W, _ = tiles[0].shape
    rows = -(-len(tiles) // columns)
    paper = np.full((rows * (H + GAP) + GAP, columns * (W + GAP) + GAP, 3), PAPER)
    for k, tile in enumerate(tiles):
        top, left = k // columns * (H + GAP) + GAP, k % columns * (W + GAP) + GAP
        paper[top : top + H, left : left + W] = tile
    return paper
