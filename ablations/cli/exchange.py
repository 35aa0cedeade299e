"""The commands `ablate export`, and `import`, which makes a study of results that exist already."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ablations.cli.answer import print_damaged, show
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import runs_folder, source_path
from ablations.cli.inputs.sources import named_results
from ablations.planning.merging import merge_export
from ablations.study import strict_yaml
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
        parameters.option(
            "tensorboard|wandb|mlflow", "Write training curves for this tracker to the folder --out, without a network."
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
        show({"export": str(target), "studies": [study.name for study in studies]}, str(target), as_json)


def columns_option(help: str) -> Any:
    return parameters.option("COLUMN,...", help, False)


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An export, or a table of runs: .csv, .tsv, .parquet, .json, .jsonl.")
    ],
    metric: Annotated[str, columns_option("What was measured; the first is compared.")] = "",
    baseline: Annotated[str, parameters.option("ARM", "The arm that the others are compared with.", False)] = "",
    arm: Annotated[str, columns_option("The settings that name an arm. Without: a column is an arm.")] = "",
    seed: Annotated[
        str,
        parameters.option(
            "COLUMN", "The seeds, by which runs are paired. Without such a column, they are unpaired.", "seed"
        ),
    ] = "",
    unpaired: Annotated[bool, parameters.flag("--unpaired", "Equal seeds pair nothing.")] = False,
    margin: Annotated[
        str | None, parameters.option("X", "The largest difference that counts as equivalent: 0.01 or 25%.")
    ] = None,
    lower: Annotated[str, columns_option("Metrics of which less is better; losses and errors are known.")] = "",
    name: Annotated[str | None, parameters.option("NAME", "The name of the study.", "the file's")] = None,
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
        return show(merged, f"{file}: {merged.text()}", as_json)
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
        margin=None if margin is None else checked_margin(strict_yaml.parse(margin, "--margin")),
        lower=names_of(lower),
        unpaired=unpaired,
    )
    results = read_study(file, request)
    exports.write([results], target)
    table = layout.render(study_table.table(results), "md")
    show({"export": str(target), "studies": [results.name]}, table, as_json)
    if not as_json:
        counts = f"{len(results.plan.arms)} arms, {len(results.plan.seeds)} seeds"
        pairing = "" if results.plan.is_paired else ", unpaired"
        print(f"ablate: {target}: {counts}{pairing}", file=sys.stderr)


def names_of(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
