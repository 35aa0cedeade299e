"""The figures of an inspected trial: filters, attention distances, attention rollout and positions; and its layers.

A map of a position embedding shows the similarity or bias of one patch with all patches (arXiv 2010.11929, Figures 7
and 10). A site is where the model uses the embedding: tokens (added to tokens), rotate (rotation of queries and keys)
or bias (added to attention logits).
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from results import store, units
from results.figures.page import (
    GREY,
    LIGHT,
    MARKERS,
    apply_style,
    compose,
    draw_legend,
    file_content,
    is_narrow,
    wrap_text,
)
from results.store.eval_files import Inspection
from results.style import COLUMN, current_style
from results.tables.formats import Cell, Grid

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
    what = "First component"
    if len(components) > 1:
        what = f"First {len(components)} principal components"
    return [
        f"{what} of {inside.facts['filters_of']}, largest first, with {share.sum():.0%} of its variance "
        f"({share[0]:.0%} in the first); each stretched to its own range, sign arbitrary"
    ]


def tile_pictures(tiles: list[np.ndarray]) -> np.ndarray:
    """Return `tiles` (H, W, 3) as one picture with at most COLUMNS columns. Small tiles are enlarged."""
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
    depth, heads = distances.shape
    palette = current_style().palette
    every = ""
    figure.set_figheight(2.4)
    ax = figure.subplots()
    layers = range(1, depth + 1)
    dots: dict[str, Any] = {"linestyle": "", "markeredgewidth": 0}
    if heads > len(palette):
        every = f", {heads} heads a layer"
        ax.plot(
            layers, distances, color=palette[0], marker="o", alpha=0.5, label=["a head", *[None] * (heads - 1)], **dots
        )
    else:
        for head, values in enumerate(distances.T):
            marker = MARKERS[head % len(MARKERS)]
            ax.plot(layers, values, color=palette[head], marker=marker, alpha=0.85, label=f"head {head + 1}", **dots)
    ax.axhline(uniform, color=GREY, linestyle="--", linewidth=0.9, label="uniform attention")
    ax.set(xlim=(0.5, depth + 0.5), ylim=(0, 1.08 * max(uniform, float(distances.max()))))
    ax.xaxis.set_major_locator(MaxNLocator(min(depth, 12), integer=True, min_n_ticks=1))
    ax.set(xlabel="network depth (layer)", ylabel="mean attention distance (pixels)")
    draw_legend(ax)
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
    labels = inside.arrays["labels"]
    predicted = inside.arrays.get("predicted", labels)  # missing if the objective predicts no classes
    most = 4 if is_narrow(figure) else 8
    images = images[:most]
    shown = len(images)
    figure.set_figheight((figure.get_figwidth() - 0.4) / shown * 3 + 0.3)
    rows = [strip_axes(ax) for ax in figure.subplots(3, 1)]
    for k in range(shown):
        picture = to_rgb(images[k] / max(1, images.max()))  # pixel values of digits range up to 16
        left = k * (1 + APART)
        for ax in rows:
            ax.add_patch(Rectangle((left, 0.0), 1.0, 1.0, fill=False, edgecolor=LIGHT, linewidth=0.4))
        at = (left, left + 1.0, 0.0, 1.0)
        rows[0].imshow(picture, interpolation="nearest", extent=at)
        rows[1].imshow(picture, interpolation="nearest", extent=at)
        shade = np.zeros((*maps[k].shape, 4))  # black, opaque where attention is low
        shade[..., 3] = 0.9 * (1 - normalized(maps[k], constant=1.0))
        rows[1].imshow(shade, interpolation="bilinear", extent=at)
        rows[2].imshow(normalized(maps[k]), cmap="viridis", vmin=0, vmax=1, interpolation="nearest", extent=at)
        words = f"class {labels[k]}"
        if predicted[k] != labels[k]:
            words += f",\nread as {predicted[k]}"
        rows[0].text(left + 0.5, 1.04, words, size=current_style().small, ha="center", va="bottom")
    for ax, name in zip(rows, ("input", "seen", "attention"), strict=True):
        ax.spines[:].set_visible(False)
        ax.set(xlim=(-0.01, shown * (1 + APART) - APART + 0.01), ylim=(-0.01, 1.01), ylabel=name)
    return [
        f"Attention rollout (half attention, half residual, heads averaged) from the {inside.facts['rollout_of']}; "
        "yellow and bright: most of the output, blue and black: least, each image by its own range"
    ]


def normalized(values: np.ndarray, constant: float = 0.5) -> np.ndarray:
    """Return values scaled linearly to the range 0 to 1, or `constant` if they are all equal."""
    low = values.min()
    high = values.max()
    return (values - low) / (high - low) if high > low else np.full(values.shape, constant)


def to_rgb(image: np.ndarray) -> np.ndarray:
    """Return an image (C, H, W) as RGB (H, W, 3), gray unless C is 3."""
    if len(image) != 3:
        image = np.repeat(image.mean(axis=0, keepdims=True), 3, axis=0)
    return image.transpose(1, 2, 0)


def strip_axes(ax: Axes) -> Axes:
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
    ax.spines[:].set(visible=True, color=LIGHT, linewidth=0.4)
    return ax


TICKS = 8
LABELS = {"tokens": "cosine similarity", "rotate": "similarity of query and key", "bias": "bias of the logits"}


def notes_by_site(inside: Inspection) -> dict[str, str]:
    return {site["site"]: site["note"] for site in inside.facts["sites"] if site["site"]}


def middle_maps(inside: Inspection, site: str) -> np.ndarray:
    """Return the middle patch's maps (layers, heads, patches) at a site. Equal maps may be one."""
    return np.asarray(inside.arrays[f"{site}_centre"])


