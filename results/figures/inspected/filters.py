"""The figure of the embedding filters' principal components: arXiv 2010.11929, Figure 7 (left)."""

import numpy as np
from matplotlib.figure import Figure

from results.figures.images import normalized, strip_axes, to_rgb
from results.store.inspection_data import Inspection

COLUMNS, MOST = 8, 16
SIDE, GAP = 48, 4  # pixels: side of a filter in the picture, gap between filters
PAPER = 0.85


def draw_filters(inside: Inspection, figure: Figure) -> list[str]:
    """Draw the first principal components of the embedding filters. Return the figure's notes.

    Each component is stretched over all channels, from black (minimum) to white (maximum).
    """
    components, share = inside.arrays["filters"][:MOST], inside.arrays["filters_share"][:MOST]
    pictures = [to_rgb(normalized(one)) for one in components]
    tiles = tile_pictures(pictures, min(COLUMNS, len(pictures)))
    ax = strip_axes(figure.subplots())
    ax.set_frame_on(False)
    ax.imshow(tiles, interpolation="nearest")
    height, width, _ = tiles.shape
    figure.set_figheight((figure.get_figwidth() - 0.2) * height / width)
    what = "component" if len(components) == 1 else f"{len(components)} principal components"
    return [
        f"First {what} of {inside.facts['filters_of']}, largest first, with {share.sum():.0%} of its variance "
        f"({share[0]:.0%} in the first); each stretched to its own range, sign arbitrary"
    ]


def tile_pictures(tiles: list[np.ndarray], columns: int) -> np.ndarray:
    """Return one picture of `tiles` (H, W, 3) in `columns` columns. Small tiles are enlarged to at most SIDE pixels."""
    zoom = max(1, SIDE // max(tiles[0].shape[:2]))
    tiles = [tile.repeat(zoom, axis=0).repeat(zoom, axis=1) for tile in tiles]
    H, W, _ = tiles[0].shape
    rows = -(-len(tiles) // columns)
    paper = np.full((rows * (H + GAP) + GAP, columns * (W + GAP) + GAP, 3), PAPER)
    for k, tile in enumerate(tiles):
        top, left = k // columns * (H + GAP) + GAP, k % columns * (W + GAP) + GAP
        paper[top : top + H, left : left + W] = tile
    return paper
