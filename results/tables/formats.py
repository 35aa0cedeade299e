"""Tables of text with numbered footnotes (grids), and the formats of documents.

Markdown, LaTeX (booktabs) and HTML show grids; CSV and JSON hold values.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from commonfloor.messages import spelling_hint

if TYPE_CHECKING:
    from results.store.schemas import Plain

SIZES, INITIAL = ("parameters ", "FLOPs "), "of its initial weights are the baseline's"


@dataclass(frozen=True)
class Cell:
    """A cell of a grid: its text, the value to sort by, and its footnotes."""

    text: str
    sort: float | str | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Grid:
    """A table of text with title, caption lines and closing lines.

    numeric: which columns are aligned to the right. groups: the headings above the header, as (text, number of
    columns). label: the name for references in LaTeX, or "" to use the beginning of the title.
    """

    title: str
    caption: list[str]
    header: list[str]
    numeric: list[bool]
    rows: list[list[Cell]]
    closing: list[str] = field(default_factory=list)
    groups: list[tuple[str, int]] = field(default_factory=list)
    label: str = ""

    @cached_property
    def footnotes(self) -> list[str]:
        """The distinct notes of all cells, in the order of their numbers. Minor notes come last.

        Within a cell, notes that may change a verdict come before notes on model sizes.
        """
        cells = [cell for row in self.rows for cell in row]
        ordered = (sorted(cell.notes, key=lambda note: note.startswith(SIZES)) for cell in cells)
        distinct = dict.fromkeys(note for notes in ordered for note in notes)
        return sorted(distinct, key=is_minor)

    def marked_texts(self, escape: Callable[[str], str], form: str) -> list[list[str]]:
        """Return the escaped text of each cell with its footnote numbers, formatted by `form`, such as " [{}]"."""

        def marked(cell: Cell) -> str:
            numbers = form.format(self.footnote_numbers(cell)) if cell.notes else ""
            return escape(cell.text) + numbers

        return [[marked(cell) for cell in row] for row in self.rows]

    def footnote_numbers(self, cell: Cell) -> str:
        """Return the numbers of a cell's footnotes, such as "1,3"."""
        return ",".join(map(str, sorted(self.footnotes.index(note) + 1 for note in cell.notes)))


def is_minor(note: str) -> bool:
    """Return whether a note only counts initial weights equal to the baseline's. Such a note changes no verdict."""
    return INITIAL in note


@dataclass(frozen=True)
class Format:
    """A format of documents.

    suffix: the files' suffix. write: returns a grid as text, or None if the format holds values. Such a format has
    every column by default. notes: the default choice of layout.NOTES.
    """

    suffix: str
    write: Callable[[Grid], str] | None = None
    notes: str = "all"


def find_format(format: str) -> Format:
    """Return the format with this name. Raises ValueError if there is none."""
    if format not in TABLE_FORMATS:
        raise ValueError(f"format={format}: one of {', '.join(TABLE_FORMATS)}{spelling_hint(format, TABLE_FORMATS)}")
    return TABLE_FORMATS[format]


def document(
    format: str,
    grids: Callable[[], Sequence[Grid]],
    rows: Callable[[], Sequence[Mapping[str, Plain]]],
    record: Callable[[], Any],
) -> str:
    """Return a document in one of TABLE_FORMATS. Raises ValueError for another format.

    Only one of the three functions is called. grids: returns the tables of text. rows: returns the rows of a CSV file,
    as dicts from column to value. record: returns the JSON object.
    """
    write = find_format(format).write
    if write is not None:
        return "\n\n".join(map(write, grids()))
    if format == "csv":
        return as_csv(rows())
    from results.records import as_json  # late: listing the formats does not need pydantic

    return as_json(record())


# -- Markdown ------------------------------------------------------------------------------------------------


ESCAPED = re.compile(r"([\\|`*]|<(?=[A-Za-z/!?])|\[(?=[^\]]*\]\())")


def markdown(grid: Grid) -> str:
    """Return the grid as Markdown: title, caption, table, footnotes and closing lines.

    The table is padded to line up in a terminal. Group headings become prefixes in the header, because a cell in
    Markdown cannot span columns.
    """
    header = list(grid.header)
    groups = [text for text, columns in grid.groups for _ in range(columns)]
    for column, group in enumerate(groups):
        if group:
            header[column] = f"{group}: {header[column]}"
    body = grid.marked_texts(escape_markdown, " [{}]")
    columns = []
    for numeric, *texts in zip(grid.numeric, map(escape_markdown, header), *body, strict=True):
        width = max(3, *map(len, texts))
        rule = f"{'-' * (width - 1)}:" if numeric else "-" * width
        align = str.rjust if numeric else str.ljust
        columns.append([align(text, width) for text in (texts[0], rule, *texts[1:])])
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True))
    notes = "  \n".join(f"[{i}] {escape_markdown(note)}" for i, note in enumerate(grid.footnotes, 1))
    before = map(escape_markdown, (grid.title, *grid.caption))
    after = map(escape_markdown, grid.closing)
    return "\n\n".join(filter(None, [*before, table, notes, *after]))


def escape_markdown(text: str) -> str:
    """Return the text on one line, with cell borders, markup and tags escaped. A "<" before a number is not escaped."""
    return ESCAPED.sub(r"\\\1", " ".join(text.split()))


