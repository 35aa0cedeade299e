"""The command `ablate init`, which writes a recipe for a user's images."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.cli.inputs import options
from ablations.execution import machine

if TYPE_CHECKING:
    from ablations.study.init.recipe import Choice

NEXT = """\
go on with:
  ablate plan demo --recipe {recipe} --probe      # how long its arms take: positions none, 1d, 2d
  ablate run demo --recipe {recipe}               # ends in a table with verdicts
  ablate report demo --recipe {recipe}            # the same as a page
  ablate run position-embedding --recipe {recipe}   # all 8 arms; those three are not trained again"""


def init(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A folder with a folder of images for each class; or a pack's folder."),
    ],
    out: Annotated[
        Path | None, options.out_option("FILE", "The recipe.  [default: NAME.yaml, of the folder's name]")
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Train a small grid of rates and widths first, and take the best.")
    ] = False,
    runs: options.Runs = None,
    workers: options.Workers = None,
) -> None:
    """Write a recipe for your own images.

    Looks at every image: sizes, channels, classes, splits, broken files. Chooses image size, patch, model, steps, rates
    and margin by rules, and writes the reason beside each number. Then says how to go on.

    Examples:
        ablate init ~/photos
        ablate init ~/photos --out photos.yaml --tune
    """
    from ablations.study.init import recipe as init_recipe
    from ablations.study.init.survey import survey

    found = survey(path)
    target = out or Path((re.sub(r"[^A-Za-z0-9_-]+", "-", found.name).strip("-") or "recipe") + ".yaml")
    if target.exists():
        raise ValueError(f"{target}: exists already; use --out to name another file")
    if target.suffix not in (".yaml", ".yml"):
        raise ValueError(f"--out {target}: a recipe is a .yaml file")
    print("\n".join(found.lines()), flush=True)
    device = init_recipe.GPU if machine.gpus() else init_recipe.CPU
    measured: dict[str, Choice] = {}
    if tune:
        from ablations.cli.getting_started.tune import measure  # late: torch

        measured = measure(found, device, runs, workers)
    target.write_text(init_recipe.render(found, device, measured))
    print(f"\nwrote {target}: each number has its reason beside it\n\n{NEXT.format(recipe=shlex.quote(str(target)))}")
