"""What a position embedding says of any two patches, as a grid of grids: arXiv 2010.11929, Figures 7 and 10."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.images import centres, mosaic, scale_of, some

if TYPE_CHECKING:
    from results.inside import Inspection

TICKS = 8
LABELS = {"tokens": "cosine similarity", "rotate": "similarity of query and key", "bias": "bias of the logits"}


def pairs(inside: Inspection, figure: Figure) -> list[str]:
    """One panel a site: the map at (row, column) is of that patch with all others."""
    rows, columns = inside.facts["grid"]
    sites = [site for site in inside.facts["sites"] if site["site"]]
    figure.set_figheight(((figure.get_figwidth() - 1.3) * rows / columns + 0.45) * len(sites))
    notes = []
    for ax, site in zip(np.atleast_1d(figure.subplots(len(sites), 1)), sites, strict=True):
        related = inside.arrays[f"{site['site']}_pairs"].reshape(rows, columns, rows, columns)
        grid_of_grids(related, site["site"], ax, figure)
        averaged = inside.arrays[f"{site['site']}_centre"].shape[:2]
        mean = f"; mean over {averaged[0]} layers and {averaged[1]} heads" if averaged != (1, 1) else ""
        notes.append(f"{site['note']}{mean}. Each small map is one patch with all {rows * columns}")
    return notes


def grid_of_grids(related: np.ndarray, site: str, ax: Axes, figure: Figure) -> Axes:
    """related (rows, columns, rows, columns)."""
    rows, columns = related.shape[:2]
    gap = max(1, round(max(rows, columns) / 8))
    image = ax.imshow(mosaic(related, gap), interpolation="nearest", **scale_of(site, related))
    tick(ax.xaxis, columns, gap)
    tick(ax.yaxis, rows, gap)
    ax.set_xlabel("input patch column")
    ax.set_ylabel("input patch row")
    frameless(ax)
    bar(figure, image, ax, site)
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


def bar(figure: Figure, image: Any, ax: Any, site: str) -> None:
    """The colours' meaning, at the right."""
    scale = figure.colorbar(image, ax=ax, label=LABELS[site], fraction=0.05, pad=0.02)
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
        related = inside.arrays[f"{site['site']}_centre"].reshape(count, heads, rows, columns)
        image = ax.imshow(mosaic(related), interpolation="nearest", **scale_of(site["site"], related))
        ax.set_xticks(centres(heads, columns), [str(k + 1) for k in range(heads)])
        ax.set_yticks(centres(count, rows), [str(k + 1) for k in range(count)])
        ax.set_xlabel("head" if heads > 1 else "all heads alike")
        ax.set_ylabel("layer" if count > 1 else "all layers alike")
        frameless(ax)
        bar(figure, image, ax, site["site"])
        notes.append(f"{site['note']}: the patch at row {rows // 2 + 1}, column {columns // 2 + 1} with all others")
    return notes
