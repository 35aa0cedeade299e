"""A style: how tables, figures and the report look, never what they say.

Like matplotlib's rcParams, a style applies while it is in use: `with use(style): ...`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from results.did_you_mean import suggestion

FULL, COLUMN = 7.0, 3.4  # inches: the text width and the column width of a two-column paper

# Okabe and Ito, "Color Universal Design" (2008), without the yellow that white paper swallows.
BLACK = "#000000"
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"


@dataclass(frozen=True)
class Style:
    """Sizes, fonts, colors, labels, order and digits.

    full, column, width: inches; figures take `width`. dpi: of PNG files. title, text, small: font sizes in points.
    colours, labels: by arm, setting ("pool=gap") or family; labels also by factor ("lr") or metric. order: names that
    come first. digits: by "accuracy", "loss" or "p". heading, notes: whether a figure shows the question and its notes.
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
        """Return the label of an arm or setting; the name itself where none applies."""
        if name in self.labels:
            return self.labels[name]
        parts = name.split(",")
        return ", ".join(self.labels.get(p, p) for p in parts) if set(parts) & self.labels.keys() else name

    def colour(self, name: str) -> str | None:
        """Return the color of an arm or of one of its settings; None for the default."""
        return next((self.colours[part] for part in (name, *name.split(",")) if part in self.colours), None)

    def rank(self, name: str) -> int:
        """Return an arm's place in `order`; unnamed arms come last and keep their order."""
        parts = {name, *name.split(",")}
        return next((i for i, entry in enumerate(self.order) if entry in parts), len(self.order))


_DEFAULT = Style()
_CURRENT: ContextVar[Style | None] = ContextVar("style", default=None)


def current() -> Style:
    """Return the style in use."""
    return _CURRENT.get() or _DEFAULT


@contextmanager
def use(style: Style) -> Iterator[None]:
    """Use a style within a `with` block."""
    token = _CURRENT.set(style)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def use_labels(labels: Mapping[str, str]) -> AbstractContextManager[None]:
    """Use the current style with default labels, which the labels of the style override."""
    return use(replace(current(), labels={**labels, **current().labels}))


# -- from a file ------------------------------------------------------------------------------------------------------

SECTIONS = ("size", "fonts", "colours", "order", "labels", "digits", "title", "notes")
SIZES = ("width", "full", "column", "dpi")
FONTS = ("family", "title", "text", "small")
ROLES = ("baseline", "better", "worse")
DIGITS = ("accuracy", "loss", "p")


def parse(content: Mapping[str, Any]) -> Style:
    """Build a style from a file's mapping. Raises ValueError naming the key, the value and what is allowed."""
    check_keys("", content, SECTIONS)
    chosen: dict[str, Any] = {}
    chosen |= sizes(mapping("size", content))
    chosen |= fonts(mapping("fonts", content))
    chosen |= colours(mapping("colours", content))
    chosen["order"] = texts("order", content.get("order", []))
    chosen["labels"] = {name: text(f"labels.{name}", label) for name, label in mapping("labels", content).items()}
    chosen["digits"] = check_keys("digits", mapping("digits", content), DIGITS)
    for name, value in chosen["digits"].items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10:
            raise error(f"digits.{name}", value, "a whole number from 0 to 10")
    chosen |= {"heading": flag("title", content), "notes": flag("notes", content)}
    return Style(**chosen)


def flag(key: str, content: Mapping[str, Any]) -> bool:
    """Read a boolean, true by default."""
    value = content.get(key, True)
    if not isinstance(value, bool):
        raise error(key, value, "true or false")
    return value


def sizes(section: Mapping[str, Any]) -> dict[str, float]:
    """Read the section `size`."""
    check_keys("size", section, SIZES)
    found = {"full": FULL, "column": COLUMN} | {
        name: bounded_number(f"size.{name}", value, 1, 1200 if name == "dpi" else 50)
        for name, value in section.items()
        if not (name == "width" and isinstance(value, str))
    }
    width = section.get("width", "full")
    if isinstance(width, str) and width not in ("full", "column"):
        raise error("size.width", width, "full, column, or inches")
    return {"width": found[str(width)] if isinstance(width, str) else width, **found}


def fonts(section: Mapping[str, Any]) -> dict[str, Any]:
    """Read the section `fonts`."""
    check_keys("fonts", section, FONTS)
    return {
        name: text("fonts.family", value) if name == "family" else bounded_number(f"fonts.{name}", value, 1, 72)
        for name, value in section.items()
    }


def colours(section: Mapping[str, Any]) -> dict[str, Any]:
    """Read the section `colours`: three roles, the list `palette`, and names of arms or settings."""
    found: dict[str, Any] = {"colours": {}}
    for name, value in section.items():
        if name == "palette":
            found["palette"] = tuple(colour("colours.palette", one) for one in texts("colours.palette", value))
            if not found["palette"]:
                raise error("colours.palette", value, "at least one colour")
        else:
            (found if name in ROLES else found["colours"])[name] = colour(f"colours.{name}", value)
    return found


def colour(key: str, value: Any) -> str:
    """Check a color such as "#0072B2"."""
    if not isinstance(value, str) or not re.fullmatch("#[0-9a-fA-F]{6}", value):
        raise error(key, value, "a colour as '#0072B2', in quotation marks")
    return value


def mapping(key: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read a section as a mapping."""
    section = content.get(key, {})
    if not isinstance(section, Mapping):
        raise error(key, section, "a mapping of names to values")
    return section


def texts(key: str, value: Any) -> tuple[str, ...]:
    """Check a list of texts."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise error(key, value, "a list")
    return tuple(text(key, one) for one in value)


def text(key: str, value: Any) -> str:
    """Check that a value is a text and not blank."""
    if not isinstance(value, str) or not value.strip():
        raise error(key, value, "text")
    return value


def bounded_number(key: str, value: Any, low: float, high: float) -> float:
    """Check a number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise error(key, value, f"a number from {low:g} to {high:g}")
    return value


def check_keys(section: str, found: Mapping[str, Any], allowed: Sequence[str]) -> Mapping[str, Any]:
    """Check that all keys are allowed, with a suggestion for a misspelled one."""
    for name in found:
        if name not in allowed:
            key = f"{section}.{name}" if section else name
            raise ValueError(f"unknown key {key}: one of {', '.join(allowed)}{suggestion(name, allowed)}")
    return found


def error(key: str, value: Any, allowed: str) -> ValueError:
    """Return the error for a wrong value."""
    return ValueError(f"{key}={value}: allowed is {allowed}")
