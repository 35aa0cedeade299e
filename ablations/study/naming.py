"""Names of arms, studies, recipes and plans."""

import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from results import store
from results.store.plan_files import learned_settings
from results.store.schemas import Plan

HERE = Path(__file__).parents[1]
ALL_ARMS = ("*",)
LONGEST_NAME = 200  # bytes of a plan's name: a file system allows 255, and a figure being written takes about 50 more
SHOWN = 60  # first characters of a name that is too long


def matching_names(names: Sequence[str], globs: Sequence[str], owner: str) -> set[str]:
    """Return the names that match any of the glob patterns.

    owner: the name of the plan with the arms, for the message. Raises ValueError if a pattern matches no name.
    """
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            raise ValueError(f"--arm {glob}: {owner} has the arms {', '.join(names)}")
    return {name for name in names if any(fnmatchcase(name, glob) for glob in globs)}


def packaged_names(kind: str) -> list[str]:
    """Return the names of the packaged studies or recipes. kind: "studies" or "recipes"."""
    return sorted(path.stem for path in (HERE / kind).glob("*.yaml"))


def stem(name: str) -> str:
    """Return the name of a study or recipe, given its name or its YAML file."""
    return Path(name).stem if name.endswith((".yaml", ".yml")) else name


def assignments(settings: Mapping[str, Any], separator: str = ",") -> str:
    return separator.join(f"{key}={value}" for key, value in settings.items())


def plan_name(study: str, recipe: str, overrides: Mapping[str, Any]) -> str:
    """Return the name of a plan and of its folder: <study>@<recipe>[+<hash of the overrides>].

    Overrides that affect only how trials run are left out of the hash.
    """
    learned = learned_settings(overrides)
    return f"{study}@{recipe}" + (f"+{store.checksum(learned)[:6]}" if learned else "")


def check_length(name: str) -> None:
    """Raise ValueError if the name of a plan, from which files are named, is longer than file systems allow."""
    length = len(os.fsencode(name))
    if length > LONGEST_NAME:
        raise ValueError(
            f"{name[:SHOWN]}...: the name of the study and recipe has {length} bytes; at most {LONGEST_NAME}, "
            "as files are named after it"
        )


def current_name(plan: Plan) -> str:
    """Return the name that a plan would get now. The names of plans of 0.21 and before hash all overrides."""
    return plan_name(plan.study, plan.recipe, plan.overrides)


def only_name(names: Sequence[str], overrides: Mapping[str, Any], plans: Sequence[Plan], source: Path) -> str:
    """Return the only name in `names`. Among several, return the name of the plan with these overrides.

    plans: the plans in `source`, a run directory or an exported file. Raises ValueError if several names remain.
    """
    equal = [plan.name for plan in plans if plan.name in names and plan.overrides == overrides] if overrides else []
    if len(equal or names) > 1:
        study, listed = names[0].rpartition("@")[0], with_settings(names, plans)
        raise ValueError(f"'{study}' was run {len(names)} times in {source}: name one or its settings: {listed}")
    return (equal or names)[0]


def with_settings(names: Iterable[str], plans: Iterable[Plan]) -> str:
    """Return names of plans as text, each followed by the plan's overrides if it has any."""
    settings = {plan.name: assignments(plan.overrides, ", ") for plan in plans if plan.overrides}
    return ", ".join(f"{name} ({settings[name]})" if name in settings else name for name in names)
