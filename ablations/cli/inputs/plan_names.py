"""Resolve a command's words into the names of plans in a run directory or an exported file, and into trials."""

import re
from collections.abc import Sequence
from pathlib import Path

from ablations.cli.inputs.ablate_toml import resolve_settings
from ablations.cli.inputs.words import parse_words
from ablations.jobs import jobs
from ablations.study.naming import (
    ALL_ARMS,
    RECIPE,
    PlanIdentity,
    as_words,
    assignments,
    only_name,
    packaged_names,
    stem,
    with_settings,
)
from results import store
from results.store import plan_files
from results.store.plan_files import learned_settings
from results.store.schemas import Plan


def plan_names(words: list[str] | None, recipe_name: str | None, source: Path) -> list[str]:
    """Return the names of the plans that a command's words stand for. An empty list means all plans.

    Returns a name even if there is no such plan. recipe_name: None for the default recipe or, if it has no plan, the
    only recipe with one. source: a run directory or an exported file. Raises ValueError if a setting is invalid, the
    words set the margin, or the export is damaged. Also raises it if a study has several plans but none on the default
    recipe.
    """
    asked = parse_words(words or [])
    if asked.margin is not None:
        raise ValueError(f"margin={asked.margin}: is declared before results are read: give it to `ablate run`")
    if "all" in asked.studies:
        return []
    overrides = resolve_settings(asked.overrides)
    existing = existing_names(source)
    names = []
    for word in asked.studies:
        identity = PlanIdentity(stem(word), stem(recipe_name or RECIPE), overrides)
        if "@" in word or word in existing:
            names.append(word)
        elif identity.name in existing:
            names.append(identity.name)
        else:
            names.append(name_by_content(identity, recipe_name is None, source))
    return names


def name_by_content(identity: PlanIdentity, any_recipe: bool, source: Path) -> str:
    """Return the name of the plan with an identity, or else the name that it would have.

    any_recipe: whether the only plan on another recipe counts if none is on this one. Raises the error of `only_name`
    if several plans match.
    """
    plans = existing_plans(source)
    found = [plan.name for plan in plans if identity.is_of(plan)]
    if not found and any_recipe:
        found = [plan.name for plan in plans if identity.may_mean(plan)]
        damaged = {*existing_names(source)} - {plan.name for plan in plans}
        start, end = f"{identity.study}@", identity.suffix
        found += [name for name in sorted(damaged) if name.startswith(start) and name.endswith(end)]
    return only_name(found, identity.overrides, plans, source) if found else identity.name


def existing_names(source: Path) -> list[str]:
    """Return the names of an export's plans or a run directory's, even if damaged. Raises ValueError if unreadable."""
    if source.is_file():
        return [plan.name for plan in existing_plans(source)]
    return plan_files.planned_names(source)


def existing_plans(source: Path) -> list[Plan]:
    """Return the undamaged plans of a run directory, or all of an export. Raises the errors of `existing_names`."""
    if source.is_file():
        from results.export import read_header  # imported here because the Parquet reader takes a second to load

        return read_header(source).plans
    return store.read_plans(source).readable


def checked_names(words: list[str] | None, recipe_name: str | None, source: Path) -> list[str]:
    """Return the names that `plan_names` returns, after a check that each study was planned as asked.

    Raises ValueError if a study has no such plan or its file does not exist, and the errors of `plan_names`. Unknown
    names pass, and all names if there is no plan.
    """
    asked, there = parse_words(words or []), existing_names(source)
    names = plan_names(words, recipe_name, source)
    said = assignments(learned_settings(asked.overrides), ", ")
    for word, name in zip(asked.studies, names, strict=bool(names)) if there else ():
        if plan_files.known_name(name, there) in there:
            continue
        study, plans = stem(word).partition("@")[0], existing_plans(source)
        own = [plan for plan in plans if plan.study == study]
        listed = f" (there: {with_settings(there, plans)})"
        base = next((plan for plan in own if recipe_name is None or plan.recipe == stem(recipe_name)), None)
        if base and said and "@" not in word:
            varied = [key for key in asked.overrides if key in {**base.factors, **base.curves}]
            hint = f": {' and '.join(varied)} is what the study varies, its table has every value" if varied else listed
            raise ValueError(f"{said}: '{study}' was not run with just these settings in {source}{hint}")
        if stem(word) != word and not Path(word).exists() and not own:
            raise ValueError(f"{word}: no such file, and no study '{study}' in {source}{listed}")
        if stem(word) != word or own or study in packaged_names("studies"):
            settings = f" with {said}" if said and "@" not in word else ""
            shown = name if "@" in word else as_words(name).partition(" ")[0]
            raise ValueError(f"{shown}: was not run{settings} in {source}{listed}: `ablate run {as_words(word)}` first")
    return names


def named_plans(runs: Path, words: list[str] | None, recipe_name: str | None) -> plan_files.Plans:
    """Return the plans in a run directory that a command names. Raises ValueError if one was not run or is damaged."""
    return plan_files.named_plans(runs, checked_names(words, recipe_name, runs))


def trial_ids(runs: Path, words: list[str], recipe_name: str | None, arms: Sequence[str] = ALL_ARMS) -> list[str]:
    """Return the ids of the trials that a command names by id, or by study and patterns of arm names.

    Words that are no ids of existing trials are taken as studies. Raises the errors of `named_plans` and `jobs`.
    """
    ids = [word for word in words if re.fullmatch("[0-9a-f]{12}", word) and (runs / "trials" / word).is_dir()]
    studies = [word for word in words if word not in ids]
    return ids + [job.id for job in jobs(named_plans(runs, studies, recipe_name).all() if studies else [], arms)]
