"""The command `ablate export`."""

from pathlib import Path
from typing import Annotated

import typer

from ablations.cli.answer import print_damaged, show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import source_path
from ablations.cli.inputs.sources import named_results
from results import export as exports
from results import trackers
from results.load import load_inspections


def export(
    words: parameters.Names = None,
    recipe: parameters.PlannedRecipe = None,
    runs: parameters.Source = None,
    out: Annotated[
        Path | None,
        parameters.out_option("FILE|DIR", ".parquet: everything; .csv: the trials.", "results.parquet"),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="tensorboard|wandb|mlflow",
            help="Write training curves for this tracker to the folder --out, without a network.",
        ),
    ] = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Export results to a file or a tracker.

    A .parquet file holds all that tables, figures, reports and comparisons need. A tracker gets settings, training
    curves and metrics of every trial in a folder. Show it with `tensorboard --logdir FOLDER` or
    `mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db`. Upload it with `wandb sync FOLDER/wandb/offline-run-*`.

    Examples:

        ablate export --out results.parquet
        ablate export position-embedding --to tensorboard --out curves
    """
    if to is not None and to not in trackers.TRACKERS:
        allowed = ", ".join(trackers.TRACKERS)
        raise ValueError(f"--to {to}: one of {allowed}; for other formats give --out FILE.parquet or FILE.csv")
    studies, damaged = named_results(runs, words, recipe)
    target = out or Path(to or "results.parquet")
    with print_damaged(damaged):
        if to:
            trackers.TRACKERS[to](studies, target)
        else:
            exports.write(studies, target, load_inspections(source_path(runs), studies))
        if as_json:
            show_json([{"export": str(target), "studies": [study.name for study in studies]}])
        else:
            print(target)
