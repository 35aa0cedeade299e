"""Which patches an output is made of: attention rollout over images, as in arXiv 2010.11929, Figures 6 and 14."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.images import bare, colours, stretched
from results.figures.page import narrow
from results.figures.style import current

if TYPE_CHECKING:
    from results.inside import Inspection

WHOLE = (0.0, 1.0, 0.0, 1.0)  # images and maps of them, whatever their sizes, over each other


def rollout(inside: Inspection, figure: Figure) -> list[str]:
    """Each image; itself, darkened where little of it reaches the output; and what reaches it, alone."""
    images, maps = inside.arrays["images"], inside.arrays["rollout"]
    labels, predicted = inside.arrays["labels"], inside.arrays["predicted"]
    shown = min(len(images), 4 if narrow(figure) else 8)
    figure.set_figheight((figure.get_figwidth() - 0.4) / shown * 3 + 0.3)
    axes = figure.subplots(3, shown, squeeze=False)
    for k in range(shown):
        picture = colours(images[k] / max(1, images.max()))  # digits, for one, end at 16
        looked_at(picture, axes[0, k])
        looked_at(picture, axes[1, k], maps[k])
        attended(maps[k], axes[2, k])
        axes[0, k].set_title(caption(int(labels[k]), int(predicted[k])), size=current().small)
    for ax, name in zip(axes[:, 0], ("input", "seen", "attention"), strict=True):
        ax.set_ylabel(name)
    return [
        f"Attention rollout (half attention, half residual, heads averaged) from the {inside.facts['rollout_of']}; "
        "yellow and bright: most of the output, blue and black: least, each image by its own range"
    ]


def looked_at(picture: np.ndarray, ax: Axes, share: np.ndarray | None = None) -> Axes:
    """picture (H, W, 3) of 0 to 1; darkened where little of `share` (rows, columns) is."""
    bare(ax).imshow(picture, interpolation="nearest", extent=WHOLE)
    if share is not None:
        ax.imshow(shade(share), interpolation="bilinear", extent=WHOLE)
    return ax


def attended(share: np.ndarray, ax: Axes) -> Axes:
    """share (rows, columns), by its own range."""
    bare(ax).imshow(stretched(share), interpolation="nearest", cmap="viridis", vmin=0, vmax=1, extent=WHOLE)
    return ax


def shade(share: np.ndarray) -> np.ndarray:
    """Black (rows, columns, 4), the less opaque the larger the share."""
    light = stretched(share) if share.max() > share.min() else np.ones_like(share)
    return np.stack([np.zeros_like(light)] * 3 + [0.9 * (1 - light)], axis=-1)


def caption(label: int, predicted: int) -> str:
    return f"class {label}" if label == predicted else f"class {label},\nread as {predicted}"
