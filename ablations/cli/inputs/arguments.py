"""Resolve a command's words into studies, settings, plans, trials and SLURM profiles."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ablations.cli.inputs import ablate_toml
from ablations.cli.inputs.corrections import (
    check_assignment,
    check_overrides,
    check_word,
    refuse_other_encodings,
)
from ablations.execution.launch import Place
from ablations.jobs import jobs
from ablations.planning.saved_plans import saved_plan
from ablations.study.naming import ALL_ARMS, assignments, current_name, only_name, plan_name, stem, with_settings
from results import store
from results.store import plan_files, schemas
from results.store.plan_files import learned_settings
from results.store.schemas import Plan, Settings
from results.store.schemas.metrics import checked_margin
from results.store.standing import Standings

if TYPE_CHECKING:
    from ablations.study.design import Design
    from ablations.study.reading import Record
    from slurm.profile import Profile

MARGIN, RECIPE = "margin", "digits"


@dataclass(frozen=True)
class Asked:
    """The studies and settings that a command's words name."""

    studies: list[str]
    overrides: Settings
    margin: float | str | None = None  # replaces the margin of the studies


def parse_words(words: Iterable[str]) -> Asked:
    """Return the studies and settings among the words of a command line.

    Raises ValueError if a setting or the margin is invalid, or if one is given twice.
    """
    studies, overrides = [], {}
    for word in words:
        refuse_other_encodings(word)
        if "=" in word and word != "=" and not word.endswith((".yaml", ".yml")) and "@" not in word.partition("=")[0]:
            from ablations.study import strict_yaml  # imported here because most words are names

            key, value = strict_yaml.assignment(word)
            check_assignment(word, key, value)
            if key in overrides:
                raise ValueError(f"{key} is set twice")
            overrides[key] = value
        else:
            check_word(word)
            studies.append(word)
    margin = overrides.pop(MARGIN, None)
    return Asked(studies, overrides, None if margin is None else checked_margin(margin))


def expand_plan_names(asked: Asked, recipe_name: str, runs: Path) -> tuple[Asked, str]:
    """Return (the words with studies in place of names of plans such as demo@digits, the recipe in these names).

    A plan in the run directory `runs` also gives its study's file, its settings and its margin. Without any name of a
    plan, returns the arguments. Raises ValueError if a plan's settings are unknown, or if the names, or a name and
    `recipe_name`, differ in the recipe or in settings.
    """
    names = [word for word in asked.studies if "@" in word and stem(word) == word]
    if not names:
        return asked, recipe_name
    plans = {plan.name: plan for plan in existing_plans(runs)}
    named = {name: named_run(name, plans.get(name), runs) for name in names}
    first, recipe = named[names[0]]
    for name, (other, its_recipe) in named.items():
        if (its_recipe, other.overrides) != (recipe, first.overrides):
            raise ValueError(f"{names[0]} and {name}: differ in recipe or settings: give each a command of its own")
    if recipe_name not in (RECIPE, recipe) and stem(recipe_name) != stem(recipe):
        raise ValueError(f"{names[0]} --recipe {recipe_name}: the name says the recipe already: leave --recipe out")
    studies = [named[word][0].studies[0] if word in named else word for word in asked.studies]
    margin = first.margin if asked.margin is None else asked.margin
    return Asked(studies, first.overrides | asked.overrides, margin), recipe


def named_run(name: str, plan: Plan | None, runs: Path) -> tuple[Asked, str]:
    """Return (the study and settings, the recipe) that the name of a plan stands for. plan: the plan, if it exists."""
    study, _, recipe = name.partition("@")
    if plan is None:
        if re.search("[+,]", recipe):
            raise ValueError(f"{name}: was not run in {runs}: name its study, recipe and settings")
        return Asked([study], {}), recipe
    written = plan.asked or schemas.Asked(study=study, recipe=plan.recipe)
    return Asked([written.study], plan.overrides, written.margin), written.recipe


def designs(asked: Asked, recipe_name: str, data_dir: Path | None) -> "list[Design]":
    """Return a design for each study that a command names, with image folders as paths.

    Raises ValueError if no study is named, or if ablate.toml, the recipe, a study or a setting is invalid.
    """
    from ablations.study.design import Design
    from ablations.study.reading import read_recipe, read_study

    images = ablate_toml.places(data_dir).images
    recipe = resolve_data(read_recipe(recipe_name), images)
    studies = [resolve_data(read_study(name), images) for name in study_names(asked)]
    if asked.margin is not None:
        studies = [study.model_copy(update={MARGIN: asked.margin}) for study in studies]
    return [Design(study, recipe, resolve_settings(asked.overrides, data_dir)) for study in studies]


