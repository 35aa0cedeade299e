"""The examples of a Markdown page: files to write and shell blocks to run, marked by a comment on the line before.

`<!-- file: NAME -->` before a block: its text is written to NAME.
`<!-- run -->` before a block of shell: it runs in bash, after all that stands above it.
`<!-- skip -->` before a block of shell: it cannot run here, as it needs a cluster, a GPU or a network.
`<!-- shows -->` before a block of shell: tables, by some of their columns, and quotes below it are from its output.
`<!-- shows: COMMAND -->`: the same of a command that readers do not see.
`<!-- setup`, shell and `-->`: runs too, unseen by readers.
`<!-- needs: NAME... -->`: packages that the page imports, and `$NAME`, variables of the environment that it uses.
`<!-- short: KEY=VALUE -->`: the setting that makes its trainings short, instead of steps=4.
"""

import importlib.util
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>run|skip|shows|file: (?P<file>\S+)) -->\n)?"
    r"(?P<fence>`{3,})(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$"
    r"|^<!-- setup\n(?P<setup>.*?)-->$",
    re.DOTALL | re.MULTILINE,
)
SHOWN = re.compile(
    r"^<!-- shows(?:: (?P<unseen>.+) -->\n| -->\n```sh\n(?P<seen>.+)\n```\n)(?P<text>(?:\n*[|>].*\n)+)", re.MULTILINE
)
SHELLS = ("sh", "bash", "shell", "console")
TRAINS = re.compile(r"^ablate (run|train|gate|bench|check)|^python", re.MULTILINE)
NEEDS = re.compile(r"^<!-- needs: (.+) -->$", re.MULTILINE)
SHORT = re.compile(r"^<!-- short: (\S+) -->$", re.MULTILINE)
# In the place of the command: it trains for few steps, which make another study of it for whoever reads it too.
ABLATE = """#!PYTHON
import sys

from ablations.cli import main

verb, *words = sys.argv[1:]
trains = verb in ("plan", "run", "seal", "train")
reads = verb in ("table", "plot", "report", "status", "logs", "inspect", "bundle") and words and words[0][0] != "-"
if trains or reads:
    sys.argv[1:] = [verb, *(word for word in words if not word.startswith(("steps=", "epochs="))), "SHORT"]
main()
"""


@dataclass(frozen=True)
class Example:
    """One block: a file's text, or shell with its mark: run, skip, setup or none."""

    mark: str
    text: str
    file: str = ""


def examples(page: str) -> Iterator[Example]:
    for block in BLOCK.finditer(page):
        if block["setup"]:
            yield Example("setup", block["setup"])
        elif block["file"]:
            yield Example("file", block["text"], block["file"])
        elif block["language"] in SHELLS:
            yield Example(block["mark"] or "", block["text"])


def shown(page: str) -> Iterator[tuple[str, list[list[str]], list[str]]]:
    """Yield a command, the cells of the tables below it and the quotes below it. All are from the command's output."""
    for block in SHOWN.finditer(page):
        quotes = [line[2:] for line in block["text"].splitlines() if line.startswith("> ")]
        yield block["unseen"] or block["seen"], cells(block["text"]), quotes


def cells(text: str) -> list[list[str]]:
    """Return the cells of all tables in Markdown, without rules and the numbers of footnotes."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line):
            rows.append([re.sub(r" \[[\d,]+\]$", "", cell.strip()) for cell in line.strip("|").split("|")])
    return rows


def trains(page: str) -> bool:
    """Whether running the page's examples takes more than seconds."""
    return any(TRAINS.search(one.text) for one in examples(page) if one.mark in ("run", "setup"))


def missing(page: str) -> list[str]:
    """Return what the page needs and what is not here."""
    names = [name for line in NEEDS.findall(page) for name in line.split()]
    variables = [name for name in names if name[0] == "$" and name[1:] not in os.environ]
    packages = [name for name in names if name[0] != "$" and importlib.util.find_spec(name) is None]
    return variables + packages


def run(page: str, folder: Path) -> None:
    """Follow the page in an empty folder. Raises AssertionError with the output of the block that fails."""
    binaries, work = folder / "bin", folder / "work"
    binaries.mkdir()
    work.mkdir()
    setting = SHORT.search(page)
    short = setting[1] if setting else "steps=4"
    (binaries / "ablate").write_text(ABLATE.replace("PYTHON", sys.executable).replace("SHORT", short))
    (binaries / "ablate").chmod(stat.S_IRWXU)
    path = os.pathsep.join([str(binaries), str(Path(sys.executable).parent), os.environ["PATH"]])
    for example in examples(page):
        if example.file:
            (work / example.file).parent.mkdir(parents=True, exist_ok=True)
            (work / example.file).write_text(example.text)
        elif example.mark in ("run", "setup"):
            shell = ["bash", "-euo", "pipefail", "-c", example.text]
            done = subprocess.run(shell, cwd=work, env=os.environ | {"PATH": path}, capture_output=True, text=True)
            assert done.returncode == 0, f"{example.text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
