"""How commands answer: exit statuses, JSON for programs."""

import json
from typing import Any

Json = dict[str, Any]
BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130


def show_json(results: list[Json]) -> None:
    """Print JSON: one object for one study, a list for several."""
    print(json.dumps(results[0] if len(results) == 1 else results, indent=1, allow_nan=False))
