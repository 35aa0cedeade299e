"""Arrays as pictures: values as colors, and small maps in a grid."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from results.figures.theme import LIGHT


def normalized(values: np.ndarray) -> np.ndarray:
    """Return values scaled linearly to the range 0 to 1, or 0.5 if they are constant."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.full(values.shape, 0.5)


def to_rgb(image: np.ndarray) -> np.ndarray:
    """Return an image (C, H, W) as RGB (H, W, 3) for `imshow`. Unless C is 3, the result is the channels' gray mean."""
    if len(image) != 3:
        image = np.repeat(image.mean(axis=0, keepdims=True), 3, axis=0)
    return image.transpose(1, 2, 0)


def strip_axes(ax: Axes) -> Axes:
    """Give the axes of a picture a thin gray frame without ticks and grid, and return the axes."""
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    ax.spines[:].set(visible=True, color=LIGHT, linewidth=0.4)
    return ax


def mosaic(maps: np.ndarray, gap: int = 1) -> np.ndarray:
    """Return maps (R, C, rows, columns) as one 2-D picture with R rows of C maps, `gap` NaN cells apart."""
    R, C, rows, columns = maps.shape
    padded = np.pad(maps.astype(float), ((0, 0), (0, 0), (0, gap), (0, gap)), constant_values=np.nan)
    return padded.swapaxes(1, 2).reshape(R * (rows + gap), C * (columns + gap))[:-gap, :-gap]


def mosaic_centers(count: int, size: int, gap: int = 1) -> np.ndarray:
    """Return the centers (count,) of maps of `size` cells along one axis of a mosaic, in cells."""
    return np.arange(count) * (size + gap) + (size - 1) / 2


def color_scale(site: str, values: np.ndarray) -> dict[str, Any]:
    """Return cmap, vmin and vmax of `imshow`: from -1 to 1 for similarities, symmetric around 0 for a bias."""
    if site == "bias":
        most = float(np.nanmax(np.abs(values))) or 1.0
        return {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
    return {"cmap": "viridis", "vmin": -1.0, "vmax": 1.0}
