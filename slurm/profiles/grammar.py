"""Patterns for values in a profile. Other values are refused before they reach a script.

The patterns are narrower than the shell's and sbatch's: no white space, quotes, `$`, `%`, `\\`, `;`, newlines or
control characters, no leading `-`, no `..`.
"""

import re
from collections.abc import Iterable

WORD = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*"
SIZE = r"\d+[KMGT]"
COUNT = r"\d+"
FEATURES = r"[A-Za-z0-9_(\[!][A-Za-z0-9_.:+&|*()\[\],!-]*"
NODES = r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]*"
MOST_CHARACTERS = 200


def words(one: str) -> str:
    """Return the pattern of a comma-separated list."""
    return f"{one}(,{one})*"


def require(key: str, value: str, pattern: str, meaning: str) -> str:
    """Return the value if it matches the pattern. Raises ValueError with key, value and what is allowed."""
    if len(value) > MOST_CHARACTERS or ".." in value or not re.fullmatch(pattern, value, re.ASCII):
        raise ValueError(f"{key}={shown(value)}: {meaning}")
    return value


def one_line(key: str, value: str, meaning: str) -> str:
    """Return the value. Raises ValueError if it holds a newline or another unprintable character."""
    if not value.isprintable():
        raise ValueError(f"{key}={shown(value)}: {meaning}")
    return value


def shown(value: object) -> str:
    """Escape and shorten a value for an error message."""
    text = str(value)
    if not re.fullmatch(r"[\w.:/,+@-]{1,60}", text, re.ASCII):
        text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def listed(names: Iterable[str]) -> str:
    """Join distinct names, each as in `shown`."""
    return ", ".join(dict.fromkeys(shown(name) for name in names))
