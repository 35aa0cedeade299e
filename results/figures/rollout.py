"""Which patches an output is made of: attention rollout over images, as in arXiv 2010.11929, Figures 6 and 14."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from results.figures.images import bare, colours, stretched
from results.figures.page import narrow
from results.figures.style import current

if TYPE_CHECKING:
    from results.inside import Inspection


def rollout(inside: Inspection, figure: Figure) -> list[str]:
    """Each image; itself, darkened where little of it reaches the output; and what reaches it, alone."""
    images, maps = inside.arrays["images"], inside.arrays["rollout"]
    labels, predicted = inside.arrays["labels"], inside.arrays["predicted"]
    shown = min(len(images), 4 if narrow(figure) else 8)
    figure.set_figheight((figure.get_figwidth() - 0.4) / shown * 3 + 0.3)
    axes = figure.subplots(3, shown, squeeze=False)
    whole = {"extent": (0, 1, 0, 1)}
    for k in range(shown):
        picture = colours(images[k] / max(1, images.max()))  # digits, for one, end at 16
        for ax in axes[:, k]:
            bare(ax)
        axes[0, k].imshow(picture, interpolation="nearest", **whole)
        axes[1, k].imshow(picture, interpolation="nearest", **whole)
        axes[1, k].imshow(shade(maps[k]), interpolation="bilinear", **whole)
        axes[2, k].imshow(stretched(maps[k]), interpolation="nearest", cmap="viridis", vmin=0, vmax=1, **whole)
        axes[0, k].set_title(caption(int(labels[k]), int(predicted[k])), size=current().small)
    for ax, name in zip(axes[:, 0], ("input", "seen", "attention"), strict=True):
        ax.set_ylabel(name)
    return [
        f"Attention rollout (half attention, half residual, heads averaged) from the {inside.facts['rollout_of']}; "
        "yellow and bright: most of the output, blue and black: least, each image by its own range"
    ]


def shade(share: np.ndarray) -> np.ndarray:
    """Black (rows, columns, 4), the less opaque the larger the share."""
    light = stretched(share) if share.max() > share.min() else np.ones_like(share)
    return np.stack([np.zeros_like(light)] * 3 + [0.9 * (1 - light)], axis=-1)


def caption(label: int, predicted: int) -> str:
    return f"class {label}" if label == predicted else f"class {label},\nread as {predicted}"
