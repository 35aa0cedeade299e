"""`ablate check`: whether a file of one's own keeps the contracts."""

from pathlib import Path
from typing import Annotated

import typer

from ablations.cli import options
from ablations.cli.answer import FAILED
from ablations.cli.directories import data_folder, load_plugins


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Plugins (.py), studies or recipes (.yaml).")],
    recipe: options.RecipeName = "digits",
    plugin: options.Plugins = None,
) -> None:
    """The contract tests on a plugin's parts; a study's arms and confounds; a recipe's config."""
    from ablations.study.checking import check_file

    load_plugins(plugin)
    data_folder(None)
    passed = [check_file(file, recipe) for file in files]
    if not all(passed):
        raise typer.Exit(FAILED)
