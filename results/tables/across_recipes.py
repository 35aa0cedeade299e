"""Show one study on several recipes in one table: a row per arm, a group of columns per recipe."""

import json
from collections.abc import Sequence
from dataclasses import replace

from results.records import Row, Table
from results.style import current
from results.tables import formats, grid, layout, sentences
from results.tables.grid import Cell, Grid

SHOWN = ("mean", "delta", "p_holm", "verdict")
ABSENT = "–"


def render(tables: Sequence[Table], format: str, columns: Sequence[str] | None = None, notes: str | None = None) -> str:
    """Write the tables of one study as one table, in one of formats.FORMATS.

    columns: columns of each recipe. notes: one of layout.NOTES. CSV has a row for each recipe and arm. Raises
    ValueError for an unknown format or column.
    """
    for table in tables:
        layout.check_columns(columns, table)
    if format == "json":
        return json.dumps([json.loads(layout.render(table, "json", columns, notes)) for table in tables], indent=1)
    needed = columns or (list(layout.COLUMNS) if format == "csv" else SHOWN)
    tables = [layout.abridged(table, needed, notes or layout.default_notes(format)) for table in tables]
    if format == "csv":
        settings = [(table.study, setting(table)) for table in tables for _ in table.rows]
        rows = zip(settings, layout.flat_rows(tables, columns), strict=True)
        return layout.as_csv([{"study": study, "recipe": recipe, **row} for (study, recipe), row in rows])
    shown = [name for name in columns or SHOWN if name != "arm"]
    if not shown:
        raise ValueError("columns=arm: side by side, name at least one column of each recipe")
    return formats.write_grid(as_grid(tables, shown), format)


def by_study(tables: Sequence[Table]) -> list[list[Table]]:
    """Group tables by study, in order of appearance."""
    names = dict.fromkeys(table.study for table in tables)
    return [[table for table in tables if table.study == name] for name in names]


def setting(table: Table) -> str:
    """Name the table's recipe, data and overrides."""
    return sentences.setting(table.recipe, table.data, table.overrides)


def as_grid(tables: Sequence[Table], columns: Sequence[str]) -> Grid:
    """Lay the tables out side by side, with footnote marks at the first number of each recipe."""
    arms = sorted(dict.fromkeys(row.arm for table in tables for row in table.rows), key=current().rank)
    rows_of = [{row.arm: row for row in layout.with_interim_marks(table)} for table in tables]
    cells = [(arm, rows.get(arm)) for arm in arms for rows in rows_of]
    marks, footnotes = grid.number_notes([row.notes if row else [] for _, row in cells])
    next_marks = iter(marks)
    settings = [(setting(table), table) for table in tables]
    return Grid(
        title=f"{tables[0].study}: {tables[0].question}",
        caption=[f"{name}: {line}" for name, table in settings for line in layout.captions(table, columns)],
        header=["arm", *(layout.header(name, table) for table in tables for name in columns)],
        numeric=[False, *(layout.column(name).numeric for _ in tables for name in columns)],
        rows=[
            [
                Cell(current().label(arm), arm),
                *(
                    cell
                    for table, rows in zip(tables, rows_of, strict=True)
                    for cell in recipe_cells(rows.get(arm), table, columns, next(next_marks))
                ),
            ]
            for arm in arms
        ],
        footnotes=footnotes,
        closing=[f"{name}: {line}" for name, table in settings for line in layout.closing_lines(table, columns)],
        groups=[("", 1), *((name, len(columns)) for name, _ in settings)],
    )


def recipe_cells(row: Row | None, table: Table, columns: Sequence[str], marks: tuple[int, ...]) -> list[Cell]:
    """Return an arm's cells on one recipe, or dashes where the recipe lacks the arm."""
    if row is None:
        return [Cell(ABSENT) for _ in columns]
    first, *rest = layout.row_cells(row, columns, table.metric)
    return [replace(first, marks=marks), *rest]
