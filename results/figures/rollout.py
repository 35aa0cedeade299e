"""Which patches an output is made of: attention rollout over images, as in arXiv 2010.11929, Figures 6 and 14."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from results.figures.images import bare, colours
from results.figures.page import narrow
from results.figures.style import SMALL

if TYPE_CHECKING:
    from results.inspection import Inspection


def rollout(inside: Inspection, figure: Figure) -> list[str]:
    """Each image above itself, darkened where little of it reaches the output."""
    images, maps = inside.arrays["images"], inside.arrays["rollout"]
    labels, predicted = inside.arrays["labels"], inside.arrays["predicted"]
    shown = min(len(images), 4 if narrow(figure) else 8)
    figure.set_figheight((figure.get_figwidth() - 0.4) / shown * 2 + 0.3)
    axes = figure.subplots(2, shown, squeeze=False)
    for k in range(shown):
        picture = colours(images[k] / 255)
        for ax in axes[:, k]:
            bare(ax).imshow(picture, interpolation="nearest", extent=(0, 1, 0, 1))
        axes[1, k].imshow(shade(maps[k]), interpolation="bilinear", extent=(0, 1, 0, 1))
        axes[0, k].set_title(caption(int(labels[k]), int(predicted[k])), size=SMALL)
    axes[0, 0].set_ylabel("input")
    axes[1, 0].set_ylabel("attention")
    return [
        f"Attention rollout (half attention, half residual, heads averaged) from the {inside.facts['rollout_of']}; "
        "bright: most of the output, black: least, each image by its own range"
    ]


def shade(share: np.ndarray) -> np.ndarray:
    """Black (rows, columns, 4), the less opaque the larger the share."""
    low, high = share.min(), share.max()
    light = (share - low) / (high - low) if high > low else np.ones_like(share)
    return np.stack([np.zeros_like(light)] * 3 + [0.9 * (1 - light)], axis=-1)


def caption(label: int, predicted: int) -> str:
    return f"class {label}" if label == predicted else f"class {label},\nread as {predicted}"
