"""What studies, recipes and plans are called."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results import store


def stem(name: str) -> str:
    """What a study or recipe, given by name or file, is called."""
    return Path(name).stem if name.endswith((".yaml", ".yml")) else name


def plan_name(study: str, recipe: str, overrides: Mapping[str, Any]) -> str:
    """<study>@<recipe>[+<hash of overrides>]: the folder of the plan."""
    return f"{study}@{recipe}" + (f"+{store.checksum(dict(overrides))[:6]}" if overrides else "")
