"""Interpret a command's words: studies and settings, recipes, plans, trials, SLURM profiles."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablations.study import settings
from ablations.study.naming import ALL_ARMS, plan_name, stem
from results.store import schemas
from results.store.schemas import Plan, Settings

if TYPE_CHECKING:
    from ablations.execution.launch import Place
    from ablations.study.design import Design
    from ablations.study.reading import Record
    from slurm.profiles.profile import Profile

MARGIN, RECIPE = "margin", "digits"


@dataclass(frozen=True)
class Asked:
    """The studies and settings that a command's words name."""

    studies: list[str]
    overrides: Settings
    margin: float | None = None  # of the studies, as the command line declares it


def split(words: Iterable[str]) -> Asked:
    """Split words into studies and settings (with '='). Raises ValueError for a setting given twice."""
    studies, overrides = [], {}
    for word in words:
        if "=" in word and not word.endswith((".yaml", ".yml")):
            from ablations.study import strict_yaml  # late: most words are names

            key, value = strict_yaml.assignment(word)
            if key in overrides:
                raise ValueError(f"{key} is set twice")
            overrides[key] = value
        else:
            studies.append(word)
    return Asked(studies, overrides, checked_margin(overrides.pop(MARGIN, None)))


def checked_margin(value: Any) -> float | None:
    """Return the margin. Raises ValueError if it is not valid."""
    if value is None or (isinstance(value, int | float) and value > 0):
        return value
    raise ValueError(f"margin={value}: a number above 0, in the metric (0.03 of an accuracy is 3 points)")


def designs(asked: Asked, recipe_name: str, data_dir: Path | None) -> "list[Design]":
    """Return the designs that a command's words and --data-dir stand for."""
    from ablations.study.design import Design
    from ablations.study.reading import read_recipe, read_study

    names = study_names(asked)
    images = settings.places(settings.read(Path()), data_dir).images
    recipe = with_data(read_recipe(recipe_name), ("config", "arms", "stages"), images)
    fields = ("baseline", "stages", "arms", "co_changes")
    studies = [with_data(read_study(name), fields, images) for name in names]
    if asked.margin is not None:
        studies = [study.model_copy(update={MARGIN: asked.margin}) for study in studies]
    return [Design(study, recipe, named_data(asked.overrides, data_dir)) for study in studies]


def study_names(asked: Asked) -> list[str]:
    """Return the studies, by name or file, each once. Raises ValueError if there is none."""
    from ablations.study.reading import packaged

    if not asked.studies:
        raise ValueError(f"name a study ({', '.join(packaged('studies'))}), a .yaml file, or 'all'")
    names = (name for word in asked.studies for name in (packaged("studies") if word == "all" else [word]))
    return list(dict.fromkeys(names))


def with_data(record: "Record", fields: Iterable[str], images: Mapping[str, str]) -> "Record":
    """Replace data names in these fields of a study or recipe by the folders that ablate.toml names."""
    return record.model_copy(update={field: settings.named(getattr(record, field), images) for field in fields})


def named_data(config: Settings, data_dir: Path | None = None) -> Settings:
    """Replace data=NAME by the folder that ablate.toml names; packs keep their names."""
    mapped: Settings = settings.named(config, settings.places(settings.read(Path()), data_dir).images)
    return mapped


def plan_names(words: list[str] | None, recipe_name: str | None, source: Path) -> list[str]:
    """Return the plan names that a command's words stand for; all plans if there are no words."""
    asked = split(words or [])
    if asked.margin is not None:
        raise ValueError(f"margin={asked.margin:g}: is declared before results are read: give it to `ablate run`")
    if "all" in asked.studies:
        return []
    overrides = named_data(asked.overrides)
    there = names_at(source) if recipe_name is None else []
    return [
        name if "@" in name else planned_name(stem(name), recipe_name, overrides, there, source)
        for name in asked.studies
    ]


def planned_name(study: str, recipe_name: str | None, overrides: Settings, there: Sequence[str], source: Path) -> str:
    """Return the plan of a study: on the named recipe, else the default one, else the only one there is.

    Raises ValueError naming them if there are several.
    """
    asked_for = plan_name(study, stem(recipe_name or RECIPE), overrides)
    if recipe_name is not None or asked_for in there:
        return asked_for
    hashed = plan_name("", "", overrides).removeprefix("@")
    found = [name for name in there if name.startswith(f"{study}@") and name.endswith(hashed)]
    if len(found) > 1:
        settings = {plan.name: plan.overrides for plan in plans_at(source)}
        named = [f"{name}{told(settings.get(name, {}))}" for name in found]
        raise ValueError(f"'{study}' was run {len(found)} times in {source}: name one: {', '.join(named)}")
    return found[0] if found else asked_for


def warn_of_other_recipe(asked: Asked, recipe_name: str, runs: Path) -> None:
    """Say on standard error which recipe is the default if a study was run only on others."""
    for study in map(stem, study_names(asked) if recipe_name == RECIPE else ()):
        known = [plan for plan in plans_at(runs) if plan.study == study]
        if known and RECIPE not in {plan.recipe for plan in known}:
            others = dict.fromkeys(f"--recipe {recipe_of(plan)}" for plan in known)
            print(f"recipe {RECIPE}; {runs} has {study} with {', '.join(others)}", file=sys.stderr)


