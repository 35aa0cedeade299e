"""`ablate bench`: speed beside what others write."""

from pathlib import Path
from typing import Annotated

import typer

from ablations.commands import options
from ablations.commands.answer import show_json
from ablations.commands.places import data_folder, load_plugins
from ablations.commands.words import Asked, designs, named_data, split


def bench(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY]... [KEY=VALUE]...", help="Studies: what each arm costs; settings."),
    ] = None,
    recipe: options.RecipeName = "digits",
    arm: options.ArmGlob = "*",
    loop: Annotated[
        bool, typer.Option("--loop", help="A whole small study beside one process a trial; minutes.")
    ] = False,
    fused: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="N seeds trained as one, beside one by one; minutes.")
    ] = None,
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
    gpu: Annotated[bool, typer.Option("--gpu", help="On a GPU, the same parts.")] = False,
    random_images: Annotated[
        bool, typer.Option("--random-images", help="Random ones of the data's size, where those are not at hand.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON to this file.")] = None,
    plugin: options.Plugins = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """The train step of a recipe's config beside timm's and torchvision's models, its floor, its input, its memory.

    With STUDY, what a step of each arm takes beside its baseline's. With --loop, a whole small study beside a process a
    trial. With --fused, seeds trained as one beside one by one, and beside processes. With --start, when the first step
    is taken. Ratios of what is measured in turn, in one run: median and quartiles.
    """
    from ablations import bench as benches
    from ablations.bench_memory import Source
    from ablations.bench_told import told
    from ablations.study import read_recipe
    from ablations.worker import require_gpu
    from results import store
    from vitcore.config import Config, merge

    asked = split(words or [])
    device = {"device": "cuda" if gpu else "cpu"}
    refuse_mixed(asked, loop, fused, start)
    refuse_elsewhere(asked, device)
    if gpu:
        require_gpu()
    files, digests = load_plugins(plugin)
    named = dict(zip(map(str, files), digests, strict=True))
    source = Source(data_folder(data_dir), random_images, files)
    method = benches.Method(rounds or (2 if loop or fused or start else 15), steps, compiled, source)
    settings = named_data(merge(read_recipe(recipe).config, asked.overrides, device), data_dir)
    if fused:
        found = [benches.fused(settings, fused, method, named)]
    elif start:
        found = [benches.start(settings, method, named)]
    elif loop:
        found = [benches.loop(settings, seeds, method, named)]
    elif asked.studies:
        chosen = designs(Asked(asked.studies, asked.overrides | device), recipe, data_dir)
        found = [benches.arms(design, arm, method, named) for design in chosen]
    else:
        found = [benches.step(Config(**settings), method, named)]
    if out:
        store.write_json(out, found[0] if len(found) == 1 else found)
    if as_json:
        show_json(found)
    else:
        print("\n\n".join(map(told, found)))


def refuse_mixed(asked: Asked, loop: bool, fused: int | None, start: bool) -> None:
    """--loop has a study of its own, the others one config. Raises ValueError for what does not go together."""
    if loop and asked.studies:
        raise ValueError(f"--loop {asked.studies[0]}: it has a study of its own: key=value")
    if fused and (loop or asked.studies):
        raise ValueError(f"--fused {fused}: of one config: without {'--loop' if loop else asked.studies[0]}")
    if start and (fused or loop or asked.studies):
        other = "--fused" if fused else "--loop" if loop else asked.studies[0]
        raise ValueError(f"--start: of one config: without {other}")
    if loop and "position" in asked.overrides:
        raise ValueError(f"position={asked.overrides['position']}: is what the study of --loop varies: leave it out")


def refuse_elsewhere(asked: Asked, device: dict[str, str]) -> None:
    """A figure would be told as of a device, or of several, that it was not measured on. Raises ValueError."""
    if asked.overrides.get("device", device["device"]) != device["device"]:
        raise ValueError(f"device={asked.overrides['device']}: a bench is of the CPU, with --gpu of a GPU")
    if asked.overrides.get("gpus", 1) != 1:
        raise ValueError(f"gpus={asked.overrides['gpus']}: a bench is of one process: leave it out")
