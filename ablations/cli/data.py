"""The commands `ablate data`, which prepare data sets, and `ablate weights`, which store public weights."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ablations import machine
from ablations.cli.answer import fail_if, one_line_failure, show
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import data_folders, data_home, folder_options
from ablations.execution.progress import stderr_console
from ablations.study.naming import assignments
from ablations.trainables.vit.commands import packs
from commonfloor.messages import printable


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
    download_to = packs.downloader(name)
    target = data_home(data_dir)
    with one_line_failure():
        download_to(target)
    print(target)


def pack(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pack's name, as in data=NAME.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of class folders, a .tar of them, hf:FOLDER, parquet:GLOB, wds:GLOB or timm:DATASET.",
        ),
    ],
    data_dir: parameters.DataDir = None,
    size: Annotated[
        int | None,
        parameters.option("PIXELS", "The side of the stored squares.", "the images' own, at most 256", min=1),
    ] = None,
    crop: Annotated[
        int | None,
        parameters.option("PIXELS", "The side of the central square that tests see.", "all; 7/8 of 256", min=1),
    ] = None,
    format: Annotated[
        Literal["bytes", "jpeg"] | None,
        typer.Option("--format", "-f", help="bytes: decoded; jpeg: a fifth of the disk space.", show_default="bytes"),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Threads.", show_default="all cores")] = None,
    test_only: Annotated[bool, parameters.flag("--test-only", "All images are test images, for test@NAME.")] = False,
    labels: Annotated[
        Path | None, parameters.option("FILE", "Labels of the test images, such as real.json of ReaL.")
    ] = None,
) -> None:
    """Convert a data set into a pack for training.

    Decodes each image once and stores the images in shards, which training reads at random. If the command is killed,
    give it again to continue. If the pack exists, damaged files are written again from the same source.

    Examples:

        ablate data pack pets ~/photos --data-dir ~/datasets
        ablate data pack imagenet /data/imagenet --size 256 --format jpeg
        ablate data pack imagenet-real /data/imagenet/val --test-only --labels real.json
        ablate data pack cifar100 'parquet:cifar100/*.parquet#label=fine_label'
    """
    home = data_home(data_dir)
    options = {"size": size, "crop": crop, "format": format}
    given = {key: value for key, value in options.items() if value is not None}
    anywhere = data_dir is None
    threads = jobs or machine.cores()
    print(packs.write_pack(name, source, home, anywhere, given, threads, progress, test_only, labels))


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
    data_folders(data_dir).use()
    verified = packs.verify(name, progress)
    text = f"{verified.pack}: {verified.images:,} images, {verified.bytes:,} bytes, as they were packed"
    if verified.damaged:
        again = f"`ablate data pack {name} SOURCE{folder_options(data_dir=data_dir)}` writes the damaged files again"
        text = "\n".join([*verified.damaged.values(), again])
    show(verified, text, as_json)
    fail_if(bool(verified.damaged))


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar until the block ends, if standard error is a terminal."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = stderr_console()
    silent = not console.is_terminal
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False, disable=silent
    ) as bar:
        task = bar.add_task(printable(what), total=total)
        yield lambda count: bar.advance(task, count)


TimmName = Annotated[
    str, typer.Argument(metavar="NAME", help="A Vision Transformer of timm's, such as vit_tiny_patch16_224.")
]


def download_weights(name: TimmName, data_dir: parameters.DataDir = None) -> None:
    """Download weights of timm's to start from.

    Stores them in the folder of the data, for `init_from=timm/NAME`. Prints the file and the settings of models that
    can start from it. This is needed once, because training never uses a network.

    Examples:

        ablate weights download vit_tiny_patch16_224 --data-dir ~/datasets
        ablate weights download vit_base_patch16_clip_224.openai
    """
    store_weights(name, data_dir)


def add_weights(
    name: TimmName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Its weights, as .safetensors or .npz.")],
    data_dir: parameters.DataDir = None,
) -> None:
    """Store weights of timm's from a file.

    Does what `ablate weights download` does, where there is no network.

    Examples:

        ablate weights add vit_tiny_patch16_224 model.safetensors --data-dir ~/datasets
        ablate weights add vit_base_patch16_224.augreg_in21k B_16.npz
    """
    store_weights(name, data_dir, file)


def store_weights(name: str, data_dir: Path | None, file: Path | None = None) -> None:
    home = data_home(data_dir)
    from ablations.trainables.vit.commands import weights  # imported here because it loads torch and timm

    with one_line_failure():
        stored = weights.store(name, home, file)
    print(stored.file)
    print(f"settings that fit: {assignments(stored.settings, ' ')}")
