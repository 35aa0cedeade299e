"""The command `ablate clean`, which removes files that nothing needs."""

import sys
from typing import Annotated

import typer

from ablations.cli.answer import print_damaged, show_json
from ablations.cli.inputs import ablate_toml, parameters
from ablations.cli.inputs.directories import runs_folder
from ablations.reporting import cleaning
from results import store


def clean(
    runs: parameters.Runs = None,
    keep_weights: parameters.Keeping = None,
    checkpoints: parameters.Checkpoints = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove them; otherwise they are only listed.")] = False,
    as_json: parameters.AsJson = False,
) -> None:
    """List or remove files that nothing needs.

    These are checkpoints of finished trials, attempts that were superseded or never began, and weights that
    --keep-weights does not keep. Results always stay. Nothing is removed without --yes.

    Examples:

        ablate clean
        ablate clean --keep-weights baseline --yes
    """
    folder = runs_folder(runs)
    if runs is not None and not folder.is_dir():
        raise ValueError(f"--runs {folder}: no such run directory")
    here = ablate_toml.read()
    scratch = [ablate_toml.scratch(named)] if (named := checkpoints or here.checkpoints) else []
    keep = keep_weights or here.keep_weights
    plans, damaged = store.read_plans(folder)
    with print_damaged(damaged):
        if damaged and keep != "all":
            print(f"ablate: --keep-weights {keep}: all weights stay, which a damaged plan may need", file=sys.stderr)
        found_waste = cleaning.find_waste(folder, plans, "all" if damaged else keep, *scratch)
        if not as_json:
            for one in found_waste:
                print(f"{one.size / 1e6:10.2f} MB  {one.path}  ({one.why})")
        if yes:
            cleaning.remove(found_waste, folder, *scratch)
        total = sum(one.size for one in found_waste)
        if as_json:
            files = [{"path": str(one.path), "bytes": one.size, "why": one.why} for one in found_waste]
            return show_json([{"files": files, "bytes": total, "removed": yes}])
        if not found_waste:
            return print("nothing to remove")
        print(f"{total / 1e6:10.2f} MB in all{', removed' if yes else '; remove with --yes'}")
