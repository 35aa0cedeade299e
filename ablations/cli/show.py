"""The commands `ablate show` and `plan`, which describe a study, its trials and its results."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ablations.cli.answer import show_json
from ablations.cli.inputs import parameters, preparation
from ablations.cli.inputs.directories import folder_options, imported_files, make_place, source_path
from ablations.cli.inputs.plan_names import existing_names, existing_plans
from ablations.cli.inputs.words import parse_words
from ablations.cluster import campaign
from ablations.jobs import jobs
from ablations.planning import estimate
from ablations.planning.overview import overview, render
from ablations.study.naming import RECIPE, assignments
from ablations.study.reading import find_file, read_recipe, read_study
from ablations.study.recipe import Recipe
from ablations.study.study import Axis, Study
from ablations.trainables.trainable import find
from results.load import load_studies
from results.store import record
from results.store.schemas.metrics import margin_text, metric_by_name
from results.tables import sentences, study_table
from results.units import duration_text

COST = "# Expected cost:"


def show(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="A study, by name or file.", autocompletion=parameters.studies)
    ],
    recipe: parameters.RecipeName = None,
    runs: parameters.Source = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Show a study's question, cost and results.

    Prints the study's question, source, arms, published values and expected cost. Then prints the answers of the
    study's plans in the run directory.

    Examples:

        ablate show position-embedding
        ablate show pooling --recipe cifar10
    """
    source = source_path(runs)
    request = preparation.expand_plan_names(parse_words([study], recipe), source)
    name = request.studies[0]
    chosen = read_recipe(request.recipe or RECIPE)
    described = read_study(name, chosen)
    if not described.primary_metric:
        described = described.model_copy(update={"metric": find(chosen.trainable).default_metric})
    results = answers(described.name, source)
    if as_json:
        show_json([{"study": described.model_dump(by_alias=True), "recipe": chosen.name, "answers": results}])
        return
    lines = [*description_parts(described, chosen), ("cost", cost(find_file("studies", name), chosen))]
    lines += [("results", f"{plan}: {answer}") for plan, answer in results.items()]
    if not results:
        on = f" --recipe {shlex.quote(request.recipe)}" if request.recipe else ""
        words = f"{shlex.quote(name)}{on}{'' if source.is_file() else folder_options(runs)}"
        commands = f"`ablate plan {words}` estimates the hours, `ablate run {words}` trains it"
        lines.append(("results", f"none in {source}; {commands}"))
    print(f"{described.name}: {described.question}")
    last = ""
    for title, text in lines:
        if title == last:
            title = ""
        if text:
            print(f"  {title:9} {text}")
            last = title or last


