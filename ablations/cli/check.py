"""The command `ablate check`, which tests plug-ins, studies and recipes before anything is trained."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ablations.cli.answer import fail_if
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import data_folders, load_plugins
from ablations.planning.checks import check as check_design
from ablations.planning.checks import check_margin
from ablations.planning.plan import description
from ablations.study import strict_yaml
from ablations.study.arms import Values
from ablations.study.design import Design
from ablations.study.naming import RECIPE, assignments, packaged_names
from ablations.study.reading import kind_of, read_recipe, read_study
from ablations.study.recipe import Recipe
from ablations.trainables.trainable import find
from results.store.schemas import Settings


def check(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|NAME", help="Plug-ins (.py), studies or recipes (.yaml or their names), or 'all'."
        ),
    ],
    recipe: parameters.RecipeName = None,
    plugin: parameters.Plugins = None,
) -> None:
    """Test a plug-in, a study or a recipe.

    Runs the contract tests on the parts of a plug-in. Lists the arms and confounds of a study. Builds the model of a
    recipe. `all` stands for every packaged part, study and recipe. The exit status is 1 if a check fails, and 2 if
    something cannot be checked, such as a plug-in that does not import.

    Examples:

        ablate check fourier.py
        ablate check mine.yaml --recipe cifar10
        ablate check all
    """
    load_plugins(plugin)
    data_folders().use()
    chosen = read_recipe(recipe or RECIPE)
    passed = list(map(partial(check_word, recipe=chosen), words))
    fail_if(not all(passed))


def check_word(word: str, recipe: Recipe) -> bool:
    """Check what `word` names, print one line per check, and return whether all checks pass.

    word: a plug-in, a study, a recipe or "all". recipe: the recipe for studies. Raises ValueError if `word` names
    nothing to check or an invalid study or recipe.
    """
    if word == "all":
        return check_everything(recipe)
    if word.endswith(".py"):
        from ablations.trainables.vit.commands import part_checks  # imported here because it loads torch

        return part_checks.check_plugin(Path(word))
    is_file = word.endswith((".yaml", ".yml"))
    if word in packaged_names("studies") or (is_file and kind_of(strict_yaml.read(Path(word))) == "study"):
        check_study(word, recipe)
    elif word in packaged_names("recipes") or is_file:
        check_recipe(word)
    else:
        raise ValueError(
            f"{word}: not a plug-in (.py), a study or recipe (.yaml, or a name of `ablate list`), or 'all'"
        )
    return True


def check_everything(recipe: Recipe) -> bool:
    """Check all packaged parts, studies and recipes; return whether all pass. An error does not end the checks."""
    from ablations.trainables.vit.commands import part_checks  # imported here because it loads torch

    passed = part_checks.check_packaged_parts()
    recipes = packaged_names("recipes")
    for name in (*packaged_names("studies"), *recipes):
        try:
            data = read_recipe(name).config["data"] if name in recipes else None
            if data and part_checks.is_missing_pack(data):
                print(f"{name}\n  skipped data={data}: no such pack here")
            else:
                check_word(name, recipe)
        except ValueError as error:
            print(f"{name}\n  FAILED  {' '.join(str(error).split())}")
            passed = False
    return passed


def check_study(file: str, recipe: Recipe) -> None:
    """Check every arm of a study, and print the arms and their confounds.

    Raises ValueError if an arm is not valid or its model cannot be built.
    """
    design = Design(read_study(file, recipe.trainable), recipe, {})
    check_design(design)
    arms = {arm.name: arm for arm in design.arms}
    for arm in design.arms:
        description(design.trainable, arm.name, arm.config)  # builds the model
    print(f"{file} on recipe {recipe.name}")
    for arm in design.arms:
        role = "baseline"
        if arm.name != arm.baseline:
            notes = arm.footnotes(arms[arm.baseline], design.study.budget)
            role = "; ".join(notes) or "nothing else differs"
        print(f"  ok      {arm.name}: {role}")


def check_recipe(file: str) -> None:
    """Check the configs of a recipe, its arms, axes and stages, and print what was checked.

    Raises ValueError if a config is invalid or a model cannot be built.
    """
    recipe = read_recipe(file)
    trainable = find(recipe.trainable)
    check_margin(recipe.margin, file)

    def resolved(where: str, *layers: Values) -> Settings:
        try:
            settings = trainable.resolve(trainable.merge(recipe.config, *layers))
            trainable.check_trial(settings, None)
        except ValueError as error:
            raise ValueError(f"{file}: {where}: {error}") from None
        return settings

    config = resolved("config")
    # Options of variants are left out, which a study may choose.
    axes = [key for key in recipe.axes if not {*key.split(".")[:-1]} & {*trainable.keys}]
    for key in axes:
        stage, _, name = key.rpartition(".")
        for value in recipe.axes[key]:
            resolved(f"axes: {key}", trainable.merge(recipe.stages.get(stage, {}), {name: value}))
    size = trainable.describe(config)
    print(file)
    if "params" in size:
        print(f"  ok      {size['params']:,} parameters, {size['flops']:,} FLOPs an image, {config['steps']:,} steps")
    else:
        print(f"  ok      settings {assignments(config, ', ')}")
    for name, settings in recipe.arms.items():
        ratio = flops_text(trainable.describe(resolved(f"arm {name}", settings)), size)
        print(f"  ok      arm {name}: {ratio}")
    if axes:
        print(f"  ok      the values of axes {', '.join(axes)}")
    for name, settings in recipe.stages.items():
        config = resolved(f"stage {name}", settings)
        text = "is valid"
        if "params" in size:
            text = f"{config['steps']:,} steps of {config['batch']} images of {config['data']}"
        print(f"  ok      stage {name}: {text}")


def flops_text(described: Settings, reference: Settings) -> str:
    """Return how the FLOPs of an arm compare with the recipe's, such as "2.1 times the FLOPs"."""
    if "flops" not in reference:
        return "is valid"
    ratio = f"{described['flops'] / reference['flops']:.2g}"
    return "the same FLOPs" if ratio == "1" else f"{ratio} times the FLOPs"
