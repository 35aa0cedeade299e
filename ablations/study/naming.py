"""Names of arms, studies, recipes and plans."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from results.store.plan_files import learned_settings
from results.store.schemas.plans import Plan

HERE = Path(__file__).parents[1]
ALL_ARMS = ("*",)
RECIPE = "digits"  # of commands without --recipe
LONGEST_NAME = 200  # bytes of a plan's name: a file system allows 255, and a figure being written takes about 50 more
YAML = (".yaml", ".yml")
SHOWN = 60  # first characters of a name that is too long


def matching_names(names: Sequence[str], globs: Sequence[str], owner: str) -> set[str]:
    """Return the names that match any of the glob patterns. owner: the plan with the arms, for the message."""
    matching: set[str] = set()
    for glob in globs:
        matches = {name for name in names if fnmatchcase(name, glob)}
        if not matches:
            raise ValueError(f"--arm {glob}: {owner} has the arms {', '.join(names)}")
        matching |= matches
    return matching


def packaged_names(kind: str) -> list[str]:
    """Return the names of the packaged studies or recipes. kind: "studies" or "recipes"."""
    return sorted(path.stem for path in (HERE / kind).glob("*.yaml"))


def stem(name: str) -> str:
    """Return the name of a study or recipe, given its name or its YAML file."""
    return Path(name).stem if name.endswith(YAML) else name


def assignments(settings: Mapping[str, Any], separator: str = ",") -> str:
    return separator.join(f"{key}={value}" for key, value in settings.items())


@dataclass(frozen=True)
class PlanIdentity:
    """What tells plans apart: a study on a recipe, with overrides. trainable: empty for Vision Transformers."""

    study: str
    recipe: str
    overrides: Mapping[str, Any]
    trainable: str = ""

    @property
    def name(self) -> str:
        """The plan's name unless it was given another: STUDY@RECIPE[,KEY=VALUE...]."""
        return f"{self.study}@{self.recipe}{self.suffix}"

    @property
    def suffix(self) -> str:
        return "".join(f",{key}={value}" for key, value in self.learned.items()).replace("/", "-")

    @property
    def learned(self) -> dict[str, Any]:
        """The overrides that change what is learned, in the order of their keys."""
        return dict(sorted(learned_settings(self.overrides, self.trainable).items()))

    def is_of(self, plan: Plan) -> bool:
        return (plan.study, plan.recipe) == (self.study, self.recipe) and self.has_settings_of(plan)

    def may_mean(self, plan: Plan) -> bool:
        """Return whether a plan is of this study on any recipe, with these overrides if there are any."""
        return plan.study == self.study and (not self.learned or self.has_settings_of(plan))

    def has_settings_of(self, plan: Plan) -> bool:
        learned = learned_settings(self.overrides, plan.trainable)
        return learned == learned_settings(plan.overrides, plan.trainable)


def as_words(name: str) -> str:
    """Return the words of a command that stand for the name of a plan: "study@recipe key=value"."""
    return name.partition("+")[0].replace(",", " ")


def check_name(name: str) -> None:
    """Raise ValueError if the name of a plan, from which files are named, is no name of a file or is too long."""
    length = len(os.fsencode(name))
    why = ""
    if length > LONGEST_NAME:
        why = f"has {length} bytes; at most {LONGEST_NAME}"
    elif not name.isprintable():
        why = "has control characters"
    if why:
        raise ValueError(f"{name[:SHOWN]!a}...: the plan's name {why}, as files are named after it: give --name NAME")


def check_given_name(name: str, option: str = "--name") -> None:
    """Raise ValueError if a new plan, or whatever else an option names, cannot have this name."""
    if not re.fullmatch(r"\w[\w.-]*", name) or name.endswith(YAML):
        raise ValueError(
            f"{option} {name}: must start with a letter or digit, then have letters, digits, '_', '-' and '.' only"
        )
    if name in packaged_names("studies"):
        raise ValueError(f"{option} {name}: is the name of a study")
    check_name(name)


def only_name(names: Sequence[str], overrides: Mapping[str, Any], plans: Sequence[Plan], source: Path) -> str:
    """Return the only name in `names`, or among several that of the plan with exactly these overrides.

    plans: the plans in `source`, a run directory or an exported file.
    """
    equal = []
    if overrides:
        equal = [plan.name for plan in plans if plan.name in names and plan.overrides == overrides]
    candidates = equal or names
    if len(candidates) == 1:
        return candidates[0]
    study = names[0].partition("@")[0]
    for plan in plans:
        if plan.name == names[0]:
            study = plan.study
    listed = with_settings(names, plans)
    raise ValueError(f"'{study}' was run {len(names)} times in {source}: name one or its settings: {listed}")


def with_settings(names: Iterable[str], plans: Iterable[Plan]) -> str:
    settings = {plan.name: f" ({assignments(plan.overrides, ', ')})" for plan in plans if plan.overrides}
    return ", ".join(name + settings.get(name, "") for name in names)
