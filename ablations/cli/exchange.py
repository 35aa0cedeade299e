"""The commands `ablate export`, and `import`, which makes a study of results that exist already."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ablations.cli.answer import print_damaged, show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import runs_folder, source_path
from ablations.cli.inputs.sources import named_results
from ablations.planning.merging import merge_export
from ablations.study.naming import check_given_name
from results import export as exports
from results import trackers
from results.imported import Columns, read_study
from results.load import load_inspections
from results.store.schemas.metrics import checked_margin
from results.tables import layout, study_table


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


def columns_option(help: str) -> typer.models.OptionInfo:
    return typer.Option(metavar="COLUMN,...", help=help, show_default=False)


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An export, or a table of runs: .csv, .tsv, .parquet, .json, .jsonl.")
    ],
    metric: Annotated[str, columns_option("What was measured; the first is compared.")] = "",
    baseline: Annotated[
        str, typer.Option(metavar="ARM", help="The arm that the others are compared with.", show_default=False)
    ] = "",
    arm: Annotated[str, columns_option("The settings that name an arm. Without: a column is an arm.")] = "",
    seed: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="The seeds, by which runs are paired. Without such a column, they are unpaired.",
            show_default="seed",
        ),
    ] = "",
    unpaired: Annotated[bool, typer.Option("--unpaired", help="Equal seeds pair nothing.")] = False,
    margin: Annotated[
        str | None, typer.Option(metavar="X", help="The largest difference that counts as equivalent: 0.01 or 25%.")
    ] = None,
    lower: Annotated[str, columns_option("Metrics of which less is better; losses and errors are known.")] = "",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of the study.", show_default="the file's")
    ] = None,
    out: Annotated[
        Path | None, parameters.out_option("FILE.parquet", "The export to write of a table of runs.", "NAME.parquet")
    ] = None,
    runs: parameters.Runs = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Take in an export, or a table of other runs.

    An export that `ablate export` wrote is merged into the run directory: its trials are never trained again. A table
    of runs, such as Weights & Biases and MLflow save, becomes a study: it has a row per run, with its settings, seed
    and metrics. `lr` also finds `config.lr` and `params.lr`. Every command that reads results takes the written file.

    Examples:

        ablate import results.parquet --runs runs
        ablate import runs.csv --arm model --metric acc --baseline resnet --margin 0.01
    """
    if file.suffix == ".parquet" and exports.is_export(file):
        merged = merge_export(file, runs_folder(runs))
        if as_json:
            show_json([asdict(merged)])
        else:
            print(f"{file}: {merged.text()}")
        return
    for option, value in (("--metric", metric), ("--baseline", baseline)):
        if not value:
            raise ValueError(f"{file}: a table of runs: give {option}")
    study = name or file.stem
    check_given_name(study)
    target = out or Path(f"{study}.parquet")
    if target.suffix != ".parquet":
        raise ValueError(f"--out={target}: a file named .parquet")
    if target.absolute() == file.absolute():
        raise ValueError(f"--out={target}: is the table itself: give another name")
    request = Columns(
        study=study,
        arms=names_of(arm),
        seed=seed,
        metrics=names_of(metric),
        baseline=baseline,
        margin=None if margin is None else parsed_margin(margin),
        lower=names_of(lower),
        unpaired=unpaired,
    )
    results = read_study(file, request)
    exports.write([results], target)
    if as_json:
        show_json([{"export": str(target), "studies": [results.name]}])
    else:
        print(layout.render(study_table.table(results), "md"))
        counts = f"{len(results.plan.arms)} arms, {len(results.plan.seeds)} seeds"
        pairing = "" if results.plan.is_paired else ", unpaired"
        print(f"ablate: {target}: {counts}{pairing}", file=sys.stderr)


def names_of(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def parsed_margin(text: str) -> float | str:
    try:
        return checked_margin(float(text))
    except ValueError:
        return checked_margin(text)
