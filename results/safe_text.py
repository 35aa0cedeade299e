"""Make foreign text safe to print: no cursor movement, colors, changes of direction or line breaks."""

import re

LONGEST_LINE = 2000  # characters of an error
UNUSUAL = re.compile(r"[^\x20-\x7e]")


def printable(text: str, keep: str = "") -> str:
    """Escape every character that does not print, except those in `keep`."""
    return UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() or found[0] in keep else escape(found[0]), text)


def escape(character: str) -> str:
    """Return the escape sequence of one character."""
    return character.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """Put an error's text on one line of limited length."""
    return printable(" ".join(text.split()))[:LONGEST_LINE]
