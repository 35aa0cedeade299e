"""The commands `ablate plot` and `report`, which draw results, and `bundle`, which packs them."""

import re
import sys
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from ablations.cli.answer import print_damaged, show, show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import source_path
from ablations.cli.inputs.sources import named_results, styled, with_seal
from ablations.planning import bundles
from commonfloor.files import refuse_links, safe_name
from commonfloor.messages import one_line
from results import report as reports
from results.figures import study_figure
from results.load import load_inspections
from results.style import current_style

EXTENSION = re.compile("[a-z][a-z0-9]{0,4}")  # does not match the "2" of a folder v1.2

FigureFormat = Literal["png", "pdf", "svg"]
FIGURE_FORMATS = get_args(FigureFormat)


def plot(
    words: parameters.Names = None,
    recipe: parameters.PlannedRecipe = None,
    runs: parameters.Source = None,
    out: Annotated[
        Path | None,
        parameters.out_option(
            "FILE|DIR",
            "A folder, or the file for one figure.",
            "figures/ in each study's folder; of an export, here",
        ),
    ] = None,
    format: Annotated[
        FigureFormat | None,
        typer.Option("--format", "-f", help="The file format.", show_default="the ending of --out, else png"),
    ] = None,
    x: Annotated[
        Literal["step", "epoch", "images", "seconds"] | None,
        typer.Option(help="Draw training curves over this quantity, also of unfinished trials."),
    ] = None,
    style: parameters.StyleFile = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Draw a study's figure or its training curves.

    Prints the paths of the files that it writes. Notes that a style leaves out of a figure go to standard error, so
    that they can be used in the caption.

    Examples:

        ablate plot position-embedding --out figure-2.pdf
        ablate plot pooling --x epoch --style paper.yaml
    """
    folder = source_path(runs)
    is_file = out is not None and is_file_name(out, format)
    studies, damaged = named_results(runs, words, recipe)
    drawn = []
    with print_damaged(damaged), styled(style, folder):
        if is_file and len(studies) > 1:
            raise ValueError(f"--out {out}: one file for {len(studies)} studies: name one study, or a folder")
        for study in studies:
            if out is None and folder.is_dir():
                path = figures_folder(folder, "studies", study.name)
            else:
                path = out or Path("figures")
            if not is_file:
                path /= study_figure.file_name(study, format or "png", x)
            study_figure.draw(study, path, x)
            described: dict[str, object] = {"study": study.plan.study, "recipe": study.plan.recipe, "figure": path}
            caption: list[str] = []
            if not current_style().notes:
                caption = study_figure.caption(study, x)
            if caption:
                described["caption"] = caption
            drawn.append(described)
            if not as_json:
                print(path)
                for line in caption:
                    print(line, file=sys.stderr)
        if as_json:
            show_json(drawn)


def is_file_name(out: Path, format: FigureFormat | None) -> bool:
    kind = out.suffix[1:].lower()
    if out.is_dir() or not (EXTENSION.fullmatch(kind) or out.exists()):
        return False
    if kind not in FIGURE_FORMATS:
        raise ValueError(f"--out {out}: give a folder, or a file that ends in one of .{', .'.join(FIGURE_FORMATS)}")
    if format and format != kind:
        raise ValueError(f"--out {out} and --format {format}: leave one of them out")
    return True


def figures_folder(runs: Path, kind: str, name: str) -> Path:
    """Return the folder for the figures of a study or trial. kind: "studies" or "trials"."""
    folder = runs / kind / safe_name(name) / "figures"
    refuse_links(runs, folder)
    return folder


def report(
    words: parameters.Names = None,
    recipe: parameters.PlannedRecipe = None,
    runs: parameters.Source = None,
    out: Annotated[
        Path | None, parameters.out_option("FILE", "The file to write.", "report.html in the run directory")
    ] = None,
    style: parameters.StyleFile = None,
    seal: parameters.SealFile = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Write one HTML page of tables and figures.

    The page opens without a network. It shows every study's answer, figure, table and cost, and the command that
    reproduces them.

    Examples:

        ablate report
        ablate report --runs results.parquet --seal seal.json --out colleague.html
    """
    if out and out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out {out}: a report is a page: give a file that ends in .html")
    folder = source_path(runs)
    target = out or Path("report.html")
    if out is None and folder.is_dir():
        target = folder / "report.html"
    studies, damaged = named_results(runs, words, recipe)
    studies = with_seal(studies, seal)
    with print_damaged(damaged), styled(style, folder):
        lines = [one_line(str(error)) for error in damaged]
        reports.write(studies, target, load_inspections(folder, studies), lines)
        show({"report": str(target), "studies": [study.name for study in studies]}, str(target), as_json)


def bundle(
    words: parameters.Names = None,
    recipe: parameters.PlannedRecipe = None,
    runs: parameters.Source = None,
    out: Annotated[
        Path | None, parameters.out_option("DIR|FILE.zip", "A new folder, or a .zip file.", "bundle.zip")
    ] = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Pack results and all that a deposit needs.

    Packs seals, the export, the report, the study, the recipe and plug-ins, the installed versions, what to cite, and a
    README, with the SHA-256 of each file. Host names and folders of this machine are left out. Equal results give equal
    bytes.

    Examples:

        ablate bundle position-embedding --out position.zip
        ablate bundle --runs results.parquet --out deposit
    """
    source = source_path(runs)
    target = out or Path("bundle.zip")
    studies, damaged = named_results(runs, words, recipe)
    with print_damaged(damaged):
        files = bundles.pack(studies, source, load_inspections(source, studies))
        bundles.write(files, target)
        packed = {"bundle": str(target), "studies": [study.name for study in studies], "files": sorted(files)}
        show(packed, str(target), as_json)
