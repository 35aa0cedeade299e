"""`ablate bench`: speed beside what others write."""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ablations.commands import options
from ablations.commands.answer import INTERRUPTED, show_json
from ablations.commands.places import data_folder, load_plugins
from ablations.commands.words import Asked, designs, named_data, split

FORMS = {  # which options each form takes, besides those of all
    "--loop": {"seeds"},
    "--start": {"random_images"},
    "a study": {"steps", "random_images", "arm"},
    "one config": {"steps", "random_images", "compiled"},
}


def bench(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY]... [KEY=VALUE]...", help="Studies: what each arm costs; settings."),
    ] = None,
    recipe: options.RecipeName = "digits",
    arm: options.ArmGlob = "*",
    loop: Annotated[
        bool, typer.Option("--loop", help="A whole small study beside one process a trial; minutes.")
    ] = False,
    start: Annotated[
        bool, typer.Option("--start", help="A process's first step, with an empty and a full compile cache; minutes.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(min=2, help="Turns of each side.  [default: 15; of what takes minutes 2]", show_default=False),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Train steps a turn.")] = 20,
    seeds: Annotated[int, typer.Option(min=1, help="Of --loop: seeds of each of its two arms.")] = 2,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Also beside timm's model compiled, which takes a minute.")
    ] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="On a GPU; also its peak, and how often a step waits for it.")
    ] = False,
    random_images: Annotated[
        bool, typer.Option("--random-images", help="Random ones of the data's size, where those are not at hand.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON to this file.")] = None,
    plugin: options.Plugins = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """The train step of a recipe's config beside its rivals, its floor, its input, its memory.

    Rivals: timm's and torchvision's models with our weights, in the usual script's step. Floor: the step's matrix
    products and attention alone. Input: the batches alone. Memory: what steps add to model and images.

    With STUDY, what a step of each arm takes beside its baseline's. With --loop, a whole small study beside a process a
    trial. With --start, when the first step is taken. Ratios of what is measured in turn, in one run: median and
    quartiles, of fewer than five rounds the lowest and the highest. Example: ablate bench width=192 heads=3 --rounds 5
    """
    from ablations import bench as benches
    from ablations.bench_process import Source
    from ablations.bench_told import told
    from ablations.study import read_recipe
    from ablations.worker import require_gpu
    from results import store
    from vitcore.config import Config, merge

    asked = split(words or [])
    device = {"device": "cuda" if gpu else "cpu"}
    form = form_of(asked, loop, start)
    refuse_foreign(given(context), form)
    refuse_elsewhere(asked, device)
    if gpu:
        require_gpu()
    if out:
        refuse_unwritable(out)
    files, digests = load_plugins(plugin)
    named = dict(zip(map(str, files), digests, strict=True))
    source = Source(data_folder(data_dir), random_images, files)
    method = benches.Method(rounds or (2 if loop or start else 15), steps, compiled, source)
    settings = named_data(merge(read_recipe(recipe).config, asked.overrides, device), data_dir)
    match form:
        case "--start":
            parts = [partial(benches.start, settings, method, named)]
        case "--loop":
            parts = [partial(benches.loop, settings, seeds, method, named)]
        case "a study":
            chosen = designs(Asked(asked.studies, asked.overrides | device), recipe, data_dir)
            arms = [(design, benches.chosen(design, arm)) for design in chosen]
            parts = [partial(benches.arms, design, some, method, named) for design, some in arms]
        case _:
            parts = [partial(benches.step, Config(**settings), method, named)]
    found = []
    try:
        for part in parts:
            found.append(part())
            if not as_json:
                print("\n" * (len(found) > 1) + told(found[-1]), flush=True)
    except KeyboardInterrupt:
        print("ablate: interrupted; what was not told yet is lost", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        show_json(found)
    if out:
        store.write_json(out, found[0] if len(found) == 1 else found)


def form_of(asked: Asked, loop: bool, start: bool) -> str:
    """What is to be measured, a key of FORMS. Raises ValueError where that is several, or varies what the form does."""
    called = {"--loop": loop, "--start": start, "a study": asked.studies}
    forms = [name for name, value in called.items() if value]
    if len(forms) > 1:
        first, second = (asked.studies[0] if form == "a study" else form for form in forms[:2])
        raise ValueError(f"{first} and {second}: one bench at a time")
    if loop and "position" in asked.overrides:
        raise ValueError(f"position={asked.overrides['position']}: is what the study of --loop varies: leave it out")
    return forms[0] if forms else "one config"


def refuse_unwritable(out: Path) -> None:
    """Before minutes are spent on what cannot be kept; nothing of a file there is touched. Raises OSError."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        raise IsADirectoryError(f"{out}: is a folder; --out takes a file")
    with tempfile.TemporaryFile(dir=out.parent):
        pass


def given(context: typer.Context) -> set[str]:
    """The parameters that the command line names."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def refuse_foreign(names: set[str], form: str) -> None:
    """An option without effect would be taken for one that had. Raises ValueError."""
    for name in sorted(names):
        takers = [taker for taker, own in FORMS.items() if name in own]
        if takers and form not in takers:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option}: of a bench of {' or '.join(takers)}; this one is of {form}")


def refuse_elsewhere(asked: Asked, device: dict[str, str]) -> None:
    """A figure would be told as of a device, or of several, that it was not measured on. Raises ValueError."""
    if asked.overrides.get("device", device["device"]) != device["device"]:
        raise ValueError(f"device={asked.overrides['device']}: a bench is of the CPU, with --gpu of a GPU")
    if asked.overrides.get("gpus", 1) != 1:
        raise ValueError(f"gpus={asked.overrides['gpus']}: a bench is of one process: leave it out")
