"""`ablate list`: studies, recipes, variants and settings."""

import inspect
import re
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.cli.answer import show_json
from ablations.cli.inputs import options
from ablations.cli.inputs.directories import load_plugins

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def list_(
    variants: Annotated[
        bool, typer.Option("--variants", help="Every position, pooling, stem, ... and its options.")
    ] = False,
    settings: Annotated[bool, typer.Option("--settings", help="Every setting, its default and its meaning.")] = False,
    plugin: options.Plugins = None,
    as_json: options.AsJson = False,
) -> None:
    """List studies, recipes, variants and settings.

    Examples:
        ablate list
        ablate list --variants --plugin fourier.py
        ablate list --settings
    """
    from ablations.study.reading import packaged, read_recipe, read_study

    if settings:
        described = documented_settings()
        width = max(map(len, described))
        lines = [f"{name:{width}}  {meaning}" for name, meaning in described.items()]
        show_json([{"settings": described}]) if as_json else print("\n".join(lines))
        return
    if variants:
        from ablations.study.catalogue import catalogue, render  # late: the parts are torch modules

        load_plugins(plugin)
        slots = catalogue()
        if as_json:
            show_json([{"variants": slots}])
        else:
            print(render(slots))
        return
    studies = [read_study(name) for name in packaged("studies")]
    recipes = [read_recipe(name) for name in packaged("recipes")]
    if as_json:
        show_json([{"studies": [s.model_dump() for s in studies], "recipes": [r.model_dump() for r in recipes]}])
        return
    width = max(len(name) for name in [*packaged("studies"), *packaged("recipes")])
    print("Studies")
    for study in studies:
        print(f"  {study.name:{width}}  {study.question}")
    print("Recipes")
    for recipe in recipes:
        print(f"  {recipe.name:{width}}  {recipe.description.split('. ')[0].rstrip('.')}")


def documented_settings() -> dict[str, str]:
    """Return each setting's default and the `#:` comment above it or beside it in the class."""
    from vitcore.config import Config

    found = re.findall(r"((?:^ +#: .*\n)*)^    (\w+): (.*)$", inspect.getsource(Config), re.MULTILINE)
    meanings = {name: re.sub(r"\s*#: ", " ", above + " #: " + line.partition("#: ")[2]) for above, name, line in found}
    return {name: described(field, meanings[name]) for name, field in Config.model_fields.items()}


def described(field: "FieldInfo", meaning: str) -> str:
    default = "" if field.is_required() or field.default in ("", {}) else f"[{field.default}] "
    return default + " ".join(meaning.split())
