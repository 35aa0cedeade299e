"""Tables of text with numbered footnotes (grids), and the formats of documents.

Markdown, LaTeX (booktabs) and HTML show grids; CSV and JSON hold values.
"""

import csv
import html
import io
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from commonfloor.messages import spelling_hint
from results.store.schemas.base import Plain

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

    numeric: columns aligned to the right. groups: headings above the header, as (text, number of columns). label: for
    references in LaTeX, by default the beginning of the title.
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
        """The distinct notes of all cells by number. Within a cell, sizes come last; minor notes come last of all."""
        distinct = dict[str, None]()
        for cell in itertools.chain.from_iterable(self.rows):
            distinct |= dict.fromkeys(sorted(cell.notes, key=lambda note: note.startswith(SIZES)))
        return sorted(distinct, key=is_minor)

    def marked_texts(self, escape: Callable[[str], str], form: str) -> list[list[str]]:
        """Return the escaped text of each cell with its footnote numbers in `form`."""

        def marked(cell: Cell) -> str:
            text = escape(cell.text)
            if cell.notes:
                text += form.format(self.footnote_numbers(cell))
            return text

        return [list(map(marked, row)) for row in self.rows]

    def footnote_numbers(self, cell: Cell) -> str:
        return ",".join(map(str, sorted(self.footnotes.index(note) + 1 for note in cell.notes)))

    def footnote_lines(self, escape: Callable[[str], str], form: str) -> list[str]:
        return [f"{form.format(number)} {escape(note)}" for number, note in enumerate(self.footnotes, 1)]


def is_minor(note: str) -> bool:
    """Return whether a note only counts initial weights equal to the baseline's, which changes no verdict."""
    return INITIAL in note


@dataclass(frozen=True)
class Format:
    """A format of documents.

    write: returns a grid as text, or None if the format holds values, all columns by default. notes: one of
    layout.NOTES.
    """

    suffix: str
    write: Callable[[Grid], str] | None = None
    notes: str = "all"


def find_format(format: str) -> Format:
    """Return the format with this name. Raises ValueError if there is none."""
    if format not in TABLE_FORMATS:
        raise ValueError(f"format={format}: one of {', '.join(TABLE_FORMATS)}{spelling_hint(format, TABLE_FORMATS)}")
    return TABLE_FORMATS[format]


# -- Markdown ------------------------------------------------------------------------------------------------


ESCAPED = re.compile(r"([\\|`*]|<(?=[A-Za-z/!?])|\[(?=[^\]]*\]\())")


def markdown(grid: Grid) -> str:
    """Return the grid as Markdown that lines up in a terminal. Group headings become prefixes in the header."""
    header = list(map(escape_markdown, grid.header))
    column = 0
    for text, count in grid.groups:
        for _ in range(count):
            if text:
                header[column] = f"{escape_markdown(text)}: {header[column]}"
            column += 1
    body = grid.marked_texts(escape_markdown, " [{}]")
    columns = []
    for is_numeric, *texts in zip(grid.numeric, header, *body, strict=True):
        width = max(3, *map(len, texts))
        align = str.ljust
        rule = "-" * width
        if is_numeric:
            align = str.rjust
            rule = f"{rule[1:]}:"
        head, *cells = [align(text, width) for text in texts]
        columns.append([head, rule, *cells])
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True))
    notes = "  \n".join(grid.footnote_lines(escape_markdown, "[{}]"))
    before = map(escape_markdown, (grid.title, *grid.caption))
    after = map(escape_markdown, grid.closing)
    return "\n\n".join(filter(None, [*before, table, notes, *after]))


def escape_markdown(text: str) -> str:
    """Return the text on one line, with cell borders, markup and tags escaped."""
    return ESCAPED.sub(r"\\\1", " ".join(text.split()))


# -- LaTeX ---------------------------------------------------------------------------------------------------

