"""Grids of text with numbered footnotes, from which tables for people are written."""

from collections.abc import Sequence
from dataclasses import dataclass, field

SIZES, INITIAL = ("parameters ", "FLOPs "), "of its initial weights are the baseline's"


@dataclass(frozen=True)
class Cell:
    """A cell of a grid: its text, the value to sort by, and the numbers of its footnotes."""

    text: str
    sort: float | str | None = None
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Grid:
    """A table of text with title, caption lines, numbered footnotes and closing lines.

    numeric: which columns are aligned to the right. groups: the headings above the header, as (text, number of
    columns). label: the name for references in LaTeX; "" for the beginning of the title.
    """

    title: str
    caption: list[str]
    header: list[str]
    numeric: list[bool]
    rows: list[list[Cell]]
    footnotes: list[str] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)
    groups: list[tuple[str, int]] = field(default_factory=list)
    label: str = ""


def number_notes(notes: Sequence[Sequence[str]]) -> tuple[list[tuple[int, ...]], list[str]]:
    """Return the footnote numbers of each row, and the footnotes in the order of their numbers.

    Equal notes share a number. Within a row, notes that may change a verdict are numbered first.
    """
    texts = list(dict.fromkeys(note for row in notes for note in sorted(row, key=weight)))
    return [tuple(sorted(texts.index(note) + 1 for note in row)) for row in notes], texts


def weight(note: str) -> int:
    """Return a footnote's rank in its row: 0 if it may change a verdict, 1 for model sizes, 2 for minor notes."""
    return 2 if is_minor(note) else int(note.startswith(SIZES))


def is_minor(note: str) -> bool:
    """Return whether a note only counts the initial weights that equal the baseline's, which changes no verdict."""
    return INITIAL in note
