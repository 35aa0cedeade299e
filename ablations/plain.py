"""Text of others on a terminal: nothing in it moves the cursor, changes colours or begins a line."""


def plain(text: str) -> str:
    """The text with every character that does not print written as its escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)
