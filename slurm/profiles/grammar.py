"""What SLURM's own words may hold: everything else a user writes is refused before it reaches a script.

The patterns are narrower than a shell's and sbatch's own: no white space, quotes, `$`, `%`, `\\`, `;`, newlines or
control characters, no leading `-`, no `..`.
"""

import re

WORD = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*"
SIZE = r"\d+[KMGT]"
COUNT = r"\d+"
FEATURES = r"[A-Za-z0-9_(\[!][A-Za-z0-9_.:+&|*()\[\],!-]*"
NODES = r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]*"
MOST_CHARACTERS = 200


def words(one: str) -> str:
    """The pattern of a comma-separated list."""
    return f"{one}(,{one})*"


def require(key: str, value: str, pattern: str, meaning: str) -> str:
    """The value itself. Raises ValueError (key, value, what is allowed) where it is not wholly of `pattern`."""
    if len(value) > MOST_CHARACTERS or ".." in value or not re.fullmatch(pattern, value, re.ASCII):
        raise ValueError(f"{key}={shown(value)}: {meaning}")
    return value


def one_line(key: str, value: str, meaning: str) -> str:
    """The value itself. Raises ValueError where it holds a newline or another character that does not print."""
    if not value.isprintable():
        raise ValueError(f"{key}={shown(value)}: {meaning}")
    return value


def shown(value: object) -> str:
    """How a value stands in an error: as it is where that is short and harmless on a terminal."""
    text = str(value)
    if not re.fullmatch(r"[\w.:/,+@-]{1,60}", text, re.ASCII):
        text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
