"""The command `ablate list`, which lists studies, recipes, variants and settings."""

from typing import Annotated, Literal

import typer

from ablations.cli.answer import show
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import load_plugins
from ablations.study.naming import packaged_names
from ablations.study.papers import PAPERS, by_paper, paper_of, title, year
from ablations.study.reading import read_recipe, read_study
from ablations.study.study import Study
from ablations.trainables.vit.commands.catalog import catalog, documented_settings

What = Literal["studies", "recipes", "variants", "settings"]
Listing = tuple[dict[str, object], list[str]]  # content of the JSON, lines of text


def list_(
    what: Annotated[
        What | None,
        typer.Argument(
            metavar="studies|recipes|variants|settings", help="What to list.", show_default="studies and recipes"
        ),
    ] = None,
    variants: Annotated[
        bool, parameters.flag("--variants", "List every position, pooling, stem and so on, with its options.")
    ] = False,
    settings: Annotated[
        bool, parameters.flag("--settings", "List every setting, with its default and meaning.")
    ] = False,
    plugin: parameters.Plugins = None,
    as_json: parameters.AsJson = False,
) -> None:
    """List studies, recipes, variants and settings.

    A study says what varies. A recipe says on what data, with which model and for how long. Studies are grouped
    by the paper whose question they ask: the first known one that their `source` names.

    Examples:

        ablate list
        ablate list variants --plugin fourier.py
        ablate list settings
    """
    if settings or what == "settings":
        described = documented_settings()
        width = max(map(len, described))
        content: dict[str, object] = {"settings": described}
        lines = [f"{name:{width}}  {meaning}" for name, meaning in described.items()]
    elif variants or what == "variants":
        load_plugins(plugin)
        content, lines = variants_listing()
    else:
        content, lines = records_listing(what)
    show(content, "\n".join(lines), as_json)


def variants_listing() -> Listing:
    slots = catalog()
    width = max(len(entry.name) for slot in slots for entry in slot.entries)
    lines = []
    for slot in slots:
        lines.append(slot.slot if slot.entries else f"{slot.slot}  (of plug-ins)")
        for entry in slot.entries:
            lines.append(f"  {entry.name:{width}}  {entry.about}")
            if entry.options:
                options = "  ".join(f"{slot.slot}.{option}={default}" for option, default in entry.options.items())
                lines.append(f"  {'':{width}}  {options}")
    return {"variants": slots}, lines


def records_listing(kind: str | None) -> Listing:
    studies = list(map(read_study, packaged_names("studies")))
    recipes = list(map(read_recipe, packaged_names("recipes")))
    width = max(map(len, [*packaged_names("studies"), *packaged_names("recipes")]))
    content: dict[str, object] = {}
    lines = []
    if kind != "recipes":
        content["studies"] = [study.model_dump() | {"paper": paper_content(study)} for study in studies]
        lines.append("Studies")
        for arxiv, group in by_paper(studies).items():
            lines.append(f"  {title(arxiv)}")
            lines += [f"    {study.name:{width}}  {study.question}" for study in group]
    if kind != "studies":
        content["recipes"] = [recipe.model_dump() for recipe in recipes]
        lines.append("Recipes")
        for recipe in recipes:
            first_sentence = recipe.description.split(". ")[0].rstrip(".")
            lines.append(f"  {recipe.name:{width}}  {first_sentence}")
    return content, lines


def paper_content(study: Study) -> dict[str, object] | None:
    arxiv = paper_of(study)
    if not arxiv:
        return None
    return {"name": PAPERS[arxiv], "arxiv": arxiv, "year": year(arxiv)}
