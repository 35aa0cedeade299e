"""Prepare the plans of the studies that a command names, and check what their trials need. Planning loads torch."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.progress import Progress

from ablations import machine
from ablations.cli.inputs.directories import data_folders, ensure_publishable, ensure_writable
from ablations.cli.inputs.plan_names import existing_plans, name_on_disk
from ablations.cli.inputs.words import Request, parse_words, refuse_csv, refuse_other_encodings
from ablations.cluster.submit import read_profile
from ablations.execution import slots
from ablations.execution.launch import Place
from ablations.execution.progress import stderr_console
from ablations.execution.race import open_jobs
from ablations.execution.reopen import trials_to_run
from ablations.jobs import Job, unfinished
from ablations.planning import estimate, merging
from ablations.planning.estimate import Device, PastTraining
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import saved_plan
from ablations.study.design import Design
from ablations.study.naming import RECIPE, as_words, assignments, packaged_names, stem
from ablations.study.reading import read_recipe, read_study
from ablations.trainables.trainable import find
from results import store
from results.store import plan_files
from results.store.schemas.base import Settings
from results.store.schemas.plans import Asked, Plan
from results.store.schemas.trials import Environment
from results.store.standing import Standings
from slurm.profile import Profile


def expand_plan_names(asked: Request, runs: Path) -> Request:
    """Return the request with studies in place of names of plans such as demo@digits, and with the recipe in these."""
    planned = plan_files.planned_names(runs)
    words = [name_on_disk(word, planned) for word in asked.studies]
    names = [word for word in words if ("@" in word and stem(word) == word) or word in planned]
    if not names:
        return asked
    without = [word for word in words if word not in names]
    plans = {plan.name: plan for plan in existing_plans(runs)}
    first = named_run(names[0], plans.get(names[0]), runs)
    for name in names:
        other = named_run(name, plans.get(name), runs)
        if (other.recipe, other.overrides) != (first.recipe, first.overrides):
            raise ValueError(f"{names[0]} and {name}: differ in recipe or settings: give each a command of its own")
        words[words.index(name)] = other.studies[0]
    if asked.recipe is not None and stem(asked.recipe) != stem(first.recipe or RECIPE):
        raise ValueError(f"{names[0]} --recipe {asked.recipe}: the name says the recipe already: leave --recipe out")
    if without and (first.overrides or stem(asked.recipe or RECIPE) != stem(first.recipe or RECIPE)):
        raise ValueError(f"{names[0]} and {without[0]}: differ in recipe or settings: give each a command of its own")
    margin = asked.margin
    if margin is None:
        margin = first.margin
    return Request(words, first.overrides | asked.overrides, margin, first.recipe)


def named_run(name: str, plan: Plan | None, runs: Path) -> Request:
    """Return the study, settings and recipe that the name of a plan stands for. plan: the plan, if it exists."""
    if plan is not None:
        written = plan.asked or Asked(study=name.partition("@")[0], recipe=plan.recipe)
        return Request([written.study], plan.overrides, written.margin, written.recipe)
    study, _, recipe = name.partition("@")
    if re.search("[+,]", recipe):
        raise ValueError(f"{name}: was not run in {runs}: begin it with `ablate run {as_words(name)}`")
    return Request([study], {}, recipe=recipe)


def designs(asked: Request, data_dir: Path | None, race: bool = False) -> list[Design]:
    folders = data_folders(data_dir)
    recipe = read_recipe(asked.recipe or RECIPE)
    recipe = recipe.model_copy(update=folders.resolve(dict(recipe)))
    overrides = folders.resolve(asked.overrides)
    studies = []
    for name in study_names(asked):
        study = read_study(name, recipe)
        declared = asked.stated_margin | {"race": race or study.race}
        study = study.model_copy(update={**folders.resolve(dict(study)), **declared})
        studies.append(Design(study, recipe, overrides))
    return studies


def study_names(asked: Request) -> list[str]:
    if not asked.studies:
        single = "; for one model: `ablate train KEY=VALUE`" if asked.overrides else ""
        raise ValueError("name a study (`ablate list` shows them), a .yaml file, or 'all'" + single)
    names: list[str] = []
    for word in asked.studies:
        if word == "all":
            names += packaged_names("studies")
        else:
            names.append(word)
    return list(dict.fromkeys(names))


def warn_of_other_recipe(asked: Request, runs: Path) -> None:
    """Print a note on standard error for each study on the default recipe that was run only on other recipes."""
    plans = existing_plans(runs)
    for study in map(stem, study_names(asked)):
        recipes = {plan.recipe: recipe_argument(plan) for plan in plans if plan.study == study}
        if recipes and RECIPE not in recipes:
            others = ", ".join(f"--recipe {recipe}" for recipe in recipes.values())
            print(f"recipe {RECIPE}; {runs} has {study} with {others}", file=sys.stderr)


def recipe_argument(plan: Plan) -> str:
    """Return the recipe of a plan as the option --recipe takes it, quoted for a shell."""
    name = plan.asked.recipe if plan.asked else plan.recipe
    if Path(name).is_relative_to(Path.cwd()):
        name = os.path.relpath(name)
    return shlex.quote(name)


def warn_of_queued_trials(old: Plan, plan: Plan, runs: Path) -> None:
    """Warn on standard error if queued trials of the old plan will be trained with the new plan's overrides."""
    if (runs / "submissions").exists() and not is_over(old, runs):
        now = assignments(plan.overrides)
        how = f"with {now}" if now else f"without {assignments(old.overrides)}"
        print(f"{plan.name}: trials queued on SLURM will also be trained {how}", file=sys.stderr)


