"""The figures and the layer table of a trial that `ablate inspect` has inspected."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypedDict

from matplotlib.figure import Figure

from results import store, units
from results.figures import inspected
from results.figures.inspected import draw_distance, draw_filters, draw_rollout
from results.figures.page import apply_style, compose, file_content
from results.store.eval_files import Inspection
from results.style import COLUMN, current_style
from results.tables.formats import Cell, Grid


class LayerCost(TypedDict):
    part: str
    shape: list[int]
    params: int
    flops: int


Drawing = Callable[[Inspection, Figure], list[str]]  # returns the figure's notes

# name -> title, whether there is something to draw, and the function that draws it
FIGURES: dict[str, tuple[str, Callable[[Inspection], object], Drawing]] = {
    "filters": ("Embedding filters", lambda inside: "filters" in inside.arrays, draw_filters),
    "position": ("Position: each patch beside all others", inspected.notes_by_site, inspected.draw_pairs),
    "position-heads": (
        "Position: the middle patch, by layer and head",
        inspected.sites_with_several_maps,
        inspected.draw_middle_patch,
    ),
    "attention-distance": ("Mean attention distance", lambda inside: True, draw_distance),
    "rollout": ("Attention from the output to the input", lambda inside: True, draw_rollout),
}


def draw(inside: Inspection, folder: Path, format: str = "png") -> list[Path]:
    """Write the figures that an inspection has data for, and return their paths."""
    paths = []
    for name in drawable_figures(inside):
        path = folder / f"{name}.{format}"
        store.write_bytes(path, picture(inside, name, format))
        paths.append(path)
    return paths


def drawable_figures(inside: Inspection) -> list[str]:
    return [name for name, (_, is_drawable, _) in FIGURES.items() if is_drawable(inside)]


def picture(inside: Inspection, name: str, format: str, described: bool = True) -> bytes:
    """Return one figure as the content of a file. Equal inspections give equal bytes.

    name: a key of FIGURES. format: png, pdf or svg. described: whether to write the trial and its settings above the
    figure. If not, the figure is one column wide and has its title. Raises ValueError if the format or font is unknown.
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
    """Return the content of a file with the figure that `drawing` draws, `width` inches wide, and texts above it."""
    with apply_style():
        page = Figure(figsize=(width, 3.0), layout="constrained")
        compose(page, title, above, drawing(page))
        return file_content(page, format)


def draw_side_by_side(
    insides: Sequence[Inspection], names: Sequence[str], folder: Path, format: str = "png"
) -> list[Path]:
    """Write the position maps of several trials as one figure, as in Figure 10 of arXiv 2010.11929.

    Returns the file's path in a list, or [] if no two trials can be compared.
    """
    shown: dict[str, Inspection] = {}
    left_out = []
    site = inspected.most_frequent_site(insides)
    for name, inside in zip(names, insides, strict=True):
        if site in inspected.notes_by_site(inside):
            shown[name] = inside
        else:
            left_out.append(f"{name} ({inspected.incomparable_text(inside)})")
    if len(shown) < 2:
        return []

    def drawing(page: Figure) -> list[str]:
        notes = inspected.draw_side_by_side([*shown.values()], [*shown], page)
        if left_out:
            notes.append(f"Not shown: {', '.join(left_out)}.")
        return notes

    path = folder / f"position-beside.{format}"
    above = f"{len(shown)} trials, each patch beside all others"
    title = "Position embeddings side by side" * current_style().heading
    store.write_bytes(path, render_page(drawing, format, current_style().width, title, above))
    return [path]


def layer_grid(inside: Inspection) -> Grid:
    """Return a table with a row per part of the model, and a last row for the whole model.

    Equal parts of several blocks share a row, with the sum of their costs.
    """
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
