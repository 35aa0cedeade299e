"""`ablate list`: what there is."""

from typing import Annotated

import typer

from ablations.cli import options
from ablations.cli.answer import show_json
from ablations.cli.directories import load_plugins


def list_(
    variants: Annotated[
        bool, typer.Option("--variants", help="Every position, pooling, stem, ... and its options.")
    ] = False,
    plugin: options.Plugins = None,
    as_json: options.AsJson = False,
) -> None:
    """List studies, recipes and variants.

    Examples:
        ablate list
        ablate list --variants --plugin fourier.py
    """
    from ablations.study.reading import packaged, read_recipe, read_study

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
