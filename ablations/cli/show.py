"""The command `ablate show`, which describes a study and its results."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ablations.cli.answer import show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import source_path
from ablations.cli.inputs.plan_names import existing_names
from ablations.cli.inputs.preparation import expand_plan_names
from ablations.cli.inputs.words import parse_words
from ablations.study.naming import assignments, stem
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
    named, recipe_name = expand_plan_names(parse_words([study]), recipe, source_path(runs))
    study = named.studies[0]
    asked, on = read_study(study), read_recipe(recipe_name)
    found = answers(asked.name, source_path(runs))
    if as_json:
        show_json([{"study": asked.model_dump(by_alias=True), "recipe": on.name, "answers": found}])
        return
    commands = f"`ablate plan {study}` estimates the hours, `ablate run {study}` trains it"
    advice = f"none in {source_path(runs)}; {commands}"
    entries = [*description_parts(asked, on), ("cost", cost(find_file("studies", study), on))]
    entries += [("results", f"{name}: {answer}") for name, answer in found.items()] or [("results", advice)]
    print(f"{asked.name}: {asked.question}")
    last = ""
    for title, text in entries:
        if text:
            print(f"  {'' if title == last else title:9} {text}")
            last = title


def description_parts(study: Study, recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield (title, text) for each line of a study's description. A text may be "", and a title may repeat."""
    margin, whose = (study.margin, "") if study.margin else (recipe.margin, f" (the margin of {recipe.name})")
    metric = metric_by_name(study.metric or find(recipe.trainable).default_metric)
    within = f"; equivalent within {margin_text(margin, metric)}{whose}" if margin else ""
    yield "source", study.source
    yield "found", study.found.strip()
    yield "metric", f"{metric.name}{within}"
    yield "baseline", assignments(study.baseline, ", ") or "the recipe's"
    yield from varied_parts(study, recipe)
    yield "budget", f"equal {study.budget}"
    yield "seeds", "more may be added after a table: the first is corrected for it" if study.grows else ""
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
        own = recipe.arms.get(name, {}) if settings == "axis" else settings
        yield "arm", f"{name}: {assignments(own, ', ') or 'the recipe has none'}"
    for name, settings in study.co_changes.items():
        yield "with", f"{name}: {assignments(settings, ', ')}"
    for name, settings in study.stages.items():
        yield "stage", f"{name}: {assignments(settings, ', ') or 'as the recipe says'}"


def values(key: str, axis: Axis, recipe: Recipe) -> str:
    """Return the values of an axis as text, with the recipe's values in place of "axis"."""
    if axis == "all":
        return "every variant there is"
    own = recipe.axes.get(key, [])
    listed = [axis] if isinstance(axis, str) else axis
    known = [one for value in listed for one in (own if value == "axis" else [value])]
    return ", ".join(map(str, known)) or f"recipe {recipe.name} has no such axis"


def cost(file: Path, recipe: Recipe) -> str:
    """Return the expected cost as text: the comment in the study's file, then the training times in the recipe."""
    lines = file.read_text(encoding="utf-8").splitlines()
    heads = [line.removeprefix(COST).strip() for line in lines if line.startswith(COST)]
    times = [f"{duration_text(one.seconds)} on {one.device}" for one in recipe.cost.values()]
    return "; ".join(
        [*(head.rstrip(".") for head in heads), *(f"a trial of {recipe.name} takes {one}" for one in times)]
    )


def answers(study: str, source: Path) -> dict[str, str]:
    names = [name for name in existing_names(source) if name.partition("@")[0] == stem(study)]
    if not names:
        return {}
    found = load_studies(source, names, record.FOR_TABLES)
    return {one.name: sentences.answer(study_table.table(one)) for one in found}