SUPERSCRIPT = r"\textsuperscript{{{}}}"
ONE_COLUMN = 6  # the most columns that fit one text column of a two-column paper
LATEX = str.maketrans(
    {
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
)


def latex(grid: Grid) -> str:
    """Return the grid as a LaTeX table environment, which needs the package booktabs."""
    kind = "table"  # as wide as one text column
    if grid.groups or len(grid.header) > ONE_COLUMN:
        kind = "table*"  # as wide as the page
    title = grid.title
    if not title.endswith((".", "?", "!")):
        title += "."
    label = re.sub(r"[^A-Za-z0-9]+", "-", grid.label or grid.title.partition(": ")[0]).strip("-").lower()
    lines = [
        rf"\begin{{{kind}}}",
        r"\centering",
        rf"\caption{{{' '.join(map(escape_latex, [title, *grid.caption]))}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{''.join('lr'[is_numeric] for is_numeric in grid.numeric)}}}",
        r"\toprule",
        *latex_groups(grid),
        latex_row(map(escape_latex, grid.header)),
        r"\midrule",
        *map(latex_row, grid.marked_texts(escape_latex, SUPERSCRIPT)),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    below = [*grid.footnote_lines(escape_latex, SUPERSCRIPT), *map(escape_latex, grid.closing)]
    if below:
        lines += [r"\par\smallskip\footnotesize\raggedright", " \\\\\n".join(below)]
    return "\n".join([*lines, rf"\end{{{kind}}}"])


def latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def latex_groups(grid: Grid) -> list[str]:
    if not grid.groups:
        return []
    cells = []
    rules = ""
    first = 1
    for text, columns in grid.groups:
        cells.append(rf"\multicolumn{{{columns}}}{{c}}{{{escape_latex(text)}}}")
        if text:
            rules += rf"\cmidrule(lr){{{first}-{first + columns - 1}}}"
        first += columns
    return [latex_row(cells), rules]


def escape_latex(text: str) -> str:
    escaped = " ".join(text.split()).translate(LATEX)
    return re.sub(r"(?<![\w.=-])-(?=\d)", "$-$", escaped)


# -- HTML ----------------------------------------------------------------------------------------------------

ALIGNED = {True: ' class="number"', False: ""}  # whether a column is numeric -> attribute of its cells


def html_table(grid: Grid) -> str:
    head = ""
    for text, is_numeric in zip(grid.header, grid.numeric, strict=True):
        head += f"<th{ALIGNED[is_numeric]}>{html.escape(text)}</th>"
    groups = ""
    for text, columns in grid.groups:
        groups += f'<th colspan="{columns}" scope="colgroup">{html.escape(text)}</th>'
    if groups:
        groups = f"<tr>{groups}</tr>"
    rows = []
    for cells, texts in zip(grid.rows, grid.marked_texts(html.escape, "<sup>{}</sup>"), strict=True):
        rows.append(f"<tr>{''.join(map(html_cell, cells, texts, grid.numeric))}</tr>")
    body = "\n".join(rows)
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in grid.footnotes)
    if notes:
        notes = f'<ol class="notes">{notes}</ol>'
    parts = [
        '<figure class="study-table">',
        f"<figcaption><strong>{html.escape(grid.title)}</strong>{paragraphs(grid.caption)}</figcaption>",
        f"<table>\n<thead>{groups}<tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>",
        notes,
        paragraphs(grid.closing),
        "</figure>",
    ]
    return "\n".join(filter(None, parts))


def html_cell(cell: Cell, text: str, is_numeric: bool) -> str:
    sort = ""
    if cell.sort is not None:
        sort = f' data-sort="{html.escape(str(cell.sort))}"'
    return f"<td{ALIGNED[is_numeric]}{sort}>{text}</td>"


def paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


# -- CSV -----------------------------------------------------------------------------------------------------


def as_csv(rows: Sequence[Mapping[str, Plain]]) -> str:
    """Return one or more rows as CSV, with no text that starts a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(without_formula, rows[0]))
    writer.writerows(map(without_formula, row.values()) for row in rows)
    return text.getvalue().rstrip("\n")


def without_formula(value: Plain) -> Plain:
    if not isinstance(value, str):
        return value
    text = " ".join(value.split())
    if text.startswith(tuple("=+-@")):
        text = f"'{text}"
    return text


TableFormat = Literal["md", "latex", "csv", "json", "html"]
TABLE_FORMATS: dict[TableFormat, Format] = {
    "md": Format("md", markdown),
    "latex": Format("tex", latex, notes="short"),  # a paper has little room
    "csv": Format("csv"),
    "json": Format("json"),
    "html": Format("html", html_table),
}
