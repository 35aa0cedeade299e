"""Text that must never become a command, an option or a path; files with every field missing or wrong.

`CANARY` stands for a file that no text may make.
"""

import json
from collections.abc import Iterator
from typing import Any

from in_process import Ablate

CANARY = "CANARY"
TOUCH = "touch CANARY"

SEPARATORS = [
    *("; ", "& ", "&& ", "|| ", "| ", " #\n", "\\\n", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"),
]
COMMANDS = [
    *(f"x{separator}{TOUCH}" for separator in SEPARATORS),
    *(f"{separator}{TOUCH}" for separator in SEPARATORS[:5]),
    *(f"x{quote}{command}{quote}" for quote in "'\"" for command in (f"; {TOUCH}; ", f" $({TOUCH}) ")),
    *(f"{quote}\n{TOUCH}\n{quote}" for quote in "'\""),
    *(f"$({TOUCH})", f"`{TOUCH}`", f"$((1+$({TOUCH})))", f"<({TOUCH})", f">({TOUCH})", f"x\\'; {TOUCH}; \\'"),
    *(f"\n{TOUCH}\n#", f"() {{ :;}}; {TOUCH}", f"eval {TOUCH}", "${IFS}touch${IFS}CANARY", "{touch,CANARY}"),
    *("> CANARY", ">>CANARY", "2>CANARY", "~+/CANARY"),
]
OPTIONS = [
    *("--wrap=touch CANARY", "-o CANARY", "--output=CANARY", "main --output=CANARY", "main\n#SBATCH --output=CANARY"),
    *("main\n#SBATCH --wrap='touch CANARY'", "main' --output='CANARY", 'main" --output="CANARY'),
    *("-", "--", "--help", "="),
]
PATHS = [
    *("..", "../CANARY", "../../CANARY", "x/../../CANARY", "/../CANARY"),
    *("%j", "%u", "a%jb", "100%", "%(CANARY)s", "\\\\x"),
]
CHARACTERS = [
    *("", " ", "\t", "\0", "\x1b[2J", "\x07", "\x7f", "\x1e\x1f", "\u202e", "\u200b", "\ufeff", "é", "名", "\ud800"),
    *("x" * 100_000, "*", "?", "[", "!", "#", "~", "$HOME"),
]
TEXTS = [*COMMANDS, *OPTIONS, *PATHS, *CHARACTERS]
DEEP: Any = json.loads('{"a":' * 200 + "1" + "}" * 200)
WRONG = {
    "null": None,
    "text": "\x1b[2J../../x",
    "number": 5.5,
    "negative": -1,
    "huge": 10**400,
    "list": [[]],
    "mapping": {"x": {"y": []}},
    "deep": DEEP,
    "true": True,
}


def mutations(content: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the content without each field, with each wrong value of each field, and values that are no objects."""
    for field in content:
        yield f"no {field}", {key: value for key, value in content.items() if key != field}
        for name, wrong in WRONG.items():
            yield f"{field}: {name}", content | {field: wrong}
    yield from ((f"all: {name}", wrong) for name, wrong in WRONG.items())


def ended(ablate: Ablate, *words: str) -> str:
    """Return a forbidden end of the command, an exception or more than one line of complaint; "" for an allowed end."""
    try:
        status, _, told = ablate(*words)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if status not in (0, 1, 2) or any(word in told for word in ("Traceback", "unexpected", "\x1b")):
        return f"status {status}: {told[-200:]}"
    return f"{told.count(chr(10))} lines" if status == 2 and told.count("\n") != 1 else ""
