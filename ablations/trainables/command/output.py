"""What a command prints and writes: a bounded log, metrics, a training curve, and which test images it got right."""

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from ablations.trainables.user_code import checked_number, finite
from commonfloor.files import FULL, open_no_follow, read_bytes
from commonfloor.messages import listed, spelling_hint
from results import store
from results.store.schemas.base import validated
from results.store.schemas.trials import MetricsLine

if TYPE_CHECKING:
    from results.store.record import Correct

HEAD, TAIL, MOST = 1 << 20, 1 << 23, 1 << 24  # bytes of a log: kept of its beginning and end; the maximum
LONGEST_LINE = 1 << 16  # bytes
LAST = 1 << 14  # bytes of output in which the reason of a failure is looked for
METRIC = re.compile(r"METRIC\s+(.+)")
COLOR = re.compile(r"\x1b\[[0-9;]*m")  # how a terminal is told to color text
NUMBER = re.compile(
    r"\s*([-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)\b)",
    re.IGNORECASE,
)  # 0.5, 1e-3, 1,234.5, nan
DIVERGED = "DIVERGED"  # a line by which a command says that training diverged
METRICS, CURVE = "metrics.json", "metrics.jsonl"  # files in a command's folder


class Log:
    """The log of a command. Once it has more than MOST bytes, its middle is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out = 0
        self.last = b""  # the end of the output

    def write(self, output: bytes) -> None:
        """Append output. On a full disk it is lost, because it is worth less than the trial."""
        self.last = (self.last + output)[-LAST:]
        try:
            with open(self.path, "a+b", buffering=0, opener=open_no_follow) as file:
                file.write(output)
                if file.tell() > MOST:
                    self.shorten(file)
        except OSError as error:
            if error.errno not in FULL:
                raise

    def shorten(self, file: FileIO) -> None:
        size = file.tell()
        file.seek(size - TAIL)
        tail = file.read(TAIL)
        self.left_out += size - HEAD - TAIL
        file.truncate(HEAD)
        file.write(f"\n[... {self.left_out:,} bytes left out ...]\n".encode() + tail)

    def last_lines(self) -> list[str]:
        lines = self.last.decode(errors="replace").replace("\r", "\n").splitlines()
        return [line.strip() for line in lines if line.strip()]


class LineSplitter:
    """Splits the output of a command into lines, for `use`. A line ends with the output, too."""

    def __init__(self, use: Callable[[str], None]) -> None:
        self.use = use
        self.rest = b""  # the unfinished last line

    def read(self, output: bytes) -> None:
        end = b"" if output else b"\n"
        *lines, rest = (self.rest + output.replace(b"\r", b"\n") + end).split(b"\n")
        self.rest = rest[:LONGEST_LINE]
        for line in lines:
            self.use(line.decode(errors="replace").strip())


class Report:
    """The metrics that a command reports: by METRIC lines on standard output, after texts, or in metrics.json."""

    def __init__(self, printed: Mapping[str, str]) -> None:
        self.printed = printed
        self.values: dict[str, list[str]] = {}  # as text
        self.unclear: list[str] = []  # METRIC lines without name=number
        self.diverged = False

    def read_line(self, line: str) -> None:
        if line == DIVERGED:
            self.diverged = True
        reported = METRIC.fullmatch(line)
        if reported:
            for word in reported[1].split():
                name, equals, value = word.partition("=")
                if equals:
                    self.values.setdefault(name, []).append(value)
                elif line not in self.unclear:
                    self.unclear.append(line)
        self.find_printed(line)

    def find_printed(self, line: str) -> None:
        """Look for the numbers after texts of `printed` in a line of either output. The last one counts."""
        plain = COLOR.sub("", line)
        for name, text in self.printed.items():
            if not text or text not in plain:
                continue
            number = NUMBER.match(plain.rpartition(text)[2])
            if number:
                self.values[name] = [number[1].replace(",", "")]

    def read_file(self, path: Path) -> None:
        """Read metrics.json, if the command has written it. Raises ValueError if it is not an object of JSON."""
        try:
            content = json.loads(read_bytes(path))
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{METRICS} cannot be read ({error})") from None
        if not isinstance(content, dict):
            raise ValueError(f"{METRICS}: an object, as in {{{next(iter(self.printed))!r}: 0.5}}")
        for name, value in content.items():
            self.values.setdefault(name, []).append(json.dumps(value))

    def numbers(self) -> dict[str, float]:
        return {name: self.number(name) for name in self.printed}

    def number(self, name: str) -> float:
        if name not in self.values:
            raise ValueError(f"metric {name} was not reported{self.why_missing(name)}")
        texts = {as_number(name, value): value for value in self.values[name]}
        if len(texts) > 1:
            raise ValueError(f"metric {name} came with {len(texts)} values: {listed([*texts.values()])}")
        return checked_number(name, next(iter(texts)), f"a command whose training diverged prints {DIVERGED}")

    def why_missing(self, name: str) -> str:
        if self.printed[name]:
            return f": no number was printed after {self.printed[name]!r}"
        if self.unclear:
            return f": {self.unclear[0][:80]}: write METRIC {name}=NUMBER"
        return spelling_hint(name, self.values) or f": print METRIC {name}=NUMBER, or write it to {METRICS}"


def as_number(name: str, text: str) -> float:
    """Return a reported value as a number. All NaN are one object, so that they are one value."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"metric {name}={text[:40]}: a number") from None
    return math.nan if math.isnan(number) else number


