"""The figure of attention rollout from the output to the image: arXiv 2010.11929, Figures 6 and 14."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from results.figures.images import normalized, strip_axes, to_rgb
from results.figures.page import is_narrow
from results.figures.theme import LIGHT
from results.store.inspection_data import Inspection
from results.style import current

GAP = 0.06  # between images, as a fraction of their side


def rollout(inside: Inspection, figure: Figure) -> list[str]:
    """Draw the attention rollout (arXiv 2005.00928) of several images. Return the lines to write below.

    Three rows show each image, the image darkened where attention is low, and the attention alone.
    """
    images, maps = inside.arrays["images"], inside.arrays["rollout"]
    classes = zip(inside.arrays["labels"].tolist(), inside.arrays["predicted"].tolist(), strict=True)
    shown = min(len(images), 4 if is_narrow(figure) else 8)
    figure.set_figheight((figure.get_figwidth() - 0.4) / shown * 3 + 0.3)
    rows = figure.subplots(3, 1)
    for k, (label, predicted) in zip(range(shown), classes, strict=False):
        picture = to_rgb(images[k] / max(1, images.max()))  # pixels of digits go up to 16
        left = k * (1 + GAP)
        draw_image(picture, rows[0], left=left)
        draw_image(picture, rows[1], maps[k], left)
        draw_attention(maps[k], rows[2], left)
        words = f"class {label}" if label == predicted else f"class {label},\nread as {predicted}"
        rows[0].text(left + 0.5, 1.04, words, size=current().small, ha="center", va="bottom")
    for ax, name in zip(rows, ("input", "seen", "attention"), strict=True):
        ax.set(xlim=(-0.01, shown * (1 + GAP) - GAP + 0.01), ylim=(-0.01, 1.01), ylabel=name)
    return [
        f"Attention rollout (half attention, half residual, heads averaged) from the {inside.facts['rollout_of']}; "
        "yellow and bright: most of the output, blue and black: least, each image by its own range"
    ]


def draw_image(picture: np.ndarray, ax: Axes, share: np.ndarray | None = None, left: float = 0.0) -> Axes:
    """Draw a picture (H, W, 3) one unit wide, starting at x = `left`.

    share: attention (rows, columns). The picture is darkened where attention is low.
    """
    framed_axes(ax, left).imshow(picture, interpolation="nearest", extent=unit_extent(left))
    if share is not None:
        light = normalized(share) if share.max() > share.min() else np.ones_like(share)
        black = np.stack([np.zeros_like(light)] * 3 + [0.9 * (1 - light)], axis=-1)  # (rows, columns, 4)
        ax.imshow(black, interpolation="bilinear", extent=unit_extent(left))
    return ax


def draw_attention(share: np.ndarray, ax: Axes, left: float = 0.0) -> Axes:
    """Draw attention (rows, columns) one unit wide from x = `left`, stretched to the whole color scale."""
    framed_axes(ax, left).imshow(
        normalized(share), cmap="viridis", vmin=0, vmax=1, interpolation="nearest", extent=unit_extent(left)
    )
    return ax


def unit_extent(left: float) -> tuple[float, float, float, float]:
    return left, left + 1.0, 0.0, 1.0


def framed_axes(ax: Axes, left: float) -> Axes:
    """Prepare `ax` for a picture one unit wide, with a thin frame around it."""
    strip_axes(ax)
    ax.spines[:].set_visible(False)
    ax.add_patch(Rectangle((left, 0.0), 1.0, 1.0, fill=False, edgecolor=LIGHT, linewidth=0.4))
    return ax
