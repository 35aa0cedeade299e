"""The formats of tables: Markdown, LaTeX (booktabs) and HTML from a grid of text; CSV and JSON from records."""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from results.did_you_mean import suggestion
from results.tables.grid import Cell, Grid


@dataclass(frozen=True)
class Format:
    """A format: the suffix of its files, its writer if it shows a grid, and which notes it has by default."""

    suffix: str
    write: Callable[[Grid], str] | None = None
    notes: str = "all"


def write_grid(grid: Grid, format: str) -> str:
    """Write a grid in a format of FORMATS. Raises ValueError for a format that is unknown or shows no grid."""
    write = FORMATS[format].write if format in FORMATS else None
    if write is None:
        raise ValueError(f"format={format}: one of {', '.join(FORMATS)}{suggestion(format, FORMATS)}")
    return write(grid)


# -- Markdown ------------------------------------------------------------------------------------------------


MARKUP = frozenset("\\|`*<[")  # most cells have none of them
ESCAPED = re.compile(r"([\\|`*]|<(?=[A-Za-z/!?])|\[(?=[^\]]*\]\())")


def markdown(grid: Grid) -> str:
    """Write a pipe table, padded to line up in a terminal."""
    body = [[escape_markdown(cell.text) + markdown_marks(cell.marks) for cell in row] for row in grid.rows]
    lines = [[escape_markdown(text) for text in header_with_groups(grid)], *body]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(grid.header))]
    rule = [("-" * (w - 1) + ":") if n else "-" * w for w, n in zip(widths, grid.numeric, strict=True)]
    padded = [padded_line(line, widths, grid.numeric) for line in lines]
    rows = [padded[0], f"| {' | '.join(rule)} |", *padded[1:]]
    notes = [f"[{i}] {escape_markdown(note)}" for i, note in enumerate(grid.footnotes, 1)]
    prose = [escape_markdown(line) for line in (grid.title, *grid.caption)]
    blocks = [*prose, "\n".join(rows), "  \n".join(notes), *map(escape_markdown, grid.closing)]
    return "\n\n".join(block for block in blocks if block)


def header_with_groups(grid: Grid) -> list[str]:
    """Return the header with each column's group as a prefix, as Markdown cannot span columns."""
    groups = [text for text, columns in grid.groups for _ in range(columns)] or [""] * len(grid.header)
    return [f"{group}: {text}" if group else text for group, text in zip(groups, grid.header, strict=True)]


