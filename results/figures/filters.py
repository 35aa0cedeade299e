"""Principal components of the filters that see the image: arXiv 2010.11929, Figure 7, left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from results.figures.images import bare, colours, stretched

if TYPE_CHECKING:
    from results.inside import Inspection

COLUMNS = 7  # of 28
SIDE, GAP = 48, 4  # of one filter, and between two, in the picture's pixels
PAPER = 0.85


def filters(inside: Inspection, figure: Figure) -> list[str]:
    """Each component in its own colours: its smallest value black, its largest white (over all channels)."""
    components, share = inside.arrays["filters"], inside.arrays["filters_share"]
    columns = min(COLUMNS, len(components))
    picture = tiled([colours(stretched(one)) for one in components], columns)
    figure.set_figheight((figure.get_figwidth() - 0.2) * picture.shape[0] / picture.shape[1])
    ax = bare(figure.subplots())
    ax.imshow(picture, interpolation="nearest")
    ax.set_frame_on(False)
    what = "component" if len(components) == 1 else f"{len(components)} principal components"
    return [
        f"First {what} of {inside.facts['filters_of']}, largest first, with {share.sum():.0%} of its variance "
        f"({share[0]:.0%} in the first); each stretched to its own range, sign arbitrary"
    ]


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
