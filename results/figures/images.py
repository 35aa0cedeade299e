"""Arrays shown as pictures: values to colours, small pictures side by side in one."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from results.figures.theme import LIGHT


def stretched(values: np.ndarray) -> np.ndarray:
    """All of 0 to 1; a half where they are all alike."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.full(values.shape, 0.5)


def colours(image: np.ndarray) -> np.ndarray:
    """(C, H, W), of 0 to 1, as (H, W, 3): grey where it has not three channels."""
    if len(image) != 3:
        image = np.repeat(image.mean(axis=0, keepdims=True), 3, axis=0)
    return image.transpose(1, 2, 0)


def bare(ax: Axes) -> Axes:
    """Axes that only hold a picture."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(True)
        spine.set_color(LIGHT)
        spine.set_linewidth(0.4)
    return ax


def mosaic(maps: np.ndarray, gap: int = 1) -> np.ndarray:
    """(R, C, rows, columns) as one picture, R x C maps with `gap` empty cells (NaN) between them."""
    R, C, rows, columns = maps.shape
    picture = np.full((R * (rows + gap) - gap, C * (columns + gap) - gap), np.nan)
    for r in range(R):
        for c in range(C):
            top, left = r * (rows + gap), c * (columns + gap)
            picture[top : top + rows, left : left + columns] = maps[r, c]
    return picture


def centres(count: int, size: int, gap: int = 1) -> np.ndarray:
    """Where the middles of `count` maps of `size` cells stand in a mosaic."""
    return np.arange(count) * (size + gap) + (size - 1) / 2


def some(count: int, most: int) -> range:
    """At most about `most` of the numbers below `count`, evenly spaced."""
    return range(0, count, -(-count // most))


def scale_of(site: str, values: np.ndarray) -> dict[str, Any]:
    """Similarities lie within -1 and 1, as in the paper; a bias around zero."""
    if site == "bias":
        most = float(np.nanmax(np.abs(values))) or 1.0
        return {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
    return {"cmap": "viridis", "vmin": -1.0, "vmax": 1.0}