def is_over(plan: Plan, runs: Path) -> bool:
    standings = Standings(runs)
    return all(job.standing(standings).is_over for job in open_jobs(runs, [plan]))


def prepare_plans(
    words: Sequence[str],
    recipe: str | None,
    place: Place,
    seeds: int | None,
    prune: bool,
    data_dir: Path | None,
    given_name: str = "",
    stated: bool = False,
    race: bool = False,
) -> list[Plan]:
    """Return the plans to run, merged with earlier ones. stated: whether a recipe's facts about a pack suffice."""
    typed = parse_words(words, recipe)
    if given_name and len(typed.studies) > 1:
        raise ValueError(f"--name {given_name}: is one study's: name one study, or leave --name out")
    request = expand_plan_names(typed, place.runs)
    request.check_overrides()
    studies = designs(request, data_dir, race)
    if request.recipe is None:
        warn_of_other_recipe(request, place.runs)
    prune |= stated and use_stated_pack(studies, data_dir)
    planned = plan_files.planned_names(place.runs)
    named: dict[str, Plan] = {}  # study -> the existing plan that the command names
    words_by_study: dict[str, str] = {}
    for word, study in zip(typed.studies, request.studies, strict=True):
        first = words_by_study.setdefault(study, word)
        if first != word:
            raise ValueError(f"{first} and {word}: are of one study, {stem(study)}: give each a command of its own")
        name = name_on_disk(word, planned)
        if name in planned:
            named[study] = store.read_plan(store.study_folder(place.runs, name) / "plan.json")
    plans = []
    for study, design in zip(study_names(request), track_planning(studies), strict=True):
        number = seeds
        name = given_name
        if study in named:
            name = given_name or named[study].name
            if seeds is None and not prune:  # the name means the plan's own seeds, not the recipe's
                number = len(named[study].seeds)
        plan = prepared(design, place, number, prune, name)
        given = Asked(
            study=absolute_name(study),
            recipe=absolute_name(request.recipe or RECIPE),
            plugins=[*place.plugins],
            data_dir=str(place.data_dir.absolute()) if place.data_dir else None,
            **request.stated_margin,
        )
        plans.append(plan.model_copy(update={"asked": given}))
    return plans


def prepared(design: Design, place: Place, seeds: int | None, prune: bool, name: str) -> Plan:
    """Return the plan of a design. If no trial is left to run, it keeps the settings of how its trials ran."""
    plan = prepare(design, place.runs, seeds, prune, place.code, name)
    old = saved_plan(place.runs, plan.name)
    if old is None or old.overrides == plan.overrides:
        return plan
    if is_over(plan, place.runs):  # the overrides differ in how trials run
        as_run = replace(design, overrides=old.overrides)
        return prepare(as_run, place.runs, seeds, prune, place.code, plan.name)
    warn_of_queued_trials(old, plan, place.runs)
    return plan


