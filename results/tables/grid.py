"""A grid of text, written as Markdown that lines up in a terminal, as LaTeX (booktabs) and as HTML."""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """What is shown, the value that it sorts by, the numbers of its footnotes."""

    text: str
    sort: float | str | None = None
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Grid:
    """A title, lines that explain the columns, rows of cells, numbered footnotes, closing lines.

    groups: (text, columns) of what stands above the header, from the first column on; none where nothing does.
    """

    title: str
    caption: list[str]
    header: list[str]
    numeric: list[bool]
    rows: list[list[Cell]]
    footnotes: list[str] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)
    groups: list[tuple[str, int]] = field(default_factory=list)
    label: str = ""  # what a document refers to it by, where that is not how the title begins


def number(notes: Sequence[Sequence[str]]) -> tuple[list[tuple[int, ...]], list[str]]:
    """The marks of each row's notes, and the footnotes in order; equal notes share a number."""
    texts = list(dict.fromkeys(note for row in notes for note in row))
    return [tuple(sorted(texts.index(note) + 1 for note in row)) for row in notes], texts


# -- Markdown ------------------------------------------------------------------------------------------------


MARKUP = frozenset("\\|`*<[")  # most cells have none of them
ESCAPED = re.compile(r"([\\|`*]|<(?=[A-Za-z/!?])|\[(?=[^\]]*\]\())")


def markdown(grid: Grid) -> str:
    """A pipe table, padded so that it lines up as it is."""
    body = [[escape_markdown(cell.text) + bracketed(cell.marks) for cell in row] for row in grid.rows]
    lines = [[escape_markdown(text) for text in grouped(grid)], *body]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(grid.header))]
    rule = [("-" * (w - 1) + ":") if n else "-" * w for w, n in zip(widths, grid.numeric, strict=True)]
    padded = [pad(line, widths, grid.numeric) for line in lines]
    rows = [padded[0], f"| {' | '.join(rule)} |", *padded[1:]]
    notes = [f"[{i}] {escape_markdown(note)}" for i, note in enumerate(grid.footnotes, 1)]
    prose = [escape_markdown(line) for line in (grid.title, *grid.caption)]
    blocks = [*prose, "\n".join(rows), "  \n".join(notes), *map(escape_markdown, grid.closing)]
    return "\n\n".join(block for block in blocks if block)


def grouped(grid: Grid) -> list[str]:
    """The header with each column's group before it: Markdown has no cell over several columns."""
    groups = [text for text, columns in grid.groups for _ in range(columns)] or [""] * len(grid.header)
    return [f"{group}: {text}" if group else text for group, text in zip(groups, grid.header, strict=True)]


def pad(line: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    cells = [t.rjust(w) if n else t.ljust(w) for t, w, n in zip(line, widths, numeric, strict=True)]
    return f"| {' | '.join(cells)} |"


def bracketed(marks: tuple[int, ...]) -> str:
    return f" [{','.join(map(str, marks))}]" if marks else ""


def escape_markdown(text: str) -> str:
    """No text becomes a cell border, markup or a tag; "<" before a number is none."""
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
    """A table environment; its document needs \\usepackage{booktabs}."""
    wide = bool(grid.groups) or len(grid.header) > ONE_COLUMN
    kind = "table*" if wide else "table"  # as wide as the page, or as one of its columns
    columns = "".join("r" if numeric else "l" for numeric in grid.numeric)
    lines = [" & ".join(escape_latex(cell.text) + raised(cell.marks) for cell in row) + r" \\" for row in grid.rows]
    notes = [rf"\textsuperscript{{{i}}} {escape_latex(note)}" for i, note in enumerate(grid.footnotes, 1)]
    below = [*notes, *map(escape_latex, grid.closing)]
    return "\n".join(
        [
            rf"\begin{{{kind}}}",
            r"\centering",
            rf"\caption{{{' '.join(map(escape_latex, [sentence(grid.title), *grid.caption]))}}}",
            rf"\label{{tab:{key(grid.label or grid.title.partition(': ')[0])}}}",
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


def sentence(title: str) -> str:
    """With an end: more sentences follow."""
    return title if title.endswith((".", "?", "!")) else f"{title}."


def key(label: str) -> str:
    """What the document refers to the table by: "pooling@digits" is pooling-digits."""
    return re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-").lower()


def latex_groups(grid: Grid) -> list[str]:
    """The groups over the header, each with a rule as wide as its columns."""
    if not grid.groups:
        return []
    cells, rules, first = [], "", 1
    for text, columns in grid.groups:
        cells.append(rf"\multicolumn{{{columns}}}{{c}}{{{escape_latex(text)}}}")
        rules += rf"\cmidrule(lr){{{first}-{first + columns - 1}}}" if text else ""
        first += columns
    return [" & ".join(cells) + r" \\", rules]


def raised(marks: tuple[int, ...]) -> str:
    return rf"\textsuperscript{{{','.join(map(str, marks))}}}" if marks else ""


def escape_latex(text: str) -> str:
    """The text itself, whatever characters it has; a minus sign before a digit is one."""
    escaped = "".join(LATEX.get(character, character) for character in " ".join(text.split()))
    return re.sub(r"(?<![\w.=-])-(?=\d)", "$-$", escaped)


# -- HTML ----------------------------------------------------------------------------------------------------


def html_table(grid: Grid) -> str:
    """A <figure> to stand in a page; every cell carries the value that a script may sort by."""
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
    return f"<th{aligned(numeric)}>{html.escape(text)}</th>"


def html_cell(cell: Cell, numeric: bool) -> str:
    marks = f"<sup>{','.join(map(str, cell.marks))}</sup>" if cell.marks else ""
    sort = "" if cell.sort is None else f' data-sort="{html.escape(str(cell.sort))}"'
    return f"<td{aligned(numeric)}{sort}>{html.escape(cell.text)}{marks}</td>"


def aligned(numeric: bool) -> str:
    return ' class="number"' if numeric else ""


def paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


WRITERS: dict[str, Callable[[Grid], str]] = {"md": markdown, "latex": latex, "html": html_table}
