"""Names of studies, recipes and plans."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results import store


def stem(name: str) -> str:
    """The name of a study or recipe given by name or file."""
    return Path(name).stem if name.endswith((".yaml", ".yml")) else name


def plan_name(study: str, recipe: str, overrides: Mapping[str, Any]) -> str:
    """The folder of a plan: <study>@<recipe>[+<hash of overrides>]."""
    return f"{study}@{recipe}" + (f"+{store.checksum(dict(overrides))[:6]}" if overrides else "")
