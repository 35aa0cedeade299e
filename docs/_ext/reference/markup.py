"""Pieces of MyST Markdown that the generated pages share."""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

ARXIV = re.compile(r"\b(?:arXiv )?(\d{4}\.\d{5})\b")
CODE = re.compile(r"(`+.*?`+)", re.DOTALL)
SPECIAL = re.compile(r"([\\*_<>\[\]{}|$#~])")


def prose(text: str) -> str:
    """Escape plain text, in which backticks mark code, and link its arXiv papers."""
    parts = CODE.split(text)
    return "".join(part if k % 2 else linked(SPECIAL.sub(r"\\\1", part)) for k, part in enumerate(parts))


def linked(text: str) -> str:
    return ARXIV.sub(r"[\g<0>](https://arxiv.org/abs/\1)", text)


def code(value: object) -> str:
    """Return a value as code, also for a cell of a table."""
    return f"`{value}`".replace("|", "\\|")


def choices(values: Iterable[object]) -> str:
    *first, last = map(code, values)
    return f"{', '.join(first)} or {last}" if first else last


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(' '.join(cell.split()) for cell in line)} |" for line in lines) + "\n"


def fence(directive: str, argument: str, content: str, **options: str) -> str:
    """Return a directive whose fence is longer than any fence in its content."""
    ticks = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", content))])
    given = "".join(f":{key}: {value}\n" for key, value in options.items() if value)
    return f"{ticks}{{{directive}}} {argument}\n{given}\n{content.strip()}\n{ticks}\n"


def shell(lines: Iterable[str]) -> str:
    return "```sh\n" + "\n".join(lines) + "\n```\n"


def toctree(pages: Iterable[str]) -> str:
    """Return a list of subpages for the sidebar, hidden on the page itself."""
    return "```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def comments(path: Path) -> str:
    """Return the comment at the head of a YAML file as one paragraph."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text().splitlines())
    return " ".join(line.removeprefix("#").strip() for line in lines).strip()


def literal(path: Path) -> str:
    return f"`````yaml\n{path.read_text()}`````\n"
