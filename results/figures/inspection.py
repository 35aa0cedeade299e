"""What `ablate inspect` found in a trial, for people: its figures drawn, its layers in a table."""

import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from results import store, units
from results.figures.inspected.distance import distance
from results.figures.inspected.filters import filters
from results.figures.inspected.rollout import rollout
from results.figures.inspected.similarity import beside, centre, in_common, pairs
from results.figures.page import compose
from results.figures.plots import FORMATS, UNSTAMPED
from results.figures.theme import COLUMN, current, style
from results.store.inspection_data import Inspection
from results.tables import grid
from results.tables.grid import Cell, Grid

Json = dict[str, Any]


Drawing = Callable[[Inspection, Figure], list[str]]  # returns the lines to write under it

# name: the title, when there is something to draw, and what draws it
FIGURES: dict[str, tuple[str, Callable[[Inspection], bool], Drawing]] = {
    "filters": ("Embedding filters", lambda inside: "filters" in inside.arrays, filters),
    "position": ("Position: each patch beside all others", lambda inside: bool(maps(inside)), pairs),
    "position-heads": ("Position: the middle patch, by layer and head", lambda inside: several(inside), centre),
    "attention-distance": ("Mean attention distance", lambda inside: True, distance),
    "rollout": ("Attention from the output to the input", lambda inside: True, rollout),
}


def maps(inside: Inspection) -> list[str]:
    """The sites at which the position has something to show."""
    return [site["site"] for site in inside.facts["sites"] if site["site"]]


def several(inside: Inspection) -> bool:
    """Whether layers or heads differ."""
    return any(inside.arrays[f"{site}_centre"].shape[:2] != (1, 1) for site in maps(inside))


# -- drawing -----------------------------------------------------------------------------------------------------------


def draw(inside: Inspection, folder: Path, format: str = "png") -> list[Path]:
    """Writes what there is to draw. Raises ValueError for a format that is none of FORMATS."""
    check(format)
    paths = []
    for name in drawable(inside):
        paths.append(folder / f"{name}.{format}")
        store.write_bytes(paths[-1], picture(inside, name, format))
    return paths


def drawable(inside: Inspection) -> list[str]:
    return [name for name, (_, there, _) in FIGURES.items() if there(inside)]


def picture(inside: Inspection, name: str, format: str, described: bool = True) -> bytes:
    """One figure under its title, and where it is `described` the trial; equal inspections give equal bytes."""
    title, _, drawing = FIGURES[name]
    if not described:
        return written(partial(drawing, inside), format, COLUMN, title, "")
    width = current().width if name == "rollout" else current().column
    return written(partial(drawing, inside), format, width, title if current().heading else "", subtitle(inside))


def written(drawing: Callable[[Figure], list[str]], format: str, width: float, title: str, under: str) -> bytes:
    """What is drawn on a page so many inches wide, as a file."""
    stream = io.BytesIO()
    with style():
        page = Figure(figsize=(width, 3.0), layout="constrained")
        compose(page, title, under, drawing(page))
        page.savefig(stream, format=format, metadata=UNSTAMPED[format])
    return stream.getvalue()


def draw_beside(insides: Sequence[Inspection], names: Sequence[str], folder: Path, format: str = "png") -> list[Path]:
    """Writes the position maps of several trials in one figure, as in Figure 10; nothing where they share no site.

    names: what each is called. Raises ValueError for a format that is none of FORMATS.
    """
    check(format)
    if len(insides) < 2 or not in_common(insides):
        return []
    drawing = partial(beside, insides, names)
    path = folder / f"position-beside.{format}"
    under = f"{len(insides)} trials, each patch beside all others"
    title = "Position embeddings side by side" if current().heading else ""
    store.write_bytes(path, written(drawing, format, current().width, title, under))
    return [path]


def check(format: str) -> None:
    if format not in FORMATS:
        raise ValueError(f"format={format}: one of {', '.join(FORMATS)}")


def subtitle(inside: Inspection) -> str:
    facts = inside.facts
    settings = ", ".join(f"{name}={facts[name]}" for name in ("position", "patch", "image_size"))
    return f"trial {inside.trial}: {settings}"


# -- layers in a table -------------------------------------------------------------------------------------------------


def layers(inside: Inspection) -> Grid:
    """A row for each part; those that are alike in several blocks are one."""
    rows = inside.facts["summary"]
    grouped: dict[tuple[Any, ...], list[Json]] = {}
    for row in rows:
        kind = re.sub(r"blocks\.\d+\.", "blocks.*.", row["part"])
        grouped.setdefault((kind, *row["shape"], row["params"], row["flops"]), []).append(row)
    cells = [[Cell(part(same)), Cell(shape(same[0])), *costs(same)] for same in grouped.values()]
    cells.append([Cell("whole model"), Cell(""), *costs(rows)])
    return Grid(
        title=f"Layers of trial {inside.trial}",
        caption=[
            "For one image, 2 FLOPs a multiply-add. Blocks that are alike are one row, with the sum of their costs."
        ],
        header=["part", "output", "params", "FLOPs"],
        numeric=[False, False, True, True],
        rows=cells,
    )


def part(same: Sequence[Json]) -> str:
    """ "blocks 0-11: attention" for what 12 blocks have alike."""
    if "blocks." not in same[0]["part"]:
        return str(same[0]["part"])
    numbers = [int(row["part"].split(".")[2]) for row in same]
    name = same[0]["part"].split(".", 3)[3]
    named = f"blocks {numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"block {numbers[0]}"
    return f"{named}: {name}"


def shape(row: Json) -> str:
    return " x ".join(map(str, row["shape"]))


def costs(rows: Sequence[Json]) -> list[Cell]:
    totals = [sum(row[name] for row in rows) for name in ("params", "flops")]
    return [Cell(units.count(total), total) for total in totals]


def table(inside: Inspection) -> str:
    """For a terminal."""
    return grid.markdown(layers(inside))
