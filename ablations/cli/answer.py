"""The exit statuses of commands, and their output as JSON."""

import json
from collections.abc import Sequence

from results.store.schemas import Settings

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130


def fields(record: object) -> Settings:
    content: Settings = {}
    for name, value in vars(record).items():
        content |= value if name == "counts" else {name: value}
    return content


def show_json(results: Sequence[object]) -> None:
    """Print results as JSON: an object if there is one result, otherwise a list."""
    print(json.dumps(results[0] if len(results) == 1 else results, default=fields, indent=1, allow_nan=False))
