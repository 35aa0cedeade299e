"""Patterns for the values of a profile. A value that does not match is refused before it reaches a batch script.

The patterns of this module allow less than the shell and sbatch do. They exclude white space, quotes, `$`, `%`, `\\`,
`;`, newlines, control characters and a leading `-`. `matches` refuses `..` as well.
"""

import re
from collections.abc import Iterable

WORD = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*"
SIZE = r"\d+[KMGT]"
COUNT = r"\d+"
FEATURES = r"[A-Za-z0-9_(\[!][A-Za-z0-9_.:+&|*()\[\],!-]*"
NODES = r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]*"
MOST_CHARACTERS = 200


def list_pattern(one: str) -> str:
    """Return the pattern of a comma-separated list of items that match the pattern `one`."""
    return f"{one}(,{one})*"


def matches(value: str, pattern: str) -> bool:
    return len(value) <= MOST_CHARACTERS and ".." not in value and bool(re.fullmatch(pattern, value, re.ASCII))


def require(key: str, value: str, pattern: str, meaning: str) -> str:
    """Return `value` if it matches the pattern, else raise ValueError. meaning: what is allowed, for the message."""
    if not matches(value, pattern):
        raise ValueError(f"{key}={quoted_value(value)}: {meaning}")
    return value


def one_line(key: str, value: str, meaning: str) -> str:
    """Return `value` if it is one printable line, else raise ValueError. key, meaning: as in `require`."""
    if not value.isprintable():
        raise ValueError(f"{key}={quoted_value(value)}: {meaning}")
    return value


def quoted_value(value: object) -> str:
    """Return a value as text for an error message, escaped and shortened to 60 characters."""
    text = str(value)
    if not re.fullmatch(r"[\w.:/,+@-]{1,60}", text, re.ASCII):
        text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def joined_names(names: Iterable[str]) -> str:
    """Return the names as in `quoted_value`, without duplicates and separated by commas, for an error message."""
    return ", ".join(dict.fromkeys(quoted_value(name) for name in names))
