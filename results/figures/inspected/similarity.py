"""What a position embedding says of any two patches, as a grid of grids: arXiv 2010.11929, Figures 7 and 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.images import centres, mosaic, scale_of, some
from results.figures.page import narrow, wrapped
from results.figures.theme import current

if TYPE_CHECKING:
    from results.store.inspection_data import Inspection

TICKS = 8
LABELS = {"tokens": "cosine similarity", "rotate": "similarity of query and key", "bias": "bias of the logits"}


def pairs(inside: Inspection, figure: Figure) -> list[str]:
    """One panel a site: the map at (row, column) is of that patch with all others."""
    rows, columns = inside.facts["grid"]
    sites = [site for site in inside.facts["sites"] if site["site"]]
    figure.set_figheight(((figure.get_figwidth() - 1.3) * rows / columns + 0.45) * len(sites))
    for ax, site in zip(np.atleast_1d(figure.subplots(len(sites), 1)), sites, strict=True):
        grid_of_grids(related(inside, site["site"]), site["site"], ax)
        bar([ax], site["site"])
    return [noted(inside, site) for site in sites]


def noted(inside: Inspection, site: Mapping[str, Any]) -> str:
    """What the maps of a site are, and what they are the mean of."""
    averaged = inside.arrays[f"{site['site']}_centre"].shape[:2]
    mean = f"; mean over {averaged[0]} layers and {averaged[1]} heads" if averaged != (1, 1) else ""
    rows, columns = inside.facts["grid"]
    return f"{site['note']}{mean}. Each small map is one patch with all {rows * columns}"


def related(inside: Inspection, site: str) -> np.ndarray:
    """Every patch with every other (rows, columns, rows, columns)."""
    return np.asarray(inside.arrays[f"{site}_pairs"]).reshape(*inside.facts["grid"], *inside.facts["grid"])


def in_common(insides: Sequence[Inspection]) -> list[str]:
    """The sites at which all of them have something to show."""
    found = [[site["site"] for site in inside.facts["sites"] if site["site"]] for inside in insides]
    return [site for site in found[0] if all(site in other for other in found)]


def beside(insides: Sequence[Inspection], names: Sequence[str], figure: Figure) -> list[str]:
    """A panel a trial, on one scale, a row for each site that all of them have; below each other in a column."""
    sites, count, stacked = in_common(insides), len(insides), narrow(figure)
    across = 1 if stacked else count
    side = (figure.get_figwidth() - 1.3) / across
    figure.set_figheight((side + 0.6) * len(sites) * (count if stacked else 1))
    axes = figure.subplots(count * len(sites) // across, across, squeeze=False).reshape(len(sites), count)
    for row, site in zip(axes, sites, strict=True):
        maps = [related(inside, site) for inside in insides]
        scale = scale_of(site, np.concatenate([one.ravel() for one in maps]))
        for ax, one, name in zip(row, maps, names, strict=True):
            grid_of_grids(one, site, ax, scale)
            ax.set_title(wrapped(name, side, current().text), loc="left")
        bar(list(row), site)
    described = {site["site"]: noted(insides[0], site) for site in insides[0].facts["sites"]}
    return [described[site] for site in sites]


def grid_of_grids(related: np.ndarray, site: str, ax: Axes, scale: Mapping[str, Any] | None = None) -> Axes:
    """related (rows, columns, rows, columns): at its place in the grid each patch with all others.

    site: tokens, rotate or bias; scale: colours as of `scale_of`, if not those of this map alone.
    """
    rows, columns = related.shape[:2]
    gap = max(1, round(max(rows, columns) / 8))
    ax.imshow(mosaic(related, gap), interpolation="nearest", **(scale or scale_of(site, related)))
    tick(ax.xaxis, columns, gap)
    tick(ax.yaxis, rows, gap)
    ax.set_xlabel("input patch column")
    ax.set_ylabel("input patch row")
    frameless(ax)
    return ax


def tick(axis: Any, count: int, gap: int) -> None:
    """Patches are numbered from 1, as in the paper."""
    places = centres(count, count, gap)
    shown = some(count, TICKS)
    axis.set_ticks([places[k] for k in shown], [str(k + 1) for k in shown])


def frameless(ax: Axes) -> None:
    ax.grid(visible=False)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


def bar(axes: list[Axes], site: str) -> None:
    """The colours' meaning, at the right of panels that share them."""
    figure = axes[0].get_figure()
    assert figure is not None
    scale = figure.colorbar(axes[0].images[0], ax=axes, label=LABELS[site], fraction=0.05, pad=0.02)
    scale.outline.set_visible(False)


def centre(inside: Inspection, figure: Figure) -> list[str]:
    """The middle patch with all others, a map for every layer (down) and head (across), all on one scale."""
    rows, columns = inside.facts["grid"]
    notes = []
    chosen = [site for site in inside.facts["sites"] if inside.arrays[f"{site['site']}_centre"].shape[:2] != (1, 1)]
    shapes = [inside.arrays[f"{site['site']}_centre"].shape for site in chosen]
    width = figure.get_figwidth() - 1.0
    cell = [min(width / shape[1], 1.0) for shape in shapes]
    figure.set_figheight(sum(side * rows / columns * shape[0] + 0.5 for side, shape in zip(cell, shapes, strict=True)))
    panels = np.atleast_1d(figure.subplots(len(chosen), 1))
    for ax, site, (count, heads, _) in zip(panels, chosen, shapes, strict=True):
        rows_of = inside.arrays[f"{site['site']}_centre"].reshape(count, heads, rows, columns)
        by_layer_and_head(rows_of, site["site"], ax)
        bar([ax], site["site"])
        notes.append(f"{site['note']}: the patch at row {rows // 2 + 1}, column {columns // 2 + 1} with all others")
    return notes


def by_layer_and_head(related: np.ndarray, site: str, ax: Axes) -> Axes:
    """related (layers, heads, rows, columns): one patch with all others, all on one scale."""
    count, heads, rows, columns = related.shape
    ax.imshow(mosaic(related), interpolation="nearest", **scale_of(site, related))
    ax.set_xticks(centres(heads, columns), [str(k + 1) for k in range(heads)])
    ax.set_yticks(centres(count, rows), [str(k + 1) for k in range(count)])
    ax.set_xlabel("head" if heads > 1 else "all heads alike")
    ax.set_ylabel("layer" if count > 1 else "all layers alike")
    frameless(ax)
    return ax