def study_names(asked: Asked) -> list[str]:
    """Return the names or files of the studies without duplicates. `all` stands for every packaged study.

    Raises ValueError if the command names no study.
    """
    if not asked.studies:
        single = "; for one model: `ablate train KEY=VALUE`" if asked.overrides else ""
        raise ValueError("name a study (`ablate list` shows them), a .yaml file, or 'all'" + single)
    names = (name for word in asked.studies for name in (packaged_studies() if word == "all" else [word]))
    return list(dict.fromkeys(names))


def resolve_data(record: "Record", images: Mapping[str, str]) -> "Record":
    """Return a copy of `record` with names of image folders replaced by paths. images: name -> folder."""
    return record.model_copy(update=ablate_toml.resolve_images(dict(record), images))


def resolve_settings(config: Settings, data_dir: Path | None = None) -> Settings:
    """Return `config` with paths for image folders that ablate.toml names. Raises ValueError if the file is invalid."""
    return dict(ablate_toml.resolve_images(config, ablate_toml.places(data_dir).images))


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
    overrides, there = resolve_settings(asked.overrides), existing_names(source)
    plans = existing_plans(source) if any("+" in name for name in there) else []
    known = {name: name for name in there} | {plan.name: current_name(plan) for plan in plans}
    words = asked.studies
    return [one if "@" in one else planned_name(stem(one), recipe_name, overrides, known, source) for one in words]


def planned_name(
    study: str, recipe_name: str | None, overrides: Settings, known: Mapping[str, str], source: Path
) -> str:
    """Return the name of a study's plan on the named or default recipe, or else of its only plan.

    Without such a plan, returns the name that it would have. known: name of an existing plan -> its `current_name`.
    Raises the error of `only_name` if several plans match.
    """
    asked_for = plan_name(study, stem(recipe_name or RECIPE), overrides)
    if asked_for in known:
        return asked_for
    found = [name for name, now in known.items() if now == asked_for]
    if not found and recipe_name is None:
        hashed = plan_name("", "", overrides).removeprefix("@")
        found = [name for name, now in known.items() if now.startswith(f"{study}@") and now.endswith(hashed)]
    if len(found) > 1:
        return only_name(found, overrides, existing_plans(source), source)
    return found[0] if found else asked_for


def warn_of_other_recipe(asked: Asked, recipe_name: str, runs: Path) -> None:
    """Print a note on standard error for each study on the default recipe that was run only on other recipes."""
    for study in map(stem, study_names(asked) if recipe_name == RECIPE else ()):
        known = [plan for plan in existing_plans(runs) if plan.study == study]
        if known and RECIPE not in {plan.recipe for plan in known}:
            others = dict.fromkeys(f"--recipe {recipe_argument(plan)}" for plan in known)
            print(f"recipe {RECIPE}; {runs} has {study} with {', '.join(others)}", file=sys.stderr)


def warn_of_needless_settings(plan: Plan, runs: Path) -> None:
    """Print a note on standard error if an existing plan with fewer overrides has configs equal to those of `plan`."""
    alike = [one for one in existing_plans(runs) if (one.study, one.recipe) == (plan.study, plan.recipe)]
    learned = learned_settings(plan.overrides)
    fewer = [one for one in alike if learned_settings(one.overrides).items() < learned.items()]
    for known in sorted(fewer, key=lambda one: len(one.overrides)):
        configs = {entry.name: learned_settings(entry.config) for entry in known.entries}
        if all(configs.get(entry.name) == learned_settings(entry.config) for entry in plan.entries):
            needless = {key: value for key, value in learned.items() if key not in known.overrides}
            said = assignments(needless, ", ")
            print(f"{said}: makes no difference: leave it out to continue {known.name}", file=sys.stderr)
            break


def warn_of_queued_trials(old: Plan, plan: Plan, runs: Path) -> None:
    """Warn on standard error if queued trials of the old plan will be trained with the new plan's overrides."""
    if (runs / "submissions").exists() and not is_over(old, runs):
        now, then = assignments(plan.overrides), assignments(old.overrides)
        said = f"with {now}" if now else f"without {then}"
        print(f"{plan.name}: trials queued on SLURM will also be trained {said}", file=sys.stderr)


def is_over(plan: Plan, runs: Path) -> bool:
    """Return whether no trial of a plan is left to run."""
    seen = Standings(runs)
    return all(job.standing(seen).is_over for job in jobs([plan]))


