"""One study on several recipes in one table: a row an arm, a group of columns a recipe."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from results import units
from results.style import current
from results.tables import grid, layout, sentences
from results.tables.grid import Cell, Grid

Table = Mapping[str, Any]

SHOWN = ("mean", "delta", "p_holm", "verdict")
ABSENT = "–"


def render(tables: Sequence[Table], format: str, columns: Sequence[str] | None = None, notes: str | None = None) -> str:
    """The tables of one study as one, in any of layout.FORMATS; columns: of each recipe; notes: of layout.NOTES.

    CSV has a row for each recipe and arm. Raises ValueError for another format or column.
    """
    for table in tables:
        layout.check(columns, table)
    if format == "json":
        return json.dumps([json.loads(layout.render(table, "json", columns, notes)) for table in tables], indent=1)
    told = notes or layout.usual_notes(format)
    about = columns or (list(layout.COLUMNS) if format == "csv" else SHOWN)
    tables = [layout.abridged(table, about, told) for table in tables]
    if format == "csv":
        settings = [(table["study"], sentences.setting(table)) for table in tables for _ in table["rows"]]
        rows = zip(settings, layout.flat_rows(tables, columns), strict=True)
        return layout.as_csv([{"study": study, "recipe": setting, **row} for (study, setting), row in rows])
    shown = [name for name in columns or SHOWN if name != "arm"]
    if not shown:
        raise ValueError("columns=arm: side by side, name at least one column of each recipe")
    return layout.written(as_grid(tables, shown), format)


def by_study(tables: Sequence[Table]) -> list[list[Table]]:
    """The tables of each study, in the order that they come in."""
    names = dict.fromkeys(table["study"] for table in tables)
    return [[table for table in tables if table["study"] == name] for name in names]


def as_grid(tables: Sequence[Table], columns: Sequence[str]) -> Grid:
    """Footnotes stand beside the first number of the recipe that they are about."""
    arms = sorted(dict.fromkeys(row["arm"] for table in tables for row in table["rows"]), key=current().rank)
    found = [{row["arm"]: row for row in layout.marked(table)} for table in tables]
    cells = [(arm, rows.get(arm)) for arm in arms for rows in found]
    marks, footnotes = grid.number([row["notes"] if row else [] for _, row in cells])
    marked = iter(marks)
    named = [(sentences.setting(table), table) for table in tables]
    return Grid(
        title=f"{tables[0]['study']}: {tables[0]['question']}",
        caption=[f"{setting}: {line}" for setting, table in named for line in layout.captions(table, columns)],
        header=["arm", *(header(name, table) for table in tables for name in columns)],
        numeric=[False, *(layout.column(name).numeric for _ in tables for name in columns)],
        rows=[
            [
                Cell(current().label(arm), arm),
                *(
                    cell
                    for table, rows in zip(tables, found, strict=True)
                    for cell in part(rows.get(arm), table, columns, next(marked))
                ),
            ]
            for arm in arms
        ],
        footnotes=footnotes,
        closing=[f"{setting}: {line}" for setting, table in named for line in layout.closing(table, columns)],
        groups=[("", 1), *((setting, len(columns)) for setting, _ in named)],
    )


def header(name: str, table: Table) -> str:
    return layout.column(name).header.format(metric=layout.label(table["metric"], table["objective"]))


def part(row: Mapping[str, Any] | None, table: Table, columns: Sequence[str], marks: tuple[int, ...]) -> list[Cell]:
    """The cells of one arm on one recipe; of an arm that it does not have, dashes."""
    if row is None:
        return [Cell(ABSENT) for _ in columns]
    unit = units.unit(table["metric"])
    cells = [Cell(layout.column(name).text(row, unit), layout.sortable(row[name])) for name in columns]
    return [Cell(cells[0].text, cells[0].sort, marks), *cells[1:]]
