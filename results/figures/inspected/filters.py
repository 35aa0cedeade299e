"""The figure of the embedding filters' principal components: arXiv 2010.11929, Figure 7 (left)."""

import numpy as np
from matplotlib.figure import Figure

from results.figures.images import normalized, strip_axes, to_rgb
from results.store.inspection_data import Inspection

COLUMNS, MOST = 8, 16
SIDE, GAP = 48, 4  # pixels: side of a filter in the picture, gap between filters
PAPER = 0.85  # gray between the filters
FRAME = ((GAP // 2, GAP // 2), (GAP // 2, GAP // 2), (0, 0))


def draw_filters(inside: Inspection, figure: Figure) -> list[str]:
    """Draw the first principal components of the embedding filters, and fit the figure's height. Return its notes.

    Each component is scaled to 0 to 1, with one minimum and maximum for all of its channels.
    """
    components, share = inside.arrays["filters"][:MOST], inside.arrays["filters_share"][:MOST]
    tiles = tile_pictures([to_rgb(normalized(one)) for one in components])
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


def tile_pictures(tiles: list[np.ndarray]) -> np.ndarray:
    """Return `tiles` (H, W, 3) as one picture with at most COLUMNS columns. Small tiles grow to at most SIDE pixels."""
    zoom, columns = max(1, SIDE // max(tiles[0].shape[:2])), min(COLUMNS, len(tiles))
    framed = [np.pad(one.repeat(zoom, 0).repeat(zoom, 1), FRAME, constant_values=PAPER) for one in tiles]
    framed += [np.full_like(framed[0], PAPER)] * (-len(tiles) % columns)
    rows = [np.hstack(framed[k : k + columns]) for k in range(0, len(framed), columns)]
    return np.pad(np.vstack(rows), FRAME, constant_values=PAPER)