class Curve:
    """The lines of metrics.jsonl in a command's folder. Later lines replace those of their step and after."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: tuple[int, int] | None = None  # time and size of the file
        self.rest = ""  # the last line, as long as no newline ends it
        self.lines: list[MetricsLine] = []
        self.diverged = False  # whether the last line has a number that is not finite
        self.unclear = ""

    def has_changed(self) -> bool:
        try:
            about = self.path.stat()
            seen = about.st_mtime_ns, about.st_size
            if seen == self.seen:
                return False
            text = read_bytes(self.path).decode(errors="replace")
        except (OSError, store.Broken):  # it has none, or one that is too large
            return False
        self.seen = seen
        self.lines = []
        *lines, self.rest = text.split("\n")
        for line in lines:
            self.add(line)
        return True

    def end(self) -> None:
        """Take the last line as it is, because the command has ended, unless it was torn."""
        with suppress(ValueError, RecursionError):
            json.loads(self.rest)
            self.add(self.rest)

    def add(self, text: str) -> None:
        try:
            content = json.loads(text)
            numbers = {key: value for key, value in content.items() if type(value) in (int, float)}
            line = validated(MetricsLine, finite(numbers))
        except (ValueError, AttributeError, RecursionError, OverflowError):
            self.unclear = self.unclear or text[:80]
            return
        while self.lines and self.lines[-1].step > line.step:
            self.lines.pop()
        if self.step == line.step and self.lines:
            numbers_before = self.lines.pop().model_dump(exclude_unset=True)
            line = validated(MetricsLine, {**numbers_before, **finite(numbers)})
        self.lines.append(line)
        self.diverged = None in line.model_dump(exclude_unset=True).values()

    @property
    def numbers(self) -> dict[str, float]:
        extra = self.lines[-1].model_extra if self.lines else None
        return {name: value for name, value in (extra or {}).items() if value is not None}

    @property
    def step(self) -> int:
        return self.lines[-1].step if self.lines else 0


def read_correct(folder: Path) -> "Correct | None":
    """Return the arrays of a command's correct.npz, or None if it has written none. Raises ValueError if damaged."""
    import numpy as np  # late, as the next: commands that read recipes need no arrays

    from results.store.record import CORRECT, parse_correct

    try:
        index, correct = parse_correct(read_bytes(folder / CORRECT))
    except FileNotFoundError:
        return None
    if len(np.unique(index)) < len(index) or (index < 0).any():
        raise ValueError(f"{CORRECT}: index: each test image once, counted from 0")
    return index, correct
