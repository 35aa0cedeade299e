"""Show arrays as pictures: values as colors, small maps side by side."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from results.figures.theme import LIGHT


def normalized(values: np.ndarray) -> np.ndarray:
    """Scale values to the range 0 to 1; constant values become 0.5."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.full(values.shape, 0.5)


def to_rgb(image: np.ndarray) -> np.ndarray:
    """Convert an image (C, H, W) in 0 to 1 to (H, W, 3), gray unless it has three channels."""
    if len(image) != 3:
        image = np.repeat(image.mean(axis=0, keepdims=True), 3, axis=0)
    return image.transpose(1, 2, 0)


def strip_axes(ax: Axes) -> Axes:
    """Remove ticks and grid from axes that hold a picture."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.spines[:].set(visible=True, color=LIGHT, linewidth=0.4)
    return ax


def mosaic(maps: np.ndarray, gap: int = 1) -> np.ndarray:
    """Arrange maps (R, C, rows, columns) in one picture, with `gap` NaN cells between them."""
    R, C, rows, columns = maps.shape
    padded = np.pad(maps.astype(float), ((0, 0), (0, 0), (0, gap), (0, gap)), constant_values=np.nan)
    return padded.swapaxes(1, 2).reshape(R * (rows + gap), C * (columns + gap))[:-gap, :-gap]


def mosaic_centers(count: int, size: int, gap: int = 1) -> np.ndarray:
    """Return the centers (count,) of the maps along one side of a mosaic."""
    return np.arange(count) * (size + gap) + (size - 1) / 2


def color_scale(site: str, values: np.ndarray) -> dict[str, Any]:
    """Return the color scale of a site: -1 to 1 for similarities, symmetric around 0 for a bias."""
    if site == "bias":
        most = float(np.nanmax(np.abs(values))) or 1.0
        return {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
    return {"cmap": "viridis", "vmin": -1.0, "vmax": 1.0}
