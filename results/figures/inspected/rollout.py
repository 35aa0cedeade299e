"""Which patches an output is made of: attention rollout over images, as in arXiv 2010.11929, Figures 6 and 14."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from results.figures.images import bare, colours, stretched
from results.figures.page import narrow
from results.figures.theme import LIGHT, current

if TYPE_CHECKING:
    from results.store.inspection_data import Inspection

GAP = 0.06  # between images, of their sides


def rollout(inside: Inspection, figure: Figure) -> list[str]:
    """Each image; itself, darkened where little of it reaches the output; and what reaches it, alone."""
    images, maps = inside.arrays["images"], inside.arrays["rollout"]
    labels, predicted = inside.arrays["labels"], inside.arrays["predicted"]
    shown = min(len(images), 4 if narrow(figure) else 8)
    figure.set_figheight((figure.get_figwidth() - 0.4) / shown * 3 + 0.3)
    rows = figure.subplots(3, 1)
    for k in range(shown):
        picture = colours(images[k] / max(1, images.max()))  # digits, for one, end at 16
        left = k * (1 + GAP)
        looked_at(picture, rows[0], left=left)
        looked_at(picture, rows[1], maps[k], left)
        attended(maps[k], rows[2], left)
        words = caption(int(labels[k]), int(predicted[k]))
        rows[0].text(left + 0.5, 1.04, words, size=current().small, ha="center", va="bottom")
    for ax, name in zip(rows, ("input", "seen", "attention"), strict=True):
        ax.set(xlim=(-0.01, shown * (1 + GAP) - GAP + 0.01), ylim=(-0.01, 1.01), ylabel=name)
    return [
        f"Attention rollout (half attention, half residual, heads averaged) from the {inside.facts['rollout_of']}; "
        "yellow and bright: most of the output, blue and black: least, each image by its own range"
    ]


def looked_at(picture: np.ndarray, ax: Axes, share: np.ndarray | None = None, left: float = 0.0) -> Axes:
    """picture (H, W, 3) of 0 to 1, a unit wide from `left` on; darkened where little of `share` (rows, columns) is."""
    framed(ax, left).imshow(picture, interpolation="nearest", extent=square(left))
    if share is not None:
        ax.imshow(shade(share), interpolation="bilinear", extent=square(left))
    return ax


def attended(share: np.ndarray, ax: Axes, left: float = 0.0) -> Axes:
    """share (rows, columns), by its own range, a unit wide from `left` on."""
    there: dict[str, Any] = {"interpolation": "nearest", "extent": square(left)}
    framed(ax, left).imshow(stretched(share), cmap="viridis", vmin=0, vmax=1, **there)
    return ax


def square(left: float) -> tuple[float, float, float, float]:
    """Where images and maps of them, whatever their sizes, lie over each other."""
    return left, left + 1.0, 0.0, 1.0


def framed(ax: Axes, left: float) -> Axes:
    """Axes that hold nothing but pictures, each in a thin line."""
    bare(ax)
    ax.spines[:].set_visible(False)
    ax.add_patch(Rectangle((left, 0.0), 1.0, 1.0, fill=False, edgecolor=LIGHT, linewidth=0.4))
    return ax


def shade(share: np.ndarray) -> np.ndarray:
    """Black (rows, columns, 4), the less opaque the larger the share."""
    light = stretched(share) if share.max() > share.min() else np.ones_like(share)
    return np.stack([np.zeros_like(light)] * 3 + [0.9 * (1 - light)], axis=-1)


def caption(label: int, predicted: int) -> str:
    return f"class {label}" if label == predicted else f"class {label},\nread as {predicted}"
