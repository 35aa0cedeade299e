"""`ablate check`: whether a user's file keeps the contracts."""

from pathlib import Path
from typing import Annotated

import typer

from ablations.cli import options
from ablations.cli.answer import FAILED
from ablations.cli.directories import data_folder, load_plugins


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Plug-ins (.py), studies or recipes (.yaml).")],
    recipe: options.RecipeName = "digits",
    plugin: options.Plugins = None,
) -> None:
    """Test a plug-in, a study or a recipe.

    Runs the contract tests on the parts of a plug-in. Lists the arms and confounds of a study. Builds the model of a
    recipe. Exits with 1 where something fails.

    Examples:
        ablate check fourier.py
        ablate check mine.yaml --recipe cifar10
    """
    from ablations.study.checking import check_file

    load_plugins(plugin)
    data_folder(None)
    passed = [check_file(file, recipe) for file in files]
    if not all(passed):
        raise typer.Exit(FAILED)
