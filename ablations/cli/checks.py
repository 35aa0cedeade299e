"""`ablate check`: test parts, studies and recipes against the contracts."""

from typing import Annotated

import typer

from ablations.cli.answer import FAILED
from ablations.cli.inputs import options
from ablations.cli.inputs.directories import data_folder, load_plugins


def check(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|NAME...", help="Plug-ins (.py), studies or recipes (.yaml or their names), or 'all'."
        ),
    ],
    recipe: options.RecipeName = "digits",
    plugin: options.Plugins = None,
) -> None:
    """Test a plug-in, a study or a recipe.

    Runs the contract tests on the parts of a plug-in. Lists the arms and confounds of a study. Builds the model of a
    recipe. `all` stands for every packaged part, study and recipe. Exits with 1 where something fails.

    Examples:
        ablate check fourier.py
        ablate check mine.yaml --recipe cifar10
        ablate check all
    """
    from ablations.study.checking import check_word

    load_plugins(plugin)
    data_folder(None)
    passed = [check_word(word, recipe) for word in words]
    if not all(passed):
        raise typer.Exit(FAILED)
