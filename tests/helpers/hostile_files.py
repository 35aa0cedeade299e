"""Files with every field missing or wrong, and the way in which a command ends on them."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from in_process import called

from results.store.files import npz_bytes

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


def npz(**arrays: np.ndarray) -> bytes:
    return npz_bytes(arrays)


def mutations(content: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the content without each field, with each wrong value of each field, and values that are no objects."""
    for field in content:
        yield f"no {field}", {key: value for key, value in content.items() if key != field}
        for name, wrong in WRONG.items():
            yield f"{field}: {name}", content | {field: wrong}
    yield from ((f"all: {name}", wrong) for name, wrong in WRONG.items())


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """Return a forbidden end of the command, an exception or more than one line of complaint; "" for an allowed end."""
    try:
        status, _, told = called(monkeypatch, *words)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if status not in (0, 1, 2) or any(word in told for word in ("Traceback", "unexpected", "\x1b")):
        return f"status {status}: {told[-200:]}"
    return f"{told.count(chr(10))} lines" if status == 2 and told.count("\n") != 1 else ""
