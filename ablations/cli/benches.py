"""The commands `ablate bench step|study|loop|input|startup`, which compare the speeds of implementations or arms."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.cli.answer import INTERRUPTED, show_json
from ablations.cli.help import App
from ablations.cli.inputs import parameters
from ablations.cli.inputs.arguments import Asked, designs, parse_words, resolve_settings
from ablations.cli.inputs.corrections import check_overrides
from ablations.cli.inputs.directories import data_folder, load_plugins
from ablations.cli.inputs.guards import ensure_writable
from results import store
from results.store.schemas import Settings
from vitcore.config import Config, merge

if TYPE_CHECKING:
    from ablations.bench.process import Source
    from ablations.bench.result import Result

app = App(
    help="Measure speed against timm and torchvision.\n\n"
    "Measures both sides in turn. Prints the median and quartiles of their ratio, or its lowest and highest value if "
    "there are fewer than five rounds.",
)

Words = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Settings that replace the recipe's.")]
Rounds = Annotated[int, parameters.number_option(min=2, help="How often each side is measured.")]
Steps = Annotated[int, parameters.number_option(min=1, help="Training steps per round.")]
Gpu = Annotated[bool, typer.Option("--gpu", help="Measure on a GPU.")]
RandomImages = Annotated[bool, typer.Option("--random-images", help="Measure on random images of the data's size.")]
Out = Annotated[Path | None, parameters.out_option("FILE", "Also write the JSON to this file.")]


@app.command()
def step(
    words: Words = None,
    recipe: parameters.RecipeName = "digits",
    rounds: Rounds = 15,
    steps: Steps = 20,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Compare with timm's compiled model too; this takes a minute.")
    ] = False,
    gpu: Gpu = False,
    random_images: RandomImages = False,
    out: Out = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Compare the training step with its rivals.

    The rivals are timm's and torchvision's models with the same weights, in the training step of a usual script. The
    floor is the time of the step's matrix products and attention alone. On a GPU, the output also has the share of
    peak FLOPs, and the memory that steps need.

    Examples:
        ablate bench step width=192 heads=3 --rounds 5
        ablate bench step --recipe cifar10 --gpu
    """
    _, settings, source = set_up(words, recipe, gpu, random_images, out, plugin, data_dir)
    from ablations.bench.step import bench

    show(out, as_json, lambda: bench(Config(**settings), source, rounds, steps, compiled))


