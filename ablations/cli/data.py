"""The commands `ablate data download`, `pack` and `verify`, which prepare data sets."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ablations import machine
from ablations.cli.answer import FAILED, show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import data_folder, data_home, folder_options
from ablations.cli.progress import stderr_console
from results.safe_text import one_line, printable
from vitcore.data.builtin import downloadable
from vitcore.data.lookup import searched_folders
from vitcore.data.pack import MANIFEST, find, manifest, pack_names
from vitcore.data.pack import verify as damaged_files
from vitcore.data.pack_options import complete_options, enlargement_warning
from vitcore.data.pack_sources import Source, find_source
from vitcore.data.pack_writer import pack as write_pack
from vitcore.data.pack_writer import repair, shards_to_rewrite
from vitcore.options import spelling_hint


def download(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A built-in data set, such as cifar10.")],
    data_dir: parameters.DataDir = None,
) -> None:
    """Download a built-in data set.

    This is needed once, because training never uses a network.

    Examples:

        ablate data download cifar10 --data-dir ~/datasets
        ablate data download fashion-mnist
    """
    dataset, target = downloadable(name), data_home(data_dir)
    try:
        dataset.download(target)
    except RuntimeError as error:
        print(f"ablate: {one_line(str(error))}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    print(target)


def pack(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pack's name, as in data=NAME.")],
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A folder of class folders, a .tar of them, or timm:DATASET.")
    ],
    data_dir: parameters.DataDir = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            min=1,
            metavar="PIXELS",
            help="The side of the stored squares.",
            show_default="the images' own, at most 256",
        ),
    ] = None,
    crop: Annotated[
        int | None,
        typer.Option(
            "--crop",
            min=1,
            metavar="PIXELS",
            help="The side of the central square that tests see.",
            show_default="all; 7/8 of 256",
        ),
    ] = None,
    format: Annotated[
        Literal["bytes", "jpeg"] | None,
        typer.Option("--format", "-f", help="bytes: decoded; jpeg: a fifth of the disk space.", show_default="bytes"),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Threads.", show_default="all cores")] = None,
) -> None:
    """Convert a data set into a pack for training.

    Decodes each image once and stores the images in shards, which training reads at random. If the command is killed,
    give it again to continue. If the pack exists, damaged files are written again from the same source.

    Examples:

        ablate data pack pets ~/photos --data-dir ~/datasets
        ablate data pack imagenet /data/imagenet --size 256 --format jpeg
    """
    home, threads = data_home(data_dir), jobs or machine.cores()
    folder = (find(name) if data_dir is None else None) or home / name
    found_source = find_source(source, home)
    asked = {"size": size, "crop": crop, "format": format}
    given = {key: value for key, value in asked.items() if value is not None}
    sides = found_source.shorter_sides()
    how = complete_options(name, folder, given, sides)
    if (folder / MANIFEST).is_file():
        repair_data(name, folder, found_source, threads)
        return
    if warning := enlargement_warning(sides, how.size):
        print(f"ablate: {warning}", file=sys.stderr)
    with progress("images", len(found_source.labels)) as advance:
        print(write_pack(name, found_source, home, how, threads, advance))


def repair_data(name: str, folder: Path, source: Source, threads: int) -> None:
    """Rewrite the damaged files of a pack from the data set `source`. Prints what was damaged, and a summary."""
    known = manifest(folder, name)
    with progress("bytes", known.bytes) as advance:
        damaged = damaged_files(folder, known, advance)
    for line in damaged.values():
        print(line, file=sys.stderr)
    with progress("images", sum(shard.images for shard in shards_to_rewrite(known, damaged))) as advance:
        repair(folder, known, source, damaged, threads, advance)
    done = f"written again: {', '.join(damaged)}" if damaged else "is packed already, and nothing is damaged"
    print(f"{folder}: {done}")


def verify(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a pack.")],
    data_dir: parameters.DataDir = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Check a pack, and name each damaged file.

    Reads the whole pack. Exits with an error if a file is damaged.

    Examples:

        ablate data verify pets
        ablate data verify pets --data-dir /scratch/datasets
    """
    data_folder(data_dir)
    folder = find(name)
    if folder is None:
        raise ValueError(f"no pack '{name}' ({searched_folders(name)}){spelling_hint(name, pack_names())}")
    known = manifest(folder, name)
    with progress("bytes", known.bytes) as advance:
        damaged = damaged_files(folder, known, advance)
    if as_json:
        show_json([{"pack": str(folder), "images": known.images, "bytes": known.bytes, "damaged": damaged}])
    elif damaged:
        again = f"`ablate data pack {name} SOURCE{folder_options(data_dir=data_dir)}` writes the damaged files again"
        print("\n".join([*damaged.values(), again]))
    else:
        print(f"{folder}: {known.images:,} images, {known.bytes:,} bytes, as they were packed")
    if damaged:
        raise typer.Exit(FAILED)


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar until the block ends, if standard error is a terminal.

    what: the bar's label. Yields a function that advances the bar by a count. Any thread may call it.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = stderr_console()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(printable(what), total=total)
        yield lambda count: bar.advance(task, count)
