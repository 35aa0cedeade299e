"""Figures of a position embedding's similarity between patches: arXiv 2010.11929, Figures 7 and 10.

A map shows the similarity or bias of one patch with all patches. A site is where the model uses the embedding: tokens
(added to tokens), rotate (rotation of queries and keys) or bias (added to attention logits).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from results.figures.page import is_narrow, wrap_text
from results.store.inspection_data import Inspection
from results.style import current_style
from results.units import amount_text

TICKS = 8
LABELS = {"tokens": "cosine similarity", "rotate": "similarity of query and key", "bias": "bias of the logits"}


def notes_by_site(inside: Inspection) -> dict[str, str]:
    """Return site -> text that says what its maps show, or {} if the model has no map of its positions."""
    return {site["site"]: site["note"] for site in inside.facts["sites"] if site["site"]}


def middle_maps(inside: Inspection, site: str) -> np.ndarray:
    """Return the middle patch's maps (layers, heads, patches) at a site. An axis of equal maps may have length 1."""
    return np.asarray(inside.arrays[f"{site}_centre"])


def sites_with_several_maps(inside: Inspection) -> list[str]:
    """Return the sites that have several maps of the middle patch, by layer or head."""
    return [site for site in notes_by_site(inside) if middle_maps(inside, site).shape[:2] != (1, 1)]


def draw_pairs(inside: Inspection, figure: Figure) -> list[str]:
    """Draw a panel per site with the map of each patch at its place in the grid. Return the figure's notes."""
    rows, columns = inside.facts["grid"]
    sites = list(notes_by_site(inside))
    figure.set_figheight(((figure.get_figwidth() - 1.3) * rows / columns + 0.45) * len(sites))
    for ax, site in zip(np.atleast_1d(figure.subplots(len(sites), 1)), sites, strict=True):
        draw_pair_maps(pair_map(inside, site), site, ax)
        add_colorbar([ax], site)
    return [site_note(inside, site) for site in sites]


def site_note(inside: Inspection, site: str) -> str:
    layers, heads = middle_maps(inside, site).shape[:2]
    over = f"; mean over {amount_text(layers, 'layer')} and {amount_text(heads, 'head')}"
    mean = over if (layers, heads) != (1, 1) else ""
    rows, columns = inside.facts["grid"]
    return f"{notes_by_site(inside)[site]}{mean}. Each small map is one patch with all {rows * columns}"


def pair_map(inside: Inspection, site: str) -> np.ndarray:
    """Return the maps of all patches at a site (rows, columns, rows, columns): a patch's position, then its map."""
    return np.asarray(inside.arrays[f"{site}_pairs"]).reshape(*inside.facts["grid"], *inside.facts["grid"])


def comparable_indices(insides: Sequence[Inspection]) -> list[int]:
    """Return the indices of the inspections that have the most frequent site."""
    counts = Counter(site for inside in insides for site in notes_by_site(inside))
    most = max(counts, key=lambda site: counts[site], default="")
    return [place for place, inside in enumerate(insides) if most in notes_by_site(inside)]


def incomparable_text(inside: Inspection) -> str:
    site = next(iter(notes_by_site(inside)), None)
    return f"its map is of another kind: {LABELS[site]}" if site else "no map of its position"


def draw_side_by_side(insides: Sequence[Inspection], names: Sequence[str], figure: Figure) -> list[str]:
    """Draw a panel per trial for each site that all trials have. Return the figure's notes.

    All trials share the color scale of a site. Panels are titled with `names`.
    """
    sites = [site for site in notes_by_site(insides[0]) if all(site in notes_by_site(other) for other in insides)]
    count = len(insides)
    stacked = is_narrow(figure)
    across = 1 if stacked else count
    side = (figure.get_figwidth() - 1.3) / across
    figure.set_figheight((side + 0.6) * len(sites) * (count if stacked else 1))
    axes = figure.subplots(count * len(sites) // across, across, squeeze=False).reshape(len(sites), count)
    for row, site in zip(axes, sites, strict=True):
        maps = [pair_map(inside, site) for inside in insides]
        scale = color_scale(site, np.concatenate([pairs.ravel() for pairs in maps]))
        for ax, pairs, name in zip(row, maps, names, strict=True):
            draw_pair_maps(pairs, site, ax, scale)
            ax.set_title(wrap_text(name, side, current_style().text), loc="left")
        add_colorbar(list(row), site)
    return [site_note(insides[0], site) for site in sites]


def draw_pair_maps(related: np.ndarray, site: str, ax: Axes, scale: Mapping[str, Any] | None = None) -> None:
    """Draw the maps (rows, columns, rows, columns) of patches at their places, by default on their own color scale."""
    rows, columns = related.shape[:2]
    gap = max(1, round(max(rows, columns) / 8))
    ax.imshow(mosaic(related, gap), interpolation="nearest", **(scale or color_scale(site, related)))
    label_patches(ax.xaxis, columns, gap)
    label_patches(ax.yaxis, rows, gap)
    ax.set(xlabel="input patch column", ylabel="input patch row")
    remove_frame(ax)


def label_patches(axis: Axis, count: int, gap: int) -> None:
    """Label at most TICKS patches on an axis, counted from 1 as in arXiv 2010.11929. gap: cells between maps."""
    places = mosaic_centers(count, count, gap)
    shown = range(0, count, -(-count // TICKS))
    axis.set_ticks([places[k] for k in shown], [str(k + 1) for k in shown])


def remove_frame(ax: Axes) -> None:
    ax.grid(visible=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def add_colorbar(axes: list[Axes], site: str) -> None:
    scale = axes[0].figure.colorbar(axes[0].images[0], ax=axes, label=LABELS[site], fraction=0.05, pad=0.02)
    scale.outline.set_visible(False)


def draw_middle_patch(inside: Inspection, figure: Figure) -> list[str]:
    """Draw each site's maps of the middle patch by layer (rows) and head (columns). Return the figure's notes."""
    rows, columns = inside.facts["grid"]
    maps = {site: middle_maps(inside, site) for site in sites_with_several_maps(inside)}
    width = figure.get_figwidth() - 1.0
    heights = [min(width / layers.shape[1], 1.0) * rows / columns * layers.shape[0] + 0.5 for layers in maps.values()]
    figure.set_figheight(sum(heights))
    for ax, (site, layers) in zip(np.atleast_1d(figure.subplots(len(maps), 1)), maps.items(), strict=True):
        count, heads, _ = layers.shape
        related = layers.reshape(count, heads, rows, columns)
        ax.imshow(mosaic(related), interpolation="nearest", **color_scale(site, related))
        ax.set_xticks(mosaic_centers(heads, columns), [str(k + 1) for k in range(heads)])
        ax.set_yticks(mosaic_centers(count, rows), [str(k + 1) for k in range(count)])
        ax.set(xlabel="head" if heads > 1 else "all heads alike", ylabel="layer" if count > 1 else "all layers alike")
        remove_frame(ax)
        add_colorbar([ax], site)
    place = f"the patch at row {rows // 2 + 1}, column {columns // 2 + 1} with all others"
    return [f"{notes_by_site(inside)[site]}: {place}" for site in maps]


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
