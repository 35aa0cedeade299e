"""Others' text as it is shown: nothing in it moves the cursor, changes colors or direction, or ends a line."""

import re

LONGEST_LINE = 2000  # characters of an error
UNUSUAL = re.compile(r"[^\x20-\x7e]")


def plain(text: str, keep: str = "") -> str:
    """The text with every character that does not print written as its escape, but for those in `keep`."""
    return UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() or found[0] in keep else escape(found[0]), text)


def escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """The text of an error, on one line."""
    return plain(" ".join(text.split()))[:LONGEST_LINE]
