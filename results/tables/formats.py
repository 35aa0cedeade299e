"""The formats of tables: Markdown, LaTeX (booktabs) and HTML show grids of text; CSV and JSON hold values."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.names import suggestion
from results.tables.grid import Cell, Grid

if TYPE_CHECKING:
    from results.store.schemas import Plain


@dataclass(frozen=True)
class Document:
    """The contents of a document as functions, so that each format computes only what it needs.

    grids: the tables of text. rows: the rows of a CSV file, as dicts from column to value. record: the JSON object.
    """

    grids: Callable[[], Sequence[Grid]]
    rows: Callable[[], Sequence[Mapping[str, Plain]]]
    record: Callable[[], Any]


@dataclass(frozen=True)
class Format:
    """A format of documents.

    suffix: the files' suffix. notes: the default choice of layout.NOTES. all_columns: whether every column is written
    by default.
    """

    suffix: str
    write: Callable[[Document], str]
    notes: str = "all"
    all_columns: bool = False


def named(format: str) -> Format:
    """Return the format of this name; raise ValueError if there is none."""
    if format not in FORMATS:
        raise ValueError(f"format={format}: one of {', '.join(FORMATS)}{suggestion(format, FORMATS)}")
    return FORMATS[format]


def marked_texts(grid: Grid, escape: Callable[[str], str], form: str) -> list[list[str]]:
    """Return the escaped text of each cell with its footnote numbers, formatted by `form`, such as " [{}]"."""
    return [[escape(c.text) + (form.format(grid.marks(c)) if c.notes else "") for c in row] for row in grid.rows]


# -- Markdown ------------------------------------------------------------------------------------------------


MARKUP = frozenset("\\|`*<[")  # absent from most cells
ESCAPED = re.compile(r"([\\|`*]|<(?=[A-Za-z/!?])|\[(?=[^\]]*\]\())")


def markdown(grid: Grid) -> str:
    """Return the grid as Markdown: title, caption, table, footnotes and closing lines.

    The table is padded to line up in a terminal. Group headings become prefixes in the header, because a cell in
    Markdown cannot span columns.
    """
    groups = [text for text, columns in grid.groups for _ in range(columns)] or [""] * len(grid.header)
    header = [f"{group}: {text}" if group else text for group, text in zip(groups, grid.header, strict=True)]
    body = marked_texts(grid, escape_markdown, " [{}]")
    lines = [list(map(escape_markdown, header)), *body]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(header))]
    rule = [("-" * (w - 1) + ":") if n else "-" * w for w, n in zip(widths, grid.numeric, strict=True)]
    rows = []
    for line in (lines[0], rule, *body):
        cells = [t.rjust(w) if n else t.ljust(w) for t, w, n in zip(line, widths, grid.numeric, strict=True)]
        rows.append(f"| {' | '.join(cells)} |")
    notes = [f"[{i}] {escape_markdown(note)}" for i, note in enumerate(grid.footnotes, 1)]
    prose = map(escape_markdown, (grid.title, *grid.caption))
    blocks = [*prose, "\n".join(rows), "  \n".join(notes), *map(escape_markdown, grid.closing)]
    return "\n\n".join(filter(None, blocks))


def escape_markdown(text: str) -> str:
    """Return the text on one line, with cell borders, markup and tags escaped but not "<" before a number."""
    line = " ".join(text.split())
    return line if MARKUP.isdisjoint(line) else ESCAPED.sub(r"\\\1", line)


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
    body = marked_texts(grid, escape_latex, r"\textsuperscript{{{}}}")
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
    if not grid.groups:
        return []
    cells, rules, first = [], "", 1
    for text, columns in grid.groups:
        cells.append(rf"\multicolumn{{{columns}}}{{c}}{{{escape_latex(text)}}}")
        rules += rf"\cmidrule(lr){{{first}-{first + columns - 1}}}" if text else ""
        first += columns
    return [" & ".join(cells) + r" \\", rules]


def escape_latex(text: str) -> str:
    """Return the text on one line, with LaTeX's special characters escaped and minus signs before digits typeset."""
    escaped = "".join(LATEX.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"(?<![\w.=-])-(?=\d)", "$-$", escaped)


# -- HTML ----------------------------------------------------------------------------------------------------

ALIGNED = {True: ' class="number"', False: ""}  # the attribute of a cell, by whether its column is numeric


def html_table(grid: Grid) -> str:
    """Return the grid as an HTML figure with a table whose cells carry the values to sort by."""
    columns = zip(grid.header, grid.numeric, strict=True)
    head = "".join(f"<th{ALIGNED[numeric]}>{html.escape(text)}</th>" for text, numeric in columns)
    over = "".join(f'<th colspan="{n}" scope="colgroup">{html.escape(text)}</th>' for text, n in grid.groups)
    groups = f"<tr>{over}</tr>" if over else ""
    texts = marked_texts(grid, html.escape, "<sup>{}</sup>")
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
    """Return rows, at least one, as CSV with numbers in full precision and no text that starts a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(without_formula, rows[0]))
    writer.writerows(map(without_formula, row.values()) for row in rows)
    return text.getvalue().rstrip("\n")


def without_formula(value: Plain) -> Plain:
    """Return a text on one line, with a leading apostrophe if a spreadsheet would read it as a formula.

    A value that is not a text is returned unchanged.
    """
    if not isinstance(value, str):
        return value
    text = " ".join(value.split())
    return f"'{text}" if text.startswith(tuple("=+-@")) else text


def json_text(document: Document) -> str:
    """Return a document as indented JSON."""
    from results.records import as_json  # late: pydantic, which listing the formats does without

    return as_json(document.record())


def each_grid(write: Callable[[Grid], str]) -> Callable[[Document], str]:
    """Return a function that writes all grids of a document with `write`, joined by blank lines."""
    return lambda document: "\n\n".join(map(write, document.grids()))


FORMATS = {
    "md": Format("md", each_grid(markdown)),
    "latex": Format("tex", each_grid(latex), notes="short"),  # a paper has little room
    "csv": Format("csv", lambda document: as_csv(document.rows()), all_columns=True),
    "json": Format("json", json_text, all_columns=True),
    "html": Format("html", each_grid(html_table)),
}