@app.command()
def study(
    words: Annotated[list[str], typer.Argument(metavar="STUDY... [KEY=VALUE...]", help="Studies, and settings.")],
    recipe: parameters.RecipeName = "digits",
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    rounds: Rounds = 15,
    steps: Steps = 20,
    gpu: Gpu = False,
    random_images: RandomImages = False,
    out: Out = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Compare the speed of the arms of a study.

    Prints the ratio of each arm's time per training step to its baseline's.

    Examples:
        ablate bench study position-embedding
        ablate bench study pooling --recipe cifar10 --gpu
    """
    asked, _, source = set_up(words, recipe, gpu, random_images, out, plugin, data_dir, studies=True)
    from ablations.bench.study import bench
    from ablations.study.naming import matching_names

    found = designs(asked, recipe, data_dir)
    pairs = [(one, matching_names([arm.name for arm in one.arms], arm, one.name)) for one in found]
    show(out, as_json, *(partial(bench, *pair, rounds, steps, source) for pair in pairs))


@app.command()
def loop(
    words: Words = None,
    recipe: parameters.RecipeName = "digits",
    rounds: Rounds = 2,
    seeds: Annotated[int, parameters.number_option("--seeds", "-s", min=1, help="Seeds per arm.")] = 2,
    gpu: Gpu = False,
    out: Out = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Measure the speed of a whole small study.

    Compares the worker pool with one process per trial. Trains two position embeddings, which takes minutes.

    Examples:
        ablate bench loop
        ablate bench loop --seeds 4 --rounds 3
    """
    asked, settings, source = set_up(words, recipe, gpu, False, out, plugin, data_dir)
    from ablations.bench.loop import bench

    if "position" in asked.overrides:
        raise ValueError(f"position={asked.overrides['position']}: is what the study varies: leave it out")
    show(out, as_json, lambda: bench(settings, seeds, rounds, source))


@app.command(name="input")
def input_(
    words: Words = None,
    recipe: parameters.RecipeName = "digits",
    rounds: Rounds = 15,
    steps: Steps = 20,
    gpu: Gpu = False,
    random_images: RandomImages = False,
    out: Out = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Measure the speed of the input pipeline alone.

    Also compares its flips and crops with torchvision's on PIL images.

    Examples:
        ablate bench input
        ablate bench input --recipe cifar10 --random-images
    """
    _, settings, source = set_up(words, recipe, gpu, random_images, out, plugin, data_dir)
    from ablations.bench.input import bench

    show(out, as_json, lambda: bench(Config(**settings), source, rounds, steps))


@app.command()
def startup(
    words: Words = None,
    recipe: parameters.RecipeName = "digits",
    rounds: Rounds = 2,
    gpu: Gpu = False,
    random_images: RandomImages = False,
    out: Out = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Measure the time to a process's first step.

    Starts with an empty compile cache, with a filled one, and without compilation. This takes minutes.

    Examples:
        ablate bench startup
        ablate bench startup compile=true --rounds 3
    """
    _, settings, source = set_up(words, recipe, gpu, random_images, out, plugin, data_dir)
    from ablations.bench.startup import bench

    show(out, as_json, lambda: bench(Config(**settings), rounds, source))


def set_up(
    words: list[str] | None,
    recipe: str,
    gpu: bool,
    random_images: bool,
    out: Path | None,
    plugin: list[Path] | None,
    data_dir: Path | None,
    studies: bool = False,
) -> "tuple[Asked, Settings, Source]":
    """Return (the parsed words, the recipe's settings with the words' overrides, the source of the images).

    studies: whether the words must name a study; otherwise they must not. Loads plug-ins, creates the parent folder of
    `out`, and sets the variables that `data_folder` sets. Raises ValueError if an argument is not valid, a GPU is
    missing, or `out` cannot be written.
    """
    asked, device = parse_words(words or []), {"device": "cuda" if gpu else "cpu"}
    check_overrides(asked.overrides, asked.studies, recipe)
    from ablations.bench.process import Source  # imported here because mistakes are answered before torch is loaded
    from ablations.study.reading import read_recipe
    from vitcore.runtime.device import require_gpu

    if asked.studies and not studies:
        raise ValueError(f"'{asked.studies[0]}' is not key=value: studies are for `ablate bench study`")
    if studies and not asked.studies:
        raise ValueError("a study to measure: `ablate list` has their names")
    if asked.overrides.get("device", device["device"]) != device["device"]:
        raise ValueError(f"device={asked.overrides['device']}: a bench runs on the CPU, with --gpu on a GPU")
    if asked.overrides.get("gpus", 1) != 1:
        raise ValueError(f"gpus={asked.overrides['gpus']}: a bench runs one process: leave it out")
    if gpu:
        require_gpu()
    if out:  # before the measurement, without changing the file
        if out.is_dir():
            raise ValueError(f"--out {out}: is a folder, not a file")
        ensure_writable(out.parent, "--out")
    plugins = load_plugins(plugin)
    settings = resolve_settings(merge(read_recipe(recipe).config, asked.overrides, device), data_dir)
    source = Source(data_folder(data_dir), random_images, plugins)
    return Asked(asked.studies, asked.overrides | device), settings, source


def show(out: Path | None, as_json: bool, *benches: "Callable[[], Result]") -> None:
    """Run benchmarks. Print a table after each or, with `as_json`, all results at the end. out: a file for the JSON."""
    found: list[object] = []
    try:
        for bench in benches:
            result = bench()
            found.append(result.json())
            if not as_json:
                print("\n" * (len(found) > 1) + result.render(), flush=True)
    except KeyboardInterrupt:
        print("ablate: interrupted; what was not printed yet is lost", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        show_json(found)
    if out:
        store.write_json(out, found[0] if len(found) == 1 else found)
