"""A style: how tables, plots and the report look. It never changes what they say, nor which trial is which.

Like matplotlib's rcParams it holds for everything that is drawn or written while it is in use: `with use(style): ...`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from results.did_you_mean import nearest

FULL, COLUMN = 7.0, 3.4  # inches: the text width and the column width of a two-column paper

# Okabe and Ito, "Color Universal Design" (2008), without the yellow that white paper swallows.
BLACK = "#000000"
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"


@dataclass(frozen=True)
class Style:
    """full, column, width: inches, `width` is what a plot takes; dpi: of a PNG; title, text, small: points.

    colours, labels: by the name of an arm, of one of its settings ("pool=gap"), of a family; labels also of a setting
    ("lr") or metric. order: such names, what is named first comes first. digits: of accuracy, loss, p; without an entry
    tables and plots have their own. heading, notes: whether a plot carries the study's question, and what explains it.
    """

    full: float = FULL
    column: float = COLUMN
    width: float = FULL
    dpi: float = 200
    family: str = "DejaVu Sans"  # comes with matplotlib, so every machine has the same one
    title: float = 9.0
    text: float = 7.5
    small: float = 6.5
    baseline: str = BLACK
    better: str = BLUE
    worse: str = VERMILION
    palette: tuple[str, ...] = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
    colours: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    digits: Mapping[str, int] = field(default_factory=dict)
    heading: bool = True
    notes: bool = True

    def label(self, name: str) -> str:
        """The name itself where nothing in it has a label."""
        if name in self.labels:
            return self.labels[name]
        parts = name.split(",")
        return ", ".join(self.labels.get(p, p) for p in parts) if set(parts) & self.labels.keys() else name

    def colour(self, name: str) -> str | None:
        return next((self.colours[part] for part in (name, *name.split(",")) if part in self.colours), None)

    def rank(self, name: str) -> int:
        """The place of an arm in `order`; those that it does not name keep theirs, behind."""
        parts = {name, *name.split(",")}
        return next((i for i, entry in enumerate(self.order) if entry in parts), len(self.order))


_DEFAULT = Style()
_CURRENT: ContextVar[Style | None] = ContextVar("style", default=None)


def current() -> Style:
    return _CURRENT.get() or _DEFAULT


@contextmanager
def use(style: Style) -> Iterator[None]:
    token = _CURRENT.set(style)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def naming(labels: Mapping[str, str]) -> AbstractContextManager[None]:
    """Uses the current style, with these labels where it has none."""
    return use(replace(current(), labels={**labels, **current().labels}))


# -- from a file ------------------------------------------------------------------------------------------------------

SECTIONS = ("size", "fonts", "colours", "order", "labels", "digits", "title", "notes")
SIZES = ("width", "full", "column", "dpi")
FONTS = ("family", "title", "text", "small")
ROLES = ("baseline", "better", "worse")
DIGITS = ("accuracy", "loss", "p")


def parse(content: Mapping[str, Any]) -> Style:
    """The style that a file's mapping asks for. Raises ValueError: one line with key, value and what is allowed."""
    known("", content, SECTIONS)
    chosen: dict[str, Any] = {}
    chosen |= sizes(mapping("size", content))
    chosen |= fonts(mapping("fonts", content))
    chosen |= colours(mapping("colours", content))
    chosen["order"] = texts("order", content.get("order", []))
    chosen["labels"] = {name: text(f"labels.{name}", label) for name, label in mapping("labels", content).items()}
    chosen["digits"] = known("digits", mapping("digits", content), DIGITS)
    for name, value in chosen["digits"].items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10:
            raise wrong(f"digits.{name}", value, "a whole number from 0 to 10")
    chosen |= {"heading": flag("title", content), "notes": flag("notes", content)}
    return Style(**chosen)


def flag(key: str, content: Mapping[str, Any]) -> bool:
    value = content.get(key, True)
    if not isinstance(value, bool):
        raise wrong(key, value, "true or false")
    return value


def sizes(section: Mapping[str, Any]) -> dict[str, float]:
    known("size", section, SIZES)
    found = {"full": FULL, "column": COLUMN} | {
        name: between(f"size.{name}", value, 1, 1200 if name == "dpi" else 50)
        for name, value in section.items()
        if not (name == "width" and isinstance(value, str))
    }
    width = section.get("width", "full")
    if isinstance(width, str) and width not in ("full", "column"):
        raise wrong("size.width", width, "full, column, or inches")
    return {"width": found[str(width)] if isinstance(width, str) else width, **found}


def fonts(section: Mapping[str, Any]) -> dict[str, Any]:
    known("fonts", section, FONTS)
    return {
        name: text("fonts.family", value) if name == "family" else between(f"fonts.{name}", value, 1, 72)
        for name, value in section.items()
    }


def colours(section: Mapping[str, Any]) -> dict[str, Any]:
    """`baseline better worse` and the list `palette` are parts that colours play; every other key is a name."""
    found: dict[str, Any] = {"colours": {}}
    for name, value in section.items():
        if name == "palette":
            found["palette"] = tuple(colour("colours.palette", one) for one in texts("colours.palette", value))
            if not found["palette"]:
                raise wrong("colours.palette", value, "at least one colour")
        else:
            (found if name in ROLES else found["colours"])[name] = colour(f"colours.{name}", value)
    return found


def colour(key: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("#[0-9a-fA-F]{6}", value):
        raise wrong(key, value, "a colour as '#0072B2', in quotation marks")
    return value


def mapping(key: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    section = content.get(key, {})
    if not isinstance(section, Mapping):
        raise wrong(key, section, "a mapping of names to values")
    return section


def texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise wrong(key, value, "a list")
    return tuple(text(key, one) for one in value)


def text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise wrong(key, value, "text")
    return value


def between(key: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise wrong(key, value, f"a number from {low:g} to {high:g}")
    return value


def known(section: str, found: Mapping[str, Any], allowed: Sequence[str]) -> Mapping[str, Any]:
    for name in found:
        if name not in allowed:
            key = f"{section}.{name}" if section else name
            raise ValueError(f"unknown key {key}: one of {', '.join(allowed)}{nearest(name, allowed)}")
    return found


def wrong(key: str, value: Any, allowed: str) -> ValueError:
    return ValueError(f"{key}={value}: allowed is {allowed}")
