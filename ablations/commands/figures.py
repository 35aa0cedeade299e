"""`ablate plot`, `report`, `inspect`: results as pictures."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ablations.commands import options
from ablations.commands.answer import show_json
from ablations.commands.places import make_place, source_path
from ablations.commands.sources import found, styled


class FigureFormat(StrEnum):
    png = "png"
    pdf = "pdf"
    svg = "svg"


class Axis(StrEnum):
    step = "step"
    epoch = "epoch"
    images = "images"
    seconds = "seconds"


def plot(
    words: options.Names = None,
    recipe: options.RecipeName = "digits",
    runs: options.Source = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder.  [default: each study's own, in the run directory]")
    ] = None,
    format: Annotated[FigureFormat, typer.Option(help="How to draw it.")] = FigureFormat.png,
    x: Annotated[Axis | None, typer.Option(help="Training curves over this, unfinished trials included.")] = None,
    style: options.StyleFile = None,
    as_json: options.AsJson = False,
) -> None:
    """The figure of each study, or its training curves; prints the files written."""
    from results import plots, store

    folder, drawn = source_path(runs), []
    with styled(style, folder):
        for study in found(runs, words, recipe):
            target = out or (store.study_folder(folder, study.name) / "figures" if folder.is_dir() else Path("figures"))
            path = plots.draw(study, target, format.value, x.value if x else None)
            drawn.append({"study": study.plan["study"], "recipe": study.plan["recipe"], "figure": str(path)})
            if not as_json:
                print(path)
    if as_json:
        show_json(drawn)


def report(
    words: options.Names = None,
    recipe: options.RecipeName = "digits",
    runs: options.Source = None,
    out: Annotated[Path | None, typer.Option(help="The file.  [default: report.html in the run directory]")] = None,
    style: options.StyleFile = None,
) -> None:
    """One HTML file with every table and figure, that opens without a network."""
    from results import inside
    from results import report as reports

    folder = source_path(runs)
    target = out or (folder / "report.html" if folder.is_dir() else Path("report.html"))
    studies = found(runs, words, recipe)
    with styled(style, folder):
        reports.write(studies, target, inside.found(folder, studies))
    print(target)


def inspect(
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="A finished trial: its id, or how that begins.")],
    runs: options.Runs = None,
    out: Annotated[Path | None, typer.Option(help="A folder.  [default: figures/ in the trial's own]")] = None,
    images: Annotated[int | None, typer.Option(min=1, help="Test images to look at.  [default: 128]")] = None,
    format: Annotated[FigureFormat, typer.Option(help="How to draw it.")] = FigureFormat.png,
    plugin: options.Plugins = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Figures from a trial's weights: filters, position, attention distance, rollout; its layers in a table."""
    from ablations.inspecting import find, look
    from results import inspection

    place = make_place(runs, data_dir, plugin)
    inside = look(find(place.runs, trial), place, images)
    target = out or place.runs / "trials" / inside.trial / "figures"
    paths = inspection.draw(inside, target, format.value)
    if as_json:
        show_json([{"trial": inside.trial, "figures": [str(path) for path in paths], **inside.facts}])
        return
    print(inspection.table(inside))
    print("\n".join(["", *(site["note"] for site in inside.facts["sites"] if not site["site"]), *map(str, paths)]))