# -- LaTeX ---------------------------------------------------------------------------------------------------

ONE_COLUMN = 6  # the most columns that fit one text column of a two-column paper
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "–": "--",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "×": r"$\times$",
    "−": "$-$",
    **{special: f"\\{special}" for special in "&%$#_{}"},
}


def latex(grid: Grid) -> str:
    """Return the grid as a LaTeX table environment, which needs the package booktabs.

    Its label has lowercase letters, digits and hyphens: "pooling@digits" becomes pooling-digits.
    """
    wide = bool(grid.groups) or len(grid.header) > ONE_COLUMN
    kind = "table*" if wide else "table"  # as wide as the page, or as one text column
    title = grid.title if grid.title.endswith((".", "?", "!")) else f"{grid.title}."
    label = re.sub(r"[^A-Za-z0-9]+", "-", grid.label or grid.title.partition(": ")[0]).strip("-").lower()
    columns = "".join("r" if numeric else "l" for numeric in grid.numeric)
    body = grid.marked_texts(escape_latex, r"\textsuperscript{{{}}}")
    notes = [rf"\textsuperscript{{{i}}} {escape_latex(note)}" for i, note in enumerate(grid.footnotes, 1)]
    below = [*notes, *map(escape_latex, grid.closing)]
    return "\n".join(
        [
            rf"\begin{{{kind}}}",
            r"\centering",
            rf"\caption{{{' '.join(map(escape_latex, [title, *grid.caption]))}}}",
            rf"\label{{tab:{label}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            *latex_groups(grid),
            " & ".join(map(escape_latex, grid.header)) + r" \\",
            r"\midrule",
            *(" & ".join(cells) + r" \\" for cells in body),
            r"\bottomrule",
            r"\end{tabular}",
            *([r"\par\smallskip\footnotesize\raggedright", (" \\\\\n").join(below)] if below else []),
            rf"\end{{{kind}}}",
        ]
    )


def latex_groups(grid: Grid) -> list[str]:
    """Return the lines of the group headings and of the rules below them."""
    cells = []
    rules = ""
    first = 1
    for text, columns in grid.groups:
        cells.append(rf"\multicolumn{{{columns}}}{{c}}{{{escape_latex(text)}}}")
        rules += rf"\cmidrule(lr){{{first}-{first + columns - 1}}}" if text else ""
        first += columns
    return [" & ".join(cells) + r" \\", rules] if cells else []


def escape_latex(text: str) -> str:
    """Return the text on one line, with LaTeX's special characters escaped and minus signs before digits typeset."""
    escaped = "".join(LATEX.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"(?<![\w.=-])-(?=\d)", "$-$", escaped)


# -- HTML ----------------------------------------------------------------------------------------------------

ALIGNED = {True: ' class="number"', False: ""}  # whether a column is numeric -> attribute of its cells


def html_table(grid: Grid) -> str:
    """Return the grid as an HTML figure with a table whose cells carry the values to sort by."""
    columns = zip(grid.header, grid.numeric, strict=True)
    head = "".join(f"<th{ALIGNED[numeric]}>{html.escape(text)}</th>" for text, numeric in columns)
    over = "".join(f'<th colspan="{n}" scope="colgroup">{html.escape(text)}</th>' for text, n in grid.groups)
    groups = f"<tr>{over}</tr>" if over else ""
    texts = grid.marked_texts(html.escape, "<sup>{}</sup>")
    rows = (map(html_cell, *columns, grid.numeric) for columns in zip(grid.rows, texts, strict=True))
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in grid.footnotes)
    parts = [
        '<figure class="study-table">',
        f"<figcaption><strong>{html.escape(grid.title)}</strong>{paragraphs(grid.caption)}</figcaption>",
        f"<table>\n<thead>{groups}<tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>",
        f'<ol class="notes">{notes}</ol>' if notes else "",
        paragraphs(grid.closing),
        "</figure>",
    ]
    return "\n".join(filter(None, parts))


def html_cell(cell: Cell, text: str, numeric: bool) -> str:
    sort = "" if cell.sort is None else f' data-sort="{html.escape(str(cell.sort))}"'
    return f"<td{ALIGNED[numeric]}{sort}>{text}</td>"


def paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


# -- CSV -----------------------------------------------------------------------------------------------------


def as_csv(rows: Sequence[Mapping[str, Plain]]) -> str:
    """Return one or more rows as CSV, with numbers in full precision and no text that starts a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(without_formula, rows[0]))
    writer.writerows(map(without_formula, row.values()) for row in rows)
    return text.getvalue().rstrip("\n")


def without_formula(value: Plain) -> Plain:
    """Return text on one line, with a leading apostrophe if a spreadsheet would read it as a formula."""
    if not isinstance(value, str):
        return value
    text = " ".join(value.split())
    return f"'{text}" if text.startswith(tuple("=+-@")) else text


TableFormat = Literal["md", "latex", "csv", "json", "html"]
TABLE_FORMATS: dict[TableFormat, Format] = {
    "md": Format("md", markdown),
    "latex": Format("tex", latex, notes="short"),  # a paper has little room
    "csv": Format("csv"),
    "json": Format("json"),
    "html": Format("html", html_table),
}
