"""Escaping of untrusted text before it is printed: no cursor movement, colors, changes of direction or line breaks."""

import re

LONGEST_LINE = 2000  # characters of an error
UNUSUAL = re.compile(r"[^\x20-\x7e]")


def printable(text: str, keep: str = "") -> str:
    """Return the text with every nonprintable character escaped, except the characters in `keep`."""
    return UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() or found[0] in keep else escape(found[0]), text)


def escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """Return the text on one line, with nonprintable characters escaped, cut after LONGEST_LINE characters."""
    return printable(" ".join(text.split()))[:LONGEST_LINE]
