"""Text of others on a terminal: nothing in it moves the cursor, changes colours or begins a line."""

LONGEST_LINE = 2000  # characters of an error


def plain(text: str) -> str:
    """The text with every character that does not print written as its escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


def one_line(text: str) -> str:
    """The text as an error is told."""
    return plain(" ".join(text.split()))[:LONGEST_LINE]