def recipe_of(plan: Plan) -> str:
    """Return the recipe of a plan as --recipe takes it: a name or a file."""
    name = plan.asked.recipe if plan.asked else plan.recipe
    return shlex.quote(os.path.relpath(name) if Path(name).is_relative_to(Path.cwd()) else name)


def told(overrides: Settings) -> str:
    """Return the settings that a plan's hash stands for, as text."""
    return f" ({', '.join(f'{key}={value}' for key, value in overrides.items())})" if overrides else ""


def names_at(source: Path) -> list[str]:
    """Return the plan names of a run directory or an exported file; empty if there are none."""
    if source.is_file():
        return [plan.name for plan in plans_at(source)]
    return sorted(path.parent.name for path in source.glob("studies/*/plan.json"))


def plans_at(source: Path) -> list[Plan]:
    """Return all plans of a run directory or an exported file."""
    from results import store

    if source.is_file():
        from results.export import read_plans  # late: pulls in the Parquet reader

        return read_plans(source)
    return list(store.plans(source))


def refuse_unplanned(plans: Iterable[Plan], words: list[str] | None, recipe_name: str | None, source: Path) -> None:
    """Raise ValueError for a study that was not run with these settings, and for a missing file."""
    asked, there = split(words or []), {plan.name: plan for plan in plans}
    with_them = plan_names(words, recipe_name, source)
    for word, name in zip(asked.studies, with_them, strict=bool(with_them)) if there else ():
        study, said = stem(word), ", ".join(f"{key}={value}" for key, value in asked.overrides.items())
        base = plain_plan(there, study, recipe_name)
        if name not in there and base and said and "@" not in word:
            raise ValueError(f"{said}: '{study}' was not run with it in {source}{varied(base, asked.overrides)}")
        if study != word and not Path(word).exists() and study not in {plan.study for plan in there.values()}:
            raise ValueError(f"{word}: no such file, and no study '{study}' in {source} (there: {', '.join(there)})")


def plain_plan(there: Mapping[str, Plan], study: str, recipe_name: str | None) -> Plan | None:
    """Return the plan of a study without overrides: on that recipe, else on any."""
    if recipe_name is not None:
        return there.get(plan_name(study, stem(recipe_name), {}))
    return next((plan for plan in there.values() if plan.study == study and not plan.overrides), None)


def varied(plan: Plan, overrides: Settings) -> str:
    """Hint that the study varies the setting, so that its table has the value."""
    own = [key for key in overrides if key in {**plan.factors, **plan.curves}]
    return f": {' and '.join(own)} is what the study varies, its table has every value" if own else ""


def planned(runs: Path, words: list[str] | None, recipe_name: str | None) -> list[Plan]:
    """Return the plans that a command names."""
    from results import store
    from results.store import planned as plans

    refuse_unplanned(store.plans(runs), words, recipe_name, runs)
    return plans.plans(runs, plan_names(words, recipe_name, runs))


def trial_ids(runs: Path, words: list[str], recipe_name: str | None, arms: Sequence[str] = ALL_ARMS) -> list[str]:
    """Return the ids of the trials that a command names by id or study."""
    from ablations.planning.jobs import jobs

    ids = [word for word in words if re.fullmatch("[0-9a-f]{12}", word) and (runs / "trials" / word).is_dir()]
    studies = [word for word in words if word not in ids]
    return ids + [job.id for job in jobs(planned(runs, studies, recipe_name) if studies else [], arms)]


def prepared(
    asked: Asked, recipe_name: str, place: "Place", seeds: int | None, prune: bool, data_dir: Path | None
) -> list[Plan]:
    """Return the plans to run: the request merged with earlier plans of the same names.

    `asked` in a plan: the options that repeat the command.
    """
    from ablations.planning.prepare import prepare

    made = designs(asked, recipe_name, data_dir)
    plans = [prepare(design, place.runs, seeds, prune, place.code) for design in counted(made)]
    shared: Settings = {
        "recipe": anywhere(recipe_name),
        "plugins": [str(path) for path in place.plugins],
        "data_dir": str(place.data_dir.absolute()) if place.data_dir else None,
    }
    if asked.margin is not None:
        shared |= {MARGIN: asked.margin}
    names = map(anywhere, study_names(asked))
    return [
        plan.model_copy(update={"asked": schemas.Asked(study=name, **shared)})
        for name, plan in zip(names, plans, strict=True)
    ]


def counted(made: "Sequence[Design]") -> "Iterable[Design]":
    """Iterate over studies with a progress bar on standard error: planning all takes some 10 s."""
    from rich.progress import track

    from ablations.reporting.console import PlainConsole

    console = PlainConsole(stderr=True)
    return track(made, "planning", console=console, transient=True, disable=not console.is_terminal)


def anywhere(name: str) -> str:
    """Return a study or recipe name that works in any working directory."""
    return str(Path(name).absolute()) if stem(name) != name else name


def slurm_profile(name: str, recipe: str) -> "Profile":
    """Return a SLURM profile, completed by the recipe's resources."""
    from ablations.cluster.submit import read_profile
    from ablations.study.reading import read_recipe

    return read_profile(name, read_recipe(recipe).resources)
