"""Suggestions for misspelled names."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint such as " (did you mean 'this'?)", or "" if no known name is similar."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean '{near[0]}'?)" if near else ""