def sites_with_several_maps(inside: Inspection) -> list[str]:
    return [site for site in notes_by_site(inside) if middle_maps(inside, site).shape[:2] != (1, 1)]


def draw_pairs(inside: Inspection, figure: Figure) -> list[str]:
    """Draw a panel per site with the map of each patch at its place in the grid. Return the figure's notes."""
    rows, columns = inside.facts["grid"]
    sites = list(notes_by_site(inside))
    figure.set_figheight(((figure.get_figwidth() - 1.3) * rows / columns + 0.45) * len(sites))
    panels = figure.subplots(len(sites), 1, squeeze=False).flat
    for ax, site in zip(panels, sites, strict=True):
        maps = pair_map(inside, site)
        draw_pair_maps(maps, ax, color_scale(site, maps))
        add_colorbar([ax], site)
    return [site_note(inside, site) for site in sites]


def site_note(inside: Inspection, site: str) -> str:
    note = notes_by_site(inside)[site]
    layers, heads = middle_maps(inside, site).shape[:2]
    if (layers, heads) != (1, 1):
        note += f"; mean over {units.amount_text(layers, 'layer')} and {units.amount_text(heads, 'head')}"
    rows, columns = inside.facts["grid"]
    return f"{note}. Each small map is one patch with all {rows * columns}"


def pair_map(inside: Inspection, site: str) -> np.ndarray:
    """Return the maps of all patches at a site (rows, columns, rows, columns): a patch's position, then its map."""
    return np.asarray(inside.arrays[f"{site}_pairs"]).reshape(*inside.facts["grid"], *inside.facts["grid"])


def incomparable_text(inside: Inspection) -> str:
    for site in notes_by_site(inside):
        return f"its map is of another kind: {LABELS[site]}"
    return "no map of its position"


def draw_pairs_side_by_side(insides: Sequence[Inspection], names: Sequence[str], figure: Figure) -> list[str]:
    """Draw a panel per trial for each site that all trials have, on one scale. Return the notes."""
    sites = [site for site in notes_by_site(insides[0]) if all(site in notes_by_site(other) for other in insides)]
    count = len(insides)
    across = 1 if is_narrow(figure) else count
    side = (figure.get_figwidth() - 1.3) / across
    down = len(sites) * count // across
    figure.set_figheight((side + 0.6) * down)
    axes = figure.subplots(down, across, squeeze=False).reshape(len(sites), count)
    for row, site in zip(axes, sites, strict=True):
        maps = [pair_map(inside, site) for inside in insides]
        scale = color_scale(site, *maps)
        for ax, pairs, name in zip(row, maps, names, strict=True):
            draw_pair_maps(pairs, ax, scale)
            ax.set_title(wrap_text(name, side, current_style().text), loc="left")
        add_colorbar(list(row), site)
    return [site_note(insides[0], site) for site in sites]


