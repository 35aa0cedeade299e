"""Tables of one study under several recipes, with a row per arm and a group of columns per recipe."""

from collections.abc import Sequence
from itertools import chain

from results.records import Table
from results.store.schemas import Plain
from results.style import current_style
from results.tables import formats, layout, sentences
from results.tables.formats import Cell, Grid

SHOWN = ("mean", "delta", "p_holm", "verdict")
ABSENT = "–"


def render(tables: Sequence[Table], format: str, columns: Sequence[str] | None = None, notes: str | None = None) -> str:
    """Return the tables of one study as one document, in one of formats.TABLE_FORMATS.

    columns: the columns of each recipe. Markdown, LaTeX and HTML need at least one besides `arm`. notes: one of
    layout.NOTES. Raises ValueError for an unknown format, or an unknown or repeated column.
    """
    for table in tables:
        layout.check_columns(columns, table)
    form = formats.find_format(format)
    needed = columns or (SHOWN if form.write else list(layout.COLUMNS))
    abridged = [layout.abridged(table, needed, notes or form.notes) for table in tables]
    return formats.document(
        format,
        grids=lambda: [as_grid(abridged, columns or SHOWN)],
        rows=lambda: csv_rows(abridged, columns),
        record=lambda: [layout.json_record(table, columns) for table in abridged],
    )


def group_by_study(tables: Sequence[Table]) -> list[list[Table]]:
    by_study: dict[str, list[Table]] = {}
    for table in tables:
        by_study.setdefault(table.plan.study, []).append(table)
    return list(by_study.values())


def csv_rows(tables: Sequence[Table], columns: Sequence[str] | None) -> list[dict[str, Plain]]:
    """Return a CSV row per recipe and arm, as a dict from column to value."""
    starts: list[dict[str, Plain]] = [
        {"study": t.plan.study, "recipe": sentences.setting_text(t.plan)} for t in tables for _ in t.rows
    ]
    return [start | row for start, row in zip(starts, layout.csv_rows(tables, columns), strict=True)]


def as_grid(tables: Sequence[Table], columns: Sequence[str]) -> Grid:
    """Return the tables side by side, with dashes for absent arms. Raises ValueError without a column besides `arm`."""
    columns = [name for name in columns if name != "arm"]
    if not columns:
        raise ValueError("columns=arm: side by side, name at least one column of each recipe")
    arms = sorted(dict.fromkeys(row.arm for table in tables for row in table.rows), key=current_style().rank)
    absent = dict.fromkeys(arms, [Cell(ABSENT)] * len(columns))
    groups = [absent | layout.cells_by_arm(table, columns) for table in tables]
    settings = [(sentences.setting_text(table.plan), table) for table in tables]
    return Grid(
        title=f"{tables[0].plan.study}: {tables[0].plan.question}",
        caption=[f"{name}: {line}" for name, table in settings for line in layout.captions(table, columns)],
        header=["arm", *(layout.header(name, table) for table in tables for name in columns)],
        numeric=[False, *(layout.column(name, table.plan).numeric for table in tables for name in columns)],
        rows=[[Cell(current_style().label(arm), arm), *chain(*(cells[arm] for cells in groups))] for arm in arms],
        closing=[f"{name}: {line}" for name, table in settings for line in layout.closing_lines(table, columns)],
        groups=[("", 1), *((name, len(columns)) for name, _ in settings)],
    )
