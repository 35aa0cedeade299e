"""Names of arms, studies, recipes and plans."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from results import store
from results.store.plan_files import learned_settings
from results.store.schemas import Plan

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
    """Return the name of a plan and of its folder: <study>@<recipe>[+<hash of the overrides>].

    Overrides of how trials run are left out.
    """
    learned = learned_settings(overrides)
    return f"{study}@{recipe}" + (f"+{store.checksum(learned)[:6]}" if learned else "")


def older_names(plans: Iterable[Plan]) -> dict[str, str]:
    """Return today's name -> recorded name for plans of 0.21 and before that hashed how their trials run."""
    today = ((plan_name(plan.study, plan.recipe, plan.overrides), plan.name) for plan in plans)
    return {name: recorded for name, recorded in today if name != recorded}
