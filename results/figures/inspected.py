"""The figures of one trained model's filters, attention distances and attention rollout (arXiv 2010.11929)."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from results.figures.page import draw_legend, is_narrow
from results.figures.theme import GREY, LIGHT, MARKERS
from results.store.inspection_data import Inspection
from results.style import current_style

COLUMNS = 8  # filters in a row of the picture
MOST = 16  # filters in the picture
SIDE = 48  # pixels, the side of a filter in the picture
GAP = 4  # pixels between filters
PAPER = 0.85  # gray between the filters
FRAME = ((GAP // 2, GAP // 2), (GAP // 2, GAP // 2), (0, 0))
APART = 0.06  # gap between images of the rollout, as a fraction of an image's side


def draw_filters(inside: Inspection, figure: Figure) -> list[str]:
    """Draw the first principal components of the embedding filters (arXiv 2010.11929, Figure 7, left).

    The figure's height is fitted. Each component is scaled to 0 to 1, over all of its channels together. Returns the
    figure's notes.
    """
    components = inside.arrays["filters"][:MOST]
    share = inside.arrays["filters_share"][:MOST]
    tiles = tile_pictures([to_rgb(normalized(component)) for component in components])
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
    zoom = max(1, SIDE // max(tiles[0].shape[:2]))
    columns = min(COLUMNS, len(tiles))
    framed = [np.pad(tile.repeat(zoom, 0).repeat(zoom, 1), FRAME, constant_values=PAPER) for tile in tiles]
    framed += [np.full_like(framed[0], PAPER)] * (-len(tiles) % columns)
    rows = [np.hstack(framed[k : k + columns]) for k in range(0, len(framed), columns)]
    return np.pad(np.vstack(rows), FRAME, constant_values=PAPER)


def draw_distance(inside: Inspection, figure: Figure) -> list[str]:
    """Draw the mean attention distance of each layer and head (arXiv 2010.11929, Figures 7 and 11).

    Returns the figure's notes.
    """
    distances = inside.arrays["distance"]  # (layers, heads), pixels
    uniform = inside.facts["uniform_distance"]
    (depth, heads), palette = distances.shape, current_style().palette
    figure.set_figheight(2.4)
    ax = figure.subplots()
    for head, values in enumerate(distances.T):
        look: dict[str, Any] = {"color": palette[0], "marker": "o", "alpha": 0.5, "label": None if head else "a head"}
        if heads <= len(palette):
            marker = MARKERS[head % len(MARKERS)]
            look = {"color": palette[head], "marker": marker, "alpha": 0.85, "label": f"head {head + 1}"}
        ax.plot(range(1, depth + 1), values, linestyle="", markeredgewidth=0, **look)
    ax.axhline(uniform, color=GREY, linestyle="--", linewidth=0.9, label="uniform attention")
    ax.set(xlim=(0.5, depth + 0.5), ylim=(0, 1.08 * max(uniform, float(distances.max()))))
    ax.xaxis.set_major_locator(MaxNLocator(min(depth, 12), integer=True, min_n_ticks=1))
    ax.set(xlabel="network depth (layer)", ylabel="mean attention distance (pixels)")
    draw_legend(ax)
    every = "" if heads <= len(palette) else f", {heads} heads a layer"
    return [
        f"Mean over {inside.facts['images']} test images and all patches{every}; class token and registers left out, "
        "the rest of each row scaled to 1"
    ]


def draw_rollout(inside: Inspection, figure: Figure) -> list[str]:
    """Draw the attention rollout (arXiv 2005.00928) of several images, as in arXiv 2010.11929, Figures 6 and 14.

    Three rows show each image, the image darkened where attention is low, and the attention alone. Returns the
    figure's notes.
    """
    images = inside.arrays["images"]
    maps = inside.arrays["rollout"]
    classes = zip(inside.arrays["labels"].tolist(), inside.arrays["predicted"].tolist(), strict=True)
    shown = min(len(images), 4 if is_narrow(figure) else 8)
    figure.set_figheight((figure.get_figwidth() - 0.4) / shown * 3 + 0.3)
    rows = [strip_axes(ax) for ax in figure.subplots(3, 1)]
    for k, (label, predicted) in zip(range(shown), classes, strict=False):
        picture = to_rgb(images[k] / max(1, images.max()))  # pixel values of digits range up to 16
        left = k * (1 + APART)
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
        ax.set(xlim=(-0.01, shown * (1 + APART) - APART + 0.01), ylim=(-0.01, 1.01), ylabel=name)
    return [
        f"Attention rollout (half attention, half residual, heads averaged) from the {inside.facts['rollout_of']}; "
        "yellow and bright: most of the output, blue and black: least, each image by its own range"
    ]


def shade(share: np.ndarray) -> np.ndarray:
    """Return a black picture (rows, columns, 4), opaque where attention is low and clear if attention is constant."""
    light = normalized(share) if share.max() > share.min() else np.ones_like(share)
    return np.stack([np.zeros_like(light)] * 3 + [0.9 * (1 - light)], axis=-1)


def normalized(values: np.ndarray) -> np.ndarray:
    """Return values scaled linearly to the range 0 to 1, or 0.5 if they are constant."""
    low = values.min()
    high = values.max()
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
