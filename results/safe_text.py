"""Text in messages: untrusted text, escaped so that it cannot move the cursor, and hints on misspelled names."""

import difflib
import re
from collections.abc import Iterable

LONGEST_LINE = 2000  # maximum characters of an error
UNUSUAL = re.compile(r"[^\x20-\x7e]")  # raises TypeError for bytes, by which click knows a text stream


def printable(text: str, keep: str = "") -> str:
    """Return the text with every nonprintable character escaped, except the characters in `keep`."""

    def escaped(found: re.Match[str]) -> str:
        unusual = not found[0].isprintable() and found[0] not in keep
        return found[0].encode("unicode_escape").decode() if unusual else found[0]

    return UNUSUAL.sub(escaped, text)


def one_line(text: str) -> str:
    """Return the text on one line with nonprintable characters escaped. At most LONGEST_LINE characters are kept."""
    return printable(" ".join(text.split()))[:LONGEST_LINE]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint such as " (did you mean 'this'?)", or "" if no known name is similar."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean '{near[0]}'?)" if near else ""
