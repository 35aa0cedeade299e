"""Prepare the plans of the studies that a command names. Planning loads torch."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.progress import track

from ablations.cli.inputs import ablate_toml
from ablations.cli.inputs.plan_names import existing_plans
from ablations.cli.inputs.words import Request, check_overrides, parse_words, refuse_other_encodings
from ablations.cli.progress import stderr_console
from ablations.cluster.submit import read_profile
from ablations.execution.launch import Place
from ablations.jobs import jobs
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import saved_plan
from ablations.study.design import Design
from ablations.study.naming import RECIPE, as_words, assignments, packaged_names, stem
from ablations.study.reading import Record, read_recipe, read_study
from ablations.trainables.vit.commands.data_folders import DataFolders
from results.store import plan_files, schemas
from results.store.plan_files import learned_settings
from results.store.schemas import Plan
from results.store.standing import Standings
from slurm.profile import Profile

MARGIN = "margin"


def expand_plan_names(asked: Request, recipe_name: str | None, runs: Path) -> tuple[Request, str]:
    """Return (the words with studies in place of names of plans such as demo@digits, the recipe in these names).

    A plan in the run directory `runs` also gives its study's file, its settings and its margin. Without any name of a
    plan, returns the arguments. Raises ValueError if a plan's settings are unknown, or if the names, or a name and
    `recipe_name`, differ in the recipe or in settings.
    """
    planned = plan_files.planned_names(runs)
    names = [word for word in asked.studies if ("@" in word and stem(word) == word) or word in planned]
    if not names:
        return asked, recipe_name or RECIPE
    plans = {plan.name: plan for plan in existing_plans(runs)}
    named = {name: named_run(name, plans.get(name), runs) for name in names}
    first, recipe = named[names[0]]
    for name, (other, its_recipe) in named.items():
        if (its_recipe, other.overrides) != (recipe, first.overrides):
            raise ValueError(f"{names[0]} and {name}: differ in recipe or settings: give each a command of its own")
    if recipe_name is not None and stem(recipe_name) != stem(recipe):
        raise ValueError(f"{names[0]} --recipe {recipe_name}: the name says the recipe already: leave --recipe out")
    studies = [named[word][0].studies[0] if word in named else word for word in asked.studies]
    margin = first.margin if asked.margin is None else asked.margin
    return Request(studies, first.overrides | asked.overrides, margin), recipe


def named_run(name: str, plan: Plan | None, runs: Path) -> tuple[Request, str]:
    """Return (the study and settings, the recipe) that the name of a plan stands for. plan: the plan, if it exists."""
    study, _, recipe = name.partition("@")
    if plan is None:
        if re.search("[+,]", recipe):
            raise ValueError(f"{name}: was not run in {runs}: begin it with `ablate run {as_words(name)}`")
        return Request([study], {}), recipe
    written = plan.asked or schemas.Asked(study=study, recipe=plan.recipe)
    return Request([written.study], plan.overrides, written.margin), written.recipe


def designs(asked: Request, recipe_name: str, data_dir: Path | None) -> list[Design]:
    """Return a design for each study that a command names, with image folders as paths.

    Raises ValueError if no study is named, or if ablate.toml, the recipe, a study or a setting is invalid.
    """
    folders = ablate_toml.data_folders(data_dir)
    recipe = resolve_data(read_recipe(recipe_name), folders)
    studies = [resolve_data(read_study(name, recipe.trainable), folders) for name in study_names(asked)]
    if asked.margin is not None:
        studies = [study.model_copy(update={MARGIN: asked.margin}) for study in studies]
    return [Design(study, recipe, folders.resolve(asked.overrides)) for study in studies]


def study_names(asked: Request) -> list[str]:
    """Return the names or files of the studies without duplicates. `all` stands for every packaged study.

    Raises ValueError if the command names no study.
    """
    if not asked.studies:
        single = "; for one model: `ablate train KEY=VALUE`" if asked.overrides else ""
        raise ValueError("name a study (`ablate list` shows them), a .yaml file, or 'all'" + single)
    names = (name for word in asked.studies for name in (packaged_names("studies") if word == "all" else [word]))
    return list(dict.fromkeys(names))


def resolve_data(record: Record, folders: DataFolders) -> Record:
    """Return a copy of `record` with names of image folders replaced by paths."""
    return record.model_copy(update=folders.resolve(dict(record)))


def warn_of_other_recipe(asked: Request, runs: Path) -> None:
    """Print a note on standard error for each study on the default recipe that was run only on other recipes."""
    for study in map(stem, study_names(asked)):
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


def prepare_plans(
    words: Sequence[str],
    recipe_name: str | None,
    place: Place,
    seeds: int | None,
    prune: bool,
    data_dir: Path | None,
    given_name: str = "",
    stated: bool = False,
) -> list[Plan]:
    """Return the plans to run, merged with earlier plans on disk. Each plan records the command's arguments.

    given_name: the option --name, or "". stated: whether the recipe's facts about a pack suffice if the pack is
    missing. Writes nothing but notes on standard error. Raises the errors of `parse_words`, `designs` and `prepare`.
    """
    request = parse_words(words)
    if given_name and len(request.studies) > 1:
        raise ValueError(f"--name {given_name}: is one study's: name one study, or leave --name out")
    asked, recipe = expand_plan_names(request, recipe_name, place.runs)
    planned = plan_files.planned_names(place.runs)
    own_names = {study: word for word, study in zip(request.studies, asked.studies, strict=True) if word in planned}
    check_overrides(asked.overrides, asked.studies, recipe)
    made = designs(asked, recipe, data_dir)
    if recipe_name is None and recipe == RECIPE:
        warn_of_other_recipe(asked, place.runs)
    prune |= stated and use_stated_pack(made, data_dir)
    plans = []
    for name, design in zip(study_names(asked), track_planning(made), strict=True):
        given = schemas.Asked(
            study=absolute_name(name),
            recipe=absolute_name(recipe),
            plugins=[*place.plugins],
            data_dir=str(place.data_dir.absolute()) if place.data_dir else None,
            **({} if asked.margin is None else {MARGIN: asked.margin}),
        )
        plan_name = given_name or own_names.get(name, "")
        plan = prepare(design, place.runs, seeds, prune, place.code, plan_name)
        warn_of_needless_settings(plan, place.runs)
        old = saved_plan(place.runs, plan.name)
        if old is not None and old.overrides != plan.overrides:  # they differ in how trials run
            if is_over(plan, place.runs):  # no trial runs with the new settings
                as_run = replace(design, overrides=old.overrides)
                plan = prepare(as_run, place.runs, seeds, prune, place.code, plan_name)
            else:
                warn_of_queued_trials(old, plan, place.runs)
        plans.append(plan.model_copy(update={"asked": given}))
    return plans


def use_stated_pack(made: Sequence[Design], data_dir: Path | None) -> bool:
    """Use the recipe's facts about its pack if the pack does not exist yet. Return whether this was done."""
    recipe, trainable = made[0].recipe, made[0].trainable
    name = str(recipe.config.get("data"))
    if recipe.pack is None or name not in [design.data for design in made]:
        return False
    hint = trainable.assume_data(name, recipe.pack.model_dump(), data_dir)
    if hint:
        print(
            f"data={name}: not packed here: {hint}: planned from what the recipe states of it, as if nothing were "
            "finished",
            file=sys.stderr,
        )
    return bool(hint)


def track_planning(made: Sequence[Design]) -> Iterable[Design]:
    """Return the designs as an iterable that shows a progress bar, because planning can take 10 s."""
    console = stderr_console()
    return track(made, "planning", console=console, transient=True, disable=not console.is_terminal)


def absolute_name(name: str) -> str:
    refuse_other_encodings(name)
    return str(Path(name).absolute()) if stem(name) != name else name


def slurm_profile(name: str, recipe: str) -> Profile:
    """Return a SLURM profile, given its name or file. The recipe's resources fill the keys that the profile omits.

    Raises ValueError if the profile or the recipe is unknown or invalid.
    """
    return read_profile(name, read_recipe(recipe).resources)