def description_parts(study: Study, recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield (title, text) for each line of a study's description. A text may be "", and a title may repeat."""
    metric = metric_by_name(study.primary_metric or find(recipe.trainable).default_metric)
    within = ""
    if study.margin:
        within = f"; equivalent within {margin_text(study.margin, metric)}"
    elif recipe.margin:
        within = f"; equivalent within {margin_text(recipe.margin, metric)} (the margin of {recipe.name})"
    yield "source", study.source
    yield "found", study.found.strip()
    yield "metric", f"{metric.name}{within}"
    yield "metrics", ", ".join(study.metrics[1:])
    yield "baseline", assignments(study.baseline, ", ") or "the recipe's"
    yield from varied_parts(study, recipe)
    yield "budget", f"equal {study.budget}"
    yield "seeds", "more may be added after a table: the first is corrected for it" if study.grows else ""
    yield "race", "arms that can hardly become better take no more seeds" if study.race else ""
    yield "figure", study.figure
    if study.published_of:
        yield "published", f"in {study.published_of.strip()}:"
    for arm, value in study.published.items():
        yield "published", f"{arm}: {metric.value_text(value)}{metric.unit}"
    for claim in study.claims:
        yield "claim", claim


def varied_parts(study: Study, recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield (title, text) for each setting that a study varies, and each named arm, co-change and stage."""
    ways = {"one at a time": study.factors, "every arm at each": study.curves, "tuned for each arm": study.tune}
    for way, axes in ways.items():
        for key, axis in axes.items():
            yield "varies", f"{key}: {values(key, axis, recipe)} ({way})"
    for cross in study.crosses:
        crossed = " x ".join(f"{key}: {values(key, axis, recipe)}" for key, axis in cross.items())
        yield "varies", f"{crossed} (every combination)"
    for name, settings in study.arms.items():
        if settings == "axis":
            settings = recipe.arms.get(name, {})
        yield "arm", f"{name}: {assignments(settings, ', ') or 'the recipe has none'}"
    for name, settings in study.co_changes.items():
        yield "with", f"{name}: {assignments(settings, ', ')}"
    for name, settings in study.stages.items():
        yield "stage", f"{name}: {assignments(settings, ', ') or 'as the recipe says'}"


def values(key: str, axis: Axis, recipe: Recipe) -> str:
    if axis == "all":
        return "every variant there is"
    if axis == "axis":
        axis = ["axis"]
    listed: list[Any] = []
    for value in axis:
        if value == "axis":
            listed += recipe.axes.get(key, [])
        else:
            listed.append(value)
    return ", ".join(map(str, listed)) or f"recipe {recipe.name} has no such axis"


def cost(file: Path, recipe: Recipe) -> str:
    costs = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith(COST):
            costs.append(line.removeprefix(COST).strip().rstrip("."))
    for took in recipe.cost.values():
        costs.append(f"a trial of {recipe.name} takes {duration_text(took.seconds)} on {took.device}")
    return "; ".join(costs)


def answers(study: str, source: Path) -> dict[str, str]:
    given = {plan.name for plan in existing_plans(source) if plan.study == study}
    names = [name for name in existing_names(source) if name in given or name.partition("@")[0] == study]
    if not names:
        return {}
    studies = load_studies(source, names, record.FOR_TABLES)
    return {study.name: sentences.answer(study_table.table(study)) for study in studies}


def plan(
    words: parameters.Words,
    recipe: parameters.RecipeName = None,
    runs: parameters.Runs = None,
    seeds: parameters.Seeds = None,
    name: parameters.PlanName = "",
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    race: parameters.Race = False,
    prune: parameters.Prune = False,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    workers: parameters.Workers = None,
    keep_weights: parameters.Keeping = None,
    profile: Annotated[
        str | None, parameters.profile_option("Estimate hours for this SLURM profile.", "this machine")
    ] = None,
    max_hours: parameters.MaxHours = None,
    sources: parameters.Sources = None,
    probe: Annotated[
        bool, parameters.flag("--probe", "Measure 50 steps of every arm here first, and keep the times.")
    ] = False,
    as_json: parameters.AsJson = False,
) -> None:
    """Show a study's trials, hours and confounds.

    Runs no trial. Counts finished trials, trials shared with other studies, and trials to do. Shows data, duration,
    what differs between the arms, and the smallest difference that the seeds can resolve.

    Examples:

        ablate plan position-embedding --probe
        ablate plan pooling --recipe cifar10 --profile mycluster
        ablate plan pooling --from results.parquet
    """
    if probe and profile is not None:
        raise ValueError(f"--probe measures here, not what --profile {profile} asks for: leave one of them out")
    chosen = None if profile is None else preparation.slurm_profile(profile, recipe)
    place = make_place(runs, data_dir, plugin, keep_weights=keep_weights, profile=chosen)
    plans = preparation.prepare_plans(words, recipe, place, seeds, prune, data_dir, name, stated=not probe, race=race)
    chosen_jobs = jobs(plans, arm)
    taken = preparation.past_trainings(preparation.offers(sources, chosen_jobs, place.runs))
    device = campaign.device(chosen) if chosen else estimate.local_device(plans)
    if probe:
        preparation.ensure_data(jobs(plans), place)
        preparation.ensure_machine(jobs(plans))
        estimate.measure_missing(plans, place.runs, place.data_dir, lambda line: print(line, file=sys.stderr))
    if max_hours is not None:
        estimate.check_max_hours(max_hours, plans, chosen_jobs, place.runs, device, taken)
    keep = place.keep_weights
    here = bool(device.name) and chosen is None
    files = imported_files(place.plugins)
    views = []
    for position, planned in enumerate(plans):
        views.append(overview(planned, place.runs, plans[:position], device, keep, workers, arm, here, files, taken))
    if as_json:
        return show_json(views)
    for view, planned in zip(views, plans, strict=True):
        print(render(view, planned, arm), end="\n\n")