def recipe_argument(plan: Plan) -> str:
    """Return the recipe of a plan as the option --recipe takes it, quoted for a shell."""
    name = plan.asked.recipe if plan.asked else plan.recipe
    return shlex.quote(os.path.relpath(name) if Path(name).is_relative_to(Path.cwd()) else name)


def existing_names(source: Path) -> list[str]:
    """Return the names of an export's plans or a run directory's, even if damaged. Raises ValueError if unreadable."""
    if source.is_file():
        return [plan.name for plan in existing_plans(source)]
    return plan_files.planned_names(source)


def existing_plans(source: Path) -> list[Plan]:
    """Return the undamaged plans of a run directory, or all of an export. Raises the errors of `existing_names`."""
    if source.is_file():
        from results.export import read_header  # imported here because it loads the Parquet reader

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
        if stem(word) != word or own or study in packaged_studies():
            settings = f" with {said}" if said and "@" not in word else ""
            raise ValueError(f"{name.partition('+')[0]}: was not run{settings} in {source}{listed}")
    return names


def packaged_studies() -> list[str]:
    from ablations.study.reading import packaged_names  # imported here because it loads pydantic

    return packaged_names("studies")


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


def prepare_plans(
    words: Sequence[str],
    recipe_name: str,
    place: Place,
    seeds: int | None,
    prune: bool,
    data_dir: Path | None,
    stated: bool = False,
) -> list[Plan]:
    """Return the plans to run, merged with earlier plans on disk. Each plan records the command's arguments.

    stated: whether the recipe's facts about a pack suffice if the pack is missing. Writes nothing but notes on standard
    error. Raises the errors of `parse_words`, `designs` and `prepare`.
    """
    from ablations.planning.prepare import prepare

    asked, recipe_name = expand_plan_names(parse_words(words), recipe_name, place.runs)
    check_overrides(asked.overrides, asked.studies, recipe_name)
    made = designs(asked, recipe_name, data_dir)
    warn_of_other_recipe(asked, recipe_name, place.runs)
    prune |= stated and use_stated_pack(made, data_dir)
    plans = []
    for name, design in zip(study_names(asked), track_planning(made), strict=True):
        given = schemas.Asked(
            study=absolute_name(name),
            recipe=absolute_name(recipe_name),
            plugins=[*place.plugins],
            data_dir=str(place.data_dir.absolute()) if place.data_dir else None,
            **({} if asked.margin is None else {MARGIN: asked.margin}),
        )
        plan = prepare(design, place.runs, seeds, prune, place.code)
        warn_of_needless_settings(plan, place.runs)
        old = saved_plan(place.runs, plan.name)
        if old is not None and old.overrides != plan.overrides:  # they differ in how trials run
            if is_over(plan, place.runs):  # no trial runs with the new settings
                as_run = replace(design, overrides=old.overrides)
                plan = prepare(as_run, place.runs, seeds, prune, place.code)
            else:
                warn_of_queued_trials(old, plan, place.runs)
        plans.append(plan.model_copy(update={"asked": given}))
    return plans


def use_stated_pack(made: "Sequence[Design]", data_dir: Path | None) -> bool:
    """Use the recipe's facts about its pack if the pack does not exist yet. Return whether this was done."""
    from vitcore.data.lookup import STATED, pack_hint
    from vitcore.data.pack import find

    recipe = made[0].recipe
    name = str(recipe.config.get("data"))
    if recipe.pack is None or name not in [design.data for design in made] or find(name, data_dir) is not None:
        return False
    print(
        f"data={name}: not packed here: {pack_hint(name)}: planned from what the recipe states of it, as if nothing "
        "were finished",
        file=sys.stderr,
    )
    STATED[name] = recipe.pack.about(name)
    return True


def track_planning(made: "Sequence[Design]") -> "Iterable[Design]":
    """Return the designs as an iterable that shows a progress bar, because planning can take 10 s."""
    from rich.progress import track

    from ablations.cli.progress import stderr_console

    console = stderr_console()
    return track(made, "planning", console=console, transient=True, disable=not console.is_terminal)


def absolute_name(name: str) -> str:
    refuse_other_encodings(name)
    return str(Path(name).absolute()) if stem(name) != name else name


def slurm_profile(name: str, recipe: str) -> "Profile":
    """Return a SLURM profile, given its name or file. The recipe's resources fill the keys that the profile omits.

    Raises ValueError if the profile or the recipe is unknown or invalid.
    """
    from ablations.cluster.submit import read_profile
    from ablations.study.reading import read_recipe

    return read_profile(name, read_recipe(recipe).resources)
