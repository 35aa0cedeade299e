"""What commands may be told: words and options that several of them take, and what those allow."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class TableFormat(StrEnum):
    md = "md"
    latex = "latex"
    csv = "csv"
    json = "json"
    html = "html"


class Notes(StrEnum):
    all = "all"
    short = "short"
    none = "none"


class KeepWeights(StrEnum):
    all = "all"
    baseline = "baseline"
    none = "none"


Words = Annotated[
    list[str],
    typer.Argument(
        metavar="STUDY... [KEY=VALUE]...",
        help="Names or files, or 'all'; settings. Where a study has stages KEY is for all of them, STAGE.KEY for one "
        "alone, finetune.KEY for what starts from them.",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STUDY]... [KEY=VALUE]...", help="Planned studies (default: all that are planned)."),
]
StudiesOrTrials = Annotated[list[str], typer.Argument(metavar="STUDY|TRIAL...", help="Studies, or ids of trials.")]
ProfileName = Annotated[str, typer.Option("--profile", metavar="NAME|FILE", help="What to ask the cluster for.")]
RecipeName = Annotated[str, typer.Option("--recipe", metavar="NAME|FILE", help="On what.")]
RecipeNames = Annotated[
    list[str], typer.Option("--recipe", metavar="NAME|FILE", help="On what; given again, side by side.")
]
StyleFile = Annotated[
    Path | None, typer.Option("--style", help="A YAML file: size, fonts, colours, order, labels, digits, title.")
]
Runs = Annotated[Path | None, typer.Option("--runs", help="The run directory.  [default: runs]", show_default=False)]
Source = Annotated[
    Path | None,
    typer.Option("--runs", help="A run directory or an exported .parquet.  [default: runs]", show_default=False),
]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, max=10_000, help="Seeds an arm.  [default: the recipe's]")]
ArmGlob = Annotated[str, typer.Option("--arm", metavar="GLOB", help="Only the arms whose name matches.")]
Plugins = Annotated[list[Path] | None, typer.Option("--plugin", help="A Python file with parts of your own.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Where data sets lie, before all else that says so.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
Prune = Annotated[bool, typer.Option("--prune", help="Forget arms and seeds planned earlier; their results stay.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 where a planned trial has no result.")]
Checkpoints = Annotated[
    str | None, typer.Option("--checkpoints", metavar="DIR", help="Scratch space.  [default: the run directory]")
]
Keeping = Annotated[
    KeepWeights | None, typer.Option("--keep-weights", help="Whose final weights to keep.  [default: all]")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "--workers",
        min=1,
        help="Trials at a time, at most; several share a GPU.  [default: one a GPU, else one a core; login node: 2]",
    ),
]
MaxHours = Annotated[
    float | None,
    typer.Option("--max-hours", min=0, help="Refuse, before anything starts, what would take more device time."),
]
