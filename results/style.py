"""Styles, which set the appearance of tables, figures and the report but never change their results."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from commonfloor.messages import spelling_hint

FULL, COLUMN = 7.0, 3.4  # inches: the text width and the column width of a two-column paper

# Okabe and Ito, "Color Universal Design" (2008), without yellow, which is hard to see on white paper.
BLACK = "#000000"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # blue, vermilion, green, ..., sky


@dataclass(frozen=True)
class Style:
    """A style: sizes, fonts, colors, labels, the order of arms and the number of decimal places.

    full, column: text width and column width of a paper in inches. width: figure width in inches. title, text, small:
    font sizes in points. colours, labels: keyed by arm, setting ("pool=gap") or model family; labels also by factor or
    metric. digits: "accuracy", "loss" or "p" -> decimal places. heading, notes: whether a figure shows them.
    """

    full: float = FULL
    column: float = COLUMN
    width: float = FULL
    dpi: float = 200
    family: str = "DejaVu Sans"  # comes with matplotlib, so every machine has the same font
    title: float = 9.0
    text: float = 7.5
    small: float = 6.5
    baseline: str = BLACK
    better: str = PALETTE[0]
    worse: str = PALETTE[1]
    palette: tuple[str, ...] = PALETTE
    colours: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    digits: Mapping[str, int] = field(default_factory=dict)
    heading: bool = True
    notes: bool = True

    def label(self, name: str) -> str:
        """Return the label of an arm, setting, factor or metric. By default, an arm has the labels of its settings."""
        if name in self.labels:
            return self.labels[name]
        parts = name.split(",")
        if self.labels.keys().isdisjoint(parts):
            return name
        return ", ".join(self.labels.get(part, part) for part in parts)

    def colour(self, name: str) -> str | None:
        """Return the color that the style gives an arm or one of its settings, or None."""
        return next((self.colours[part] for part in (name, *name.split(",")) if part in self.colours), None)

    def rank(self, name: str) -> int:
        """Return an arm's sort key: the index of its first entry in `order`. Arms without an entry come last."""
        parts = {name, *name.split(",")}
        return next((i for i, entry in enumerate(self.order) if entry in parts), len(self.order))


_DEFAULT = Style()
_CURRENT = ContextVar("style", default=_DEFAULT)


def current_style() -> Style:
    return _CURRENT.get()


@contextmanager
def use_style(style: Style) -> Iterator[None]:
    token = _CURRENT.set(style)
    try:
        yield
    finally:
        _CURRENT.reset(token)


Rule = tuple[Callable[[Any], object], str]  # a test of a value, and a description of the allowed values


def number_rule(low: float, high: float) -> Rule:
    return lambda value: type(value) in (int, float) and low <= value <= high, f"a number from {low:g} to {high:g}"


TEXT: Rule = (lambda value: isinstance(value, str) and value.strip(), "text")
FLAG: Rule = (lambda value: isinstance(value, bool), "true or false")
LIST: Rule = (lambda value: isinstance(value, Sequence) and not isinstance(value, str), "a list")
MAPPING: Rule = (lambda value: isinstance(value, Mapping), "a mapping of names to values")
NOT_EMPTY: Rule = (bool, "at least one color")
COLOUR: Rule = (
    lambda value: isinstance(value, str) and re.fullmatch("#[0-9a-fA-F]{6}", value),
    "a color as '#0072B2', in quotation marks",
)
WIDTH: Rule = (lambda value: not isinstance(value, str) or value in ("full", "column"), "full, column, or inches")
DIGIT: Rule = (lambda value: type(value) is int and 0 <= value <= 10, "a whole number from 0 to 10")
INCHES, POINTS = number_rule(1, 50), number_rule(1, 72)

# The sections with fixed keys.
KEYS: dict[str, dict[str, Rule]] = {
    "size": {"width": WIDTH, "full": INCHES, "column": INCHES, "dpi": number_rule(1, 1200)},
    "fonts": {"family": TEXT, "title": POINTS, "text": POINTS, "small": POINTS},
    "digits": {"accuracy": DIGIT, "loss": DIGIT, "p": DIGIT},
}
SECTIONS = ("size", "fonts", "colours", "order", "labels", "digits", "title", "notes")
ROLES = ("baseline", "better", "worse")


def parse(content: Mapping[str, Any]) -> Style:
    """Return the style in the content of a style file. Raises ValueError for an unknown key or forbidden value."""
    check_keys("", content, SECTIONS)
    size, fonts, digits = (read_section(name, content) for name in KEYS)
    sizes = {"full": FULL, "column": COLUMN, "width": "full", **size}
    sizes["width"] = check_value("size.width", sizes.get(sizes["width"], sizes["width"]), INCHES)
    colours = dict(check_value("colours", content.get("colours", {}), MAPPING))
    palette = check_value("colours.palette", colours.pop("palette", PALETTE), LIST)
    for colour in check_value("colours.palette", palette, NOT_EMPTY):
        check_value("colours.palette", colour, COLOUR)
    for name, colour in colours.items():
        check_value(f"colours.{name}", colour, COLOUR)
    order = check_value("order", content.get("order", []), LIST)
    for name in order:
        check_value("order", name, TEXT)
    labels = check_value("labels", content.get("labels", {}), MAPPING)
    for name, label in labels.items():
        check_value(f"labels.{name}", label, TEXT)
    return Style(
        **sizes,
        **fonts,
        **{name: colours.pop(name) for name in ROLES if name in colours},
        palette=tuple(palette),
        colours=colours,
        order=tuple(order),
        labels=dict(labels),
        digits=digits,
        heading=check_value("title", content.get("title", True), FLAG),
        notes=check_value("notes", content.get("notes", True), FLAG),
    )


def read_section(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    section = check_keys(name, check_value(name, content.get(name, {}), MAPPING), KEYS[name])
    return {key: check_value(f"{name}.{key}", value, KEYS[name][key]) for key, value in section.items()}


def check_value(key: str, value: Any, rule: Rule) -> Any:
    holds, allowed = rule
    if not holds(value):
        raise ValueError(f"{key}={value}: allowed is {allowed}")
    return value


def check_keys(section: str, content: Mapping[str, Any], allowed: Collection[str]) -> Mapping[str, Any]:
    for name in content:
        if name not in allowed:
            key = f"{section}.{name}".lstrip(".")
            raise ValueError(f"unknown key {key}: one of {', '.join(allowed)}{spelling_hint(name, allowed)}")
    return content
