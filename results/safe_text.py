"""Escaping of untrusted text, so that printing it cannot move the cursor, set colors, reverse text or break lines."""

LONGEST_LINE = 2000  # maximum characters of an error


def printable(text: str, keep: str = "") -> str:
    """Return the text with every nonprintable character escaped, except the characters in `keep`."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """Return the text on one line with nonprintable characters escaped. At most LONGEST_LINE characters are kept."""
    return printable(" ".join(text.split()))[:LONGEST_LINE]
