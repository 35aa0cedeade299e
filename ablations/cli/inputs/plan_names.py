"""Resolve a command's words into the names of plans in a run directory or an exported file, and into trials."""

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from ablations.cli.inputs.directories import data_folders
from ablations.cli.inputs.words import Request
from ablations.jobs import jobs
from ablations.study import naming
from ablations.study.naming import PlanIdentity, assignments, stem
from ablations.study.reading import find_file
from ablations.trainables.trainable import is_trial_id
from results import store
from results.store import plan_files
from results.store.plan_files import learned_settings
from results.store.schemas.plans import Plan


def plan_names(asked: Request, source: Path) -> list[str]:
    """Return the names of the plans that a command's words stand for, even of none that exists; [] means all plans.

    Without --recipe, a study is on the default recipe or, if it has no plan on this, on the only recipe with one.
    """
    if asked.margin is not None:
        raise ValueError(f"margin={asked.margin}: is declared before results are read: give it to `ablate run`")
    if "all" in asked.studies:
        return []
    overrides = data_folders().resolve(asked.overrides)
    existing = existing_names(source)
    names = []
    for word in asked.studies:
        recipe = stem(asked.recipe or naming.RECIPE)
        trainable = planned_trainable(stem(word), recipe, source) if overrides else ""
        identity = PlanIdentity(stem(word), recipe, overrides, trainable)
        if "@" in word or word in existing:
            names.append(name_on_disk(word, existing))
        elif identity.name in existing:
            names.append(identity.name)
        else:
            names.append(name_by_content(identity, asked.recipe is None, source))
    return [plan_files.known_name(name, existing) for name in names]


def planned_trainable(study: str, recipe: str, source: Path) -> str:
    for plan in existing_plans(source):
        if (plan.study, plan.recipe) == (study, recipe):
            return plan.trainable
    return ""


def name_on_disk(word: str, existing: Collection[str]) -> str:
    """Return the name of an existing plan for a name with its settings as typed. On disk, "-" stands for "/"."""
    written = word.replace("/", "-")
    return written if "@" in word and written in existing else word


def name_by_content(identity: PlanIdentity, any_recipe: bool, source: Path) -> str:
    """Return the name of the plan with an identity, or else the name that it would have."""
    plans = existing_plans(source)
    names = [plan.name for plan in plans if identity.is_of(plan)]
    if not names and any_recipe:
        names = [plan.name for plan in plans if identity.may_mean(plan)]
        damaged = {*existing_names(source)} - {plan.name for plan in plans}
        start = f"{identity.study}@"
        names += [name for name in sorted(damaged) if name.startswith(start) and name.endswith(identity.suffix)]
    return naming.only_name(names, identity.overrides, plans, source) if names else identity.name


def existing_names(source: Path) -> list[str]:
    """Return the names of an export's plans or a run directory's, even if damaged. Raises ValueError if unreadable."""
    if source.is_file():
        return [plan.name for plan in existing_plans(source)]
    return plan_files.planned_names(source)


def existing_plans(source: Path) -> list[Plan]:
    """Return the undamaged plans of a run directory, or all of an export. Raises ValueError if unreadable."""
    if source.is_file():
        from results.export import read_header  # imported here because the Parquet reader takes a second to load

        return read_header(source).plans
    return store.read_plans(source).readable


def checked_names(asked: Request, source: Path) -> list[str]:
    names = plan_names(asked, source)
    existing = existing_names(source)
    if names and existing:
        for word, name in zip(asked.studies, names, strict=True):
            if name not in existing:
                refuse_unplanned(word, name, asked, source)
    return names


def refuse_unplanned(word: str, name: str, asked: Request, source: Path) -> None:
    """Raise ValueError if a word names a study without the plan `name`. A name that is unknown altogether passes."""
    study = stem(word).partition("@")[0]
    plans = existing_plans(source)
    of_study = [plan for plan in plans if plan.study == study]
    is_file = stem(word) != word
    if is_file and not of_study:
        find_file("studies", word)  # raises its error if it does not exist
    elif not of_study and study not in naming.packaged_names("studies"):
        return
    shown = name
    command = f"ablate run {naming.as_words(word)}"
    if "@" not in word:
        shown = study if of_study and asked.recipe is None else naming.as_words(name).partition(" ")[0]
        settings = learned_settings(asked.overrides, of_study[0].trainable if of_study else "")
        if settings:
            shown += f" with {assignments(settings, ', ')}"
            command += f" {assignments(settings, ' ')}"
        if asked.recipe is not None:
            command += f" --recipe {shlex.quote(asked.recipe)}"
    varied = {key for plan in of_study for key in asked.overrides if key in {**plan.factors, **plan.curves}}
    if varied:
        why = f"the study varies {' and '.join(sorted(varied))}: its table has every value"
        raise ValueError(f"{shown}: was not run in {source}: {why}")
    existing = naming.with_settings(existing_names(source), plans)
    raise ValueError(f"{shown}: was not run in {source} (there: {existing}): `{command}` first")


def named_plans(runs: Path, asked: Request) -> plan_files.Plans:
    return plan_files.named_plans(runs, checked_names(asked, runs))


def trial_ids(runs: Path, asked: Request, arms: Sequence[str]) -> list[str]:
    """Return the ids of the trials that a command names by id, or by study and patterns of arm names."""
    ids: list[str] = []
    studies: list[str] = []
    for word in asked.studies:
        is_id = is_trial_id(word) and (runs / "trials" / word).is_dir()
        (ids if is_id else studies).append(word)
    if studies:
        plans = named_plans(runs, replace(asked, studies=studies)).all()
        ids += [job.id for job in jobs(plans, arms)]
    return ids
