"""Names of arms, studies, recipes and plans."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from results import store

ALL_ARMS = ("*",)


def matching_names(names: Sequence[str], globs: Sequence[str], owner: str) -> set[str]:
    """Return the names that match any of the glob patterns.

    owner: the name of the plan with the arms, for the message. Raises ValueError if a pattern matches no name.
    """
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            raise ValueError(f"--arm {glob}: {owner} has the arms {', '.join(names)}")
    return {name for name in names if any(fnmatchcase(name, glob) for glob in globs)}


def stem(name: str) -> str:
    """Return the name of a study or recipe, given its name or its YAML file."""
    return Path(name).stem if name.endswith((".yaml", ".yml")) else name


def assignments(settings: Mapping[str, Any], separator: str = ",") -> str:
    return separator.join(f"{key}={value}" for key, value in settings.items())


def plan_name(study: str, recipe: str, overrides: Mapping[str, Any]) -> str:
    """Return the name of a plan and of its folder: <study>@<recipe>[+<hash of the command line's overrides>]."""
    return f"{study}@{recipe}" + (f"+{store.checksum(dict(overrides))[:6]}" if overrides else "")