def use_stated_pack(studies: Sequence[Design], data_dir: Path | None) -> bool:
    """Use the recipe's facts about its pack if the pack does not exist yet. Return whether this was done."""
    recipe = studies[0].recipe
    name = str(recipe.config.get("data"))
    if recipe.pack is None or name not in [design.data for design in studies]:
        return False
    hint = studies[0].trainable.assume_data(name, recipe.pack.model_dump(), data_dir)
    if hint:
        how = "planned from what the recipe states of it, as if nothing were finished"
        print(f"data={name}: not packed here: {hint}: {how}", file=sys.stderr)
    return bool(hint)


def track_planning(studies: Sequence[Design]) -> Iterator[Design]:
    """Yield the designs, and meanwhile show a progress bar on a terminal, because planning can take 10 s."""
    console = stderr_console()
    silent = not console.is_terminal
    with Progress(
        console=console, transient=True, redirect_stdout=False, redirect_stderr=False, disable=silent
    ) as progress:
        yield from progress.track(studies, description="planning")


def absolute_name(name: str) -> str:
    refuse_other_encodings(name)
    if stem(name) == name:
        return name
    return str(Path(name).absolute())


def slurm_profile(name: str, recipe: str | None) -> Profile:
    """Return a SLURM profile, given its name or file. The recipe's resources fill the keys that the profile omits."""
    return read_profile(name, read_recipe(recipe or RECIPE).resources)


def offers(sources: Sequence[Path] | None, jobs: Iterable[Job], runs: Path) -> list[merging.Offer]:
    for source in sources or ():
        refuse_csv(source)
    return merging.offers(sources or (), jobs, runs)


def past_trainings(found: Iterable[merging.Offer]) -> dict[str, PastTraining]:
    """Return trial id -> training time and place, of the trials that are offered."""
    times: dict[str, PastTraining] = {}
    for offer in found:
        for trial in offer.trials:
            environment = Environment.model_validate(trial.environment(""))
            times[trial.id] = PastTraining(trial.train_seconds, environment)
    return times


def take_from(
    sources: Sequence[Path] | None,
    jobs: Sequence[Job],
    runs: Path,
    plans: Sequence[Plan],
    max_hours: float | None,
    device: Device | None = None,
) -> None:
    """Write the trials that the sources of --from have of the jobs into the run directory, and say how many.

    Raises ValueError, before anything is written, if the other trials take more than `max_hours`.
    device: where they will be trained; None for here.
    """
    racing = [plan.name for plan in plans if plan.race]
    if sources and racing:
        raise ValueError(f"--from: {racing[0]} is a race, which is declared before there are results: leave --from out")
    taken = offers(sources, jobs, runs)
    if max_hours is not None:
        device = device or estimate.local_device(plans)  # may load CUDA, which nothing else here needs
        estimate.check_max_hours(max_hours, plans, jobs, runs, device, past_trainings(taken))
    if taken:
        ensure_publishable(runs)
    for offer in taken:
        merging.take(offer, runs)
        print(f"ablate: {offer.text}", file=sys.stderr)


def ensure_trainable(jobs: list[Job], place: Place) -> None:
    """Raise ValueError if the trials cannot be trained here, or an error of `ensure_data`. Creates missing folders."""
    todo = trials_to_run(place.runs, jobs, place.code)
    slots.check_gpus(todo, len(machine.gpus()), machine.nodes(), "here")
    ensure_machine(todo)
    ensure_data(jobs, place)
    ensure_publishable(place.runs)
    if place.checkpoints:
        ensure_writable(place.checkpoints, "--checkpoints", mode=0o700)


def ensure_machine(jobs: Iterable[Job]) -> None:
    for job in jobs:
        find(job.trainable).check_machine(job.config, job.description)


def ensure_data(jobs: list[Job], place: Place) -> None:
    """Raise ValueError if data that the trials need are missing or damaged, and OSError if they cannot be read."""
    trials: dict[str, list[Settings]] = {}  # trainable -> settings
    to_train: dict[str, list[Settings]] = {}
    for job in jobs:
        trials.setdefault(job.trainable, []).append(job.config)
    for job in unfinished(jobs, place.runs).values():
        to_train.setdefault(job.trainable, []).append(job.config)
    for trainable, settings in trials.items():
        find(trainable).check_data(settings, to_train.get(trainable, []), place.data_dir)
