"""Suggestions for misspelled names."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'this'?)", or "" where nothing is close."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean '{near[0]}'?)" if near else ""
