"""Grids of text with numbered footnotes, from which tables for people are written."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

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
    columns). label: the name for references in LaTeX; "" for the beginning of the title.
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
        """The different notes of all cells, in the order of their numbers.

        Within a cell, notes that may change a verdict are numbered first.
        """
        cells = [cell for row in self.rows for cell in row]
        return list(dict.fromkeys(note for cell in cells for note in sorted(cell.notes, key=weight)))

    def marks(self, cell: Cell) -> str:
        """Return the numbers of a cell's footnotes, such as "1,3"."""
        return ",".join(map(str, sorted(self.footnotes.index(note) + 1 for note in cell.notes)))


def weight(note: str) -> int:
    """Return a footnote's rank in its cell: 0 if it may change a verdict, 1 for model sizes, 2 for minor notes."""
    return 2 if is_minor(note) else int(note.startswith(SIZES))


def is_minor(note: str) -> bool:
    """Return whether a note only counts the initial weights that equal the baseline's, which changes no verdict."""
    return INITIAL in note