def padded_line(line: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    """Pad a line of cells to the column widths."""
    cells = [t.rjust(w) if n else t.ljust(w) for t, w, n in zip(line, widths, numeric, strict=True)]
    return f"| {' | '.join(cells)} |"


def markdown_marks(marks: tuple[int, ...]) -> str:
    """Write footnote marks in brackets."""
    return f" [{','.join(map(str, marks))}]" if marks else ""


def escape_markdown(text: str) -> str:
    """Escape cell borders, markup and tags; "<" before a number stays."""
    line = " ".join(text.split())
    return line if MARKUP.isdisjoint(line) else ESCAPED.sub(r"\\\1", line)


# -- LaTeX ---------------------------------------------------------------------------------------------------

ONE_COLUMN = 6  # columns of a table that fit into one of a paper's two
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
    """Write a table environment, which needs \\usepackage{booktabs}."""
    wide = bool(grid.groups) or len(grid.header) > ONE_COLUMN
    kind = "table*" if wide else "table"  # as wide as the page, or as one of its columns
    columns = "".join("r" if numeric else "l" for numeric in grid.numeric)
    lines = [
        " & ".join(escape_latex(cell.text) + latex_marks(cell.marks) for cell in row) + r" \\" for row in grid.rows
    ]
    notes = [rf"\textsuperscript{{{i}}} {escape_latex(note)}" for i, note in enumerate(grid.footnotes, 1)]
    below = [*notes, *map(escape_latex, grid.closing)]
    return "\n".join(
        [
            rf"\begin{{{kind}}}",
            r"\centering",
            rf"\caption{{{' '.join(map(escape_latex, [as_sentence(grid.title), *grid.caption]))}}}",
            rf"\label{{tab:{latex_label(grid.label or grid.title.partition(': ')[0])}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            *latex_groups(grid),
            " & ".join(map(escape_latex, grid.header)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            *([r"\par\smallskip\footnotesize\raggedright", (" \\\\\n").join(below)] if below else []),
            rf"\end{{{kind}}}",
        ]
    )


def as_sentence(title: str) -> str:
    """End the title with a period unless it ends a sentence already."""
    return title if title.endswith((".", "?", "!")) else f"{title}."


def latex_label(label: str) -> str:
    """Return a label for references: "pooling@digits" becomes pooling-digits."""
    return re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-").lower()


def latex_groups(grid: Grid) -> list[str]:
    """Write the groups above the header, each with a rule over its columns."""
    if not grid.groups:
        return []
    cells, rules, first = [], "", 1
    for text, columns in grid.groups:
        cells.append(rf"\multicolumn{{{columns}}}{{c}}{{{escape_latex(text)}}}")
        rules += rf"\cmidrule(lr){{{first}-{first + columns - 1}}}" if text else ""
        first += columns
    return [" & ".join(cells) + r" \\", rules]


def latex_marks(marks: tuple[int, ...]) -> str:
    """Write footnote marks as superscripts."""
    return rf"\textsuperscript{{{','.join(map(str, marks))}}}" if marks else ""


def escape_latex(text: str) -> str:
    """Escape LaTeX's special characters, and typeset minus signs before digits."""
    escaped = "".join(LATEX.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"(?<![\w.=-])-(?=\d)", "$-$", escaped)


# -- HTML ----------------------------------------------------------------------------------------------------


def html_table(grid: Grid) -> str:
    """Write an HTML figure with a table whose cells carry the values to sort by."""
    head = "".join(map(html_header, grid.header, grid.numeric))
    over = "".join(f'<th colspan="{n}" scope="colgroup">{html.escape(text)}</th>' for text, n in grid.groups)
    groups = f"<tr>{over}</tr>" if over else ""
    body = "\n".join(f"<tr>{''.join(map(html_cell, row, grid.numeric))}</tr>" for row in grid.rows)
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in grid.footnotes)
    parts = [
        '<figure class="study-table">',
        f"<figcaption><strong>{html.escape(grid.title)}</strong>{paragraphs(grid.caption)}</figcaption>",
        f"<table>\n<thead>{groups}<tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>",
        f'<ol class="notes">{notes}</ol>' if notes else "",
        paragraphs(grid.closing),
        "</figure>",
    ]
    return "\n".join(part for part in parts if part)


def html_header(text: str, numeric: bool) -> str:
    """Write a header cell."""
    return f"<th{html_alignment(numeric)}>{html.escape(text)}</th>"


def html_cell(cell: Cell, numeric: bool) -> str:
    """Write a body cell with its sortable value and footnote marks."""
    marks = f"<sup>{','.join(map(str, cell.marks))}</sup>" if cell.marks else ""
    sort = "" if cell.sort is None else f' data-sort="{html.escape(str(cell.sort))}"'
    return f"<td{html_alignment(numeric)}{sort}>{html.escape(cell.text)}{marks}</td>"


def html_alignment(numeric: bool) -> str:
    """Return the class attribute of numeric cells."""
    return ' class="number"' if numeric else ""


def paragraphs(lines: Sequence[str]) -> str:
    """Write lines as HTML paragraphs."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


FORMATS = {
    "md": Format("md", markdown),
    "latex": Format("tex", latex, notes="short"),  # a paper has little room
    "csv": Format("csv"),
    "json": Format("json"),
    "html": Format("html", html_table),
}