def draw_pair_maps(related: np.ndarray, ax: Axes, scale: Mapping[str, Any]) -> None:
    rows, columns = related.shape[:2]
    gap = max(1, round(max(rows, columns) / 8))
    ax.imshow(mosaic(related, gap), interpolation="nearest", **scale)
    label_patches(ax.xaxis, columns, gap)
    label_patches(ax.yaxis, rows, gap)
    ax.set(xlabel="input patch column", ylabel="input patch row")
    remove_frame(ax)


def label_patches(axis: Axis, count: int, gap: int) -> None:
    """Label at most TICKS patches on an axis, counted from 1 as in arXiv 2010.11929. gap: cells between maps."""
    every = -(-count // TICKS)
    axis.set_ticks(mosaic_centers(count, count, gap)[::every], map(str, range(1, count + 1, every)))


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
    sites = sites_with_several_maps(inside)
    width = figure.get_figwidth() - 1.0
    place = f"the patch at row {rows // 2 + 1}, column {columns // 2 + 1} with all others"
    height = 0.0
    notes = []
    panels = figure.subplots(len(sites), 1, squeeze=False).flat
    for ax, site in zip(panels, sites, strict=True):
        maps = middle_maps(inside, site)
        layers, heads, _ = maps.shape
        height += min(width / heads, 1.0) * rows / columns * layers + 0.5
        related = maps.reshape(layers, heads, rows, columns)
        ax.imshow(mosaic(related), interpolation="nearest", **color_scale(site, related))
        label_maps(ax.xaxis, "head", heads, columns)
        label_maps(ax.yaxis, "layer", layers, rows)
        remove_frame(ax)
        add_colorbar([ax], site)
        notes.append(f"{notes_by_site(inside)[site]}: {place}")
    figure.set_figheight(height)
    return notes


def label_maps(axis: Axis, what: str, count: int, size: int) -> None:
    axis.set_ticks(mosaic_centers(count, size), map(str, range(1, count + 1)))
    axis.set_label_text(what if count > 1 else f"all {what}s alike")


def mosaic(maps: np.ndarray, gap: int = 1) -> np.ndarray:
    """Return maps (R, C, rows, columns) as one 2-D picture with R rows of C maps, `gap` NaN cells apart."""
    R, C, rows, columns = maps.shape
    padded = np.pad(maps.astype(float), ((0, 0), (0, 0), (0, gap), (0, gap)), constant_values=np.nan)
    return padded.swapaxes(1, 2).reshape(R * (rows + gap), C * (columns + gap))[:-gap, :-gap]


def mosaic_centers(count: int, size: int, gap: int = 1) -> np.ndarray:
    return np.arange(count) * (size + gap) + (size - 1) / 2


def color_scale(site: str, *maps: np.ndarray) -> dict[str, Any]:
    """Return cmap, vmin and vmax of `imshow`: from -1 to 1 for similarities, symmetric around 0 for a bias."""
    if site == "bias":
        most = max(float(np.nanmax(np.abs(values))) for values in maps) or 1.0
        return {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
    return {"cmap": "viridis", "vmin": -1.0, "vmax": 1.0}


class LayerCost(TypedDict):
    part: str
    shape: list[int]
    params: int
    flops: int


Drawing = Callable[[Inspection, Figure], list[str]]  # returns the figure's notes

# name -> title, whether there is something to draw, and the function that draws it
FIGURES: dict[str, tuple[str, Callable[[Inspection], object], Drawing]] = {
    "filters": ("Embedding filters", lambda inside: "filters" in inside.arrays, draw_filters),
    "position": ("Position: each patch beside all others", notes_by_site, draw_pairs),
    "position-heads": (
        "Position: the middle patch, by layer and head",
        sites_with_several_maps,
        draw_middle_patch,
    ),
    "attention-distance": ("Mean attention distance", lambda inside: True, draw_distance),
    "rollout": ("Attention from the output to the input", lambda inside: True, draw_rollout),
}


def draw(inside: Inspection, folder: Path, format: str = "png") -> list[Path]:
    paths = []
    for name in drawable_figures(inside):
        path = folder / f"{name}.{format}"
        store.write_bytes(path, picture(inside, name, format))
        paths.append(path)
    return paths


def drawable_figures(inside: Inspection) -> list[str]:
    return [name for name, (_, is_drawable, _) in FIGURES.items() if is_drawable(inside)]


def picture(inside: Inspection, name: str, format: str, described: bool = True) -> bytes:
    """Return one of FIGURES as the content of a png, pdf or svg file. Equal inspections give equal bytes.

    described: whether to write the trial above it; if not, it is one column wide. Raises ValueError for format or font.
    """
    title, _, drawing = FIGURES[name]
    if not described:
        return render_page(partial(drawing, inside), format, COLUMN, title, "")
    style = current_style()
    width = style.width if name == "rollout" else style.column
    facts = inside.facts
    settings = [f"{key}={facts[key]}" for key in ("position", "position_at", "patch", "image_size") if facts.get(key)]
    above = f"{inside.title}: {', '.join(settings)}"
    return render_page(partial(drawing, inside), format, width, title * style.heading, above)


def render_page(drawing: Callable[[Figure], list[str]], format: str, width: float, title: str, above: str) -> bytes:
    with apply_style():
        page = Figure(figsize=(width, 3.0), layout="constrained")
        compose(page, title, above, drawing(page))
        return file_content(page, format)


def draw_side_by_side(
    insides: Sequence[Inspection], names: Sequence[str], folder: Path, format: str = "png"
) -> list[Path]:
    """Write the position maps of several trials as one figure (arXiv 2010.11929, Figure 10), and return its path.

    The list is empty if no two trials can be compared.
    """
    shown: dict[str, Inspection] = {}
    left_out = []
    sites = Counter(itertools.chain.from_iterable(map(notes_by_site, insides)))
    site = max(sites, key=sites.__getitem__, default="")
    for name, inside in zip(names, insides, strict=True):
        if site in notes_by_site(inside):
            shown[name] = inside
        else:
            left_out.append(f"{name} ({incomparable_text(inside)})")
    if len(shown) < 2:
        return []

    def drawing(page: Figure) -> list[str]:
        notes = draw_pairs_side_by_side([*shown.values()], [*shown], page)
        if left_out:
            notes.append(f"Not shown: {', '.join(left_out)}.")
        return notes

    path = folder / f"position-beside.{format}"
    above = f"{len(shown)} trials, each patch beside all others"
    title = "Position embeddings side by side" * current_style().heading
    store.write_bytes(path, render_page(drawing, format, current_style().width, title, above))
    return [path]


def layer_grid(inside: Inspection) -> Grid:
    """Return the costs of a model's parts and of the whole. Equal parts of several blocks share a row."""
    rows: list[LayerCost] = inside.facts["summary"]
    grouped: dict[tuple[object, ...], list[LayerCost]] = {}
    for row in rows:
        kind = re.sub(r"blocks\.\d+\.", "blocks.*.", row["part"])
        grouped.setdefault((kind, *row["shape"], row["params"], row["flops"]), []).append(row)
    cells = []
    for same in grouped.values():
        shape = " x ".join(map(str, same[0]["shape"]))
        cells.append([Cell(part_text(same)), Cell(shape), *cost_cells(same)])
    return Grid(
        title=f"Layers of {inside.title}",
        caption=[
            "For one image, 2 FLOPs a multiply-add. Blocks that are alike are one row, with the sum of their costs."
        ],
        header=["part", "output", "params", "FLOPs"],
        numeric=[False, False, True, True],
        rows=[*cells, [Cell("whole model"), Cell(""), *cost_cells(rows)]],
    )


def part_text(same: Sequence[LayerCost]) -> str:
    """Return the name of a part, such as "blocks 0-11: attention" for equal parts of 12 blocks."""
    if "blocks." not in same[0]["part"]:
        return same[0]["part"]
    _, _, first, name = same[0]["part"].split(".", 3)
    if len(same) == 1:
        return f"block {first}: {name}"
    last = same[-1]["part"].split(".")[2]
    return f"blocks {first}-{last}: {name}"


def cost_cells(rows: Sequence[LayerCost]) -> list[Cell]:
    params = sum(row["params"] for row in rows)
    flops = sum(row["flops"] for row in rows)
    return [Cell(units.count_text(params), params), Cell(units.count_text(flops), flops)]
