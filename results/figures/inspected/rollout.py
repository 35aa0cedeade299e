"""The figure of attention rollout from the output to the image: arXiv 2010.11929, Figures 6 and 14."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from results.figures.images import normalized, strip_axes, to_rgb
from results.figures.page import is_narrow
from results.figures.theme import LIGHT
from results.store.inspection_data import Inspection
from results.style import current_style

GAP = 0.06  # gap between images, as a fraction of an image's side


def draw_rollout(inside: Inspection, figure: Figure) -> list[str]:
    """Draw the attention rollout (arXiv 2005.00928) of several images. Return the figure's notes.

    Three rows show each image, the image darkened where attention is low, and the attention alone.
    """
    images, maps = inside.arrays["images"], inside.arrays["rollout"]
    classes = zip(inside.arrays["labels"].tolist(), inside.arrays["predicted"].tolist(), strict=True)
    shown = min(len(images), 4 if is_narrow(figure) else 8)
    figure.set_figheight((figure.get_figwidth() - 0.4) / shown * 3 + 0.3)
    rows = [strip_axes(ax) for ax in figure.subplots(3, 1)]
    for k, (label, predicted) in zip(range(shown), classes, strict=False):
        picture = to_rgb(images[k] / max(1, images.max()))  # pixel values of digits range up to 16
        left = k * (1 + GAP)
        for ax in rows:
            ax.add_patch(Rectangle((left, 0.0), 1.0, 1.0, fill=False, edgecolor=LIGHT, linewidth=0.4))
        at = (left, left + 1.0, 0.0, 1.0)
        rows[0].imshow(picture, interpolation="nearest", extent=at)
        rows[1].imshow(picture, interpolation="nearest", extent=at)
        rows[1].imshow(shade(maps[k]), interpolation="bilinear", extent=at)
        rows[2].imshow(normalized(maps[k]), cmap="viridis", vmin=0, vmax=1, interpolation="nearest", extent=at)
        words = f"class {label}" if label == predicted else f"class {label},\nread as {predicted}"
        rows[0].text(left + 0.5, 1.04, words, size=current_style().small, ha="center", va="bottom")
    for ax, name in zip(rows, ("input", "seen", "attention"), strict=True):
        ax.spines[:].set_visible(False)
        ax.set(xlim=(-0.01, shown * (1 + GAP) - GAP + 0.01), ylim=(-0.01, 1.01), ylabel=name)
    return [
        f"Attention rollout (half attention, half residual, heads averaged) from the {inside.facts['rollout_of']}; "
        "yellow and bright: most of the output, blue and black: least, each image by its own range"
    ]


def shade(share: np.ndarray) -> np.ndarray:
    """Return a black picture (rows, columns, 4), opaque where attention is low and clear if attention is constant."""
    light = normalized(share) if share.max() > share.min() else np.ones_like(share)
    return np.stack([np.zeros_like(light)] * 3 + [0.9 * (1 - light)], axis=-1)
