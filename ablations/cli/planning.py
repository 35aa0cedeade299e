"""The commands `ablate plan` and `check`, which show what a run would do and whether its parts work."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.cli.answer import FAILED, show_json
from ablations.cli.inputs import ablate_toml, guards, parameters
from ablations.cli.inputs.arguments import (
    designs,
    parse_words,
    slurm_profile,
    track_planning,
    warn_of_needless_settings,
    warn_of_other_recipe,
)
from ablations.cli.inputs.directories import data_folder, load_plugins, make_place
from ablations.planning.jobs import jobs

if TYPE_CHECKING:
    from ablations.study.design import Design


def plan(
    words: parameters.Words,
    recipe: parameters.RecipeName = "digits",
    runs: parameters.Runs = None,
    seeds: parameters.Seeds = None,
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    prune: parameters.Prune = False,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    workers: parameters.Workers = None,
    keep_weights: parameters.Keeping = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            "-p",
            metavar="NAME|FILE",
            help="Estimate hours for this SLURM profile.  [default: this machine]",
        ),
    ] = None,
    max_hours: parameters.MaxHours = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure 50 steps of every arm here first, and keep the times.")
    ] = False,
    as_json: parameters.AsJson = False,
) -> None:
    """Show a study's trials, hours and confounds.

    Runs no trial. Counts finished trials, trials shared with other studies, and trials to do. Shows data, duration,
    what differs between the arms, and the smallest difference that the seeds can resolve.

    Examples:
        ablate plan position-embedding --probe
        ablate plan pooling --recipe cifar10 --profile mycluster
    """
    from ablations.planning import estimate
    from ablations.planning.overview import overview, render
    from ablations.planning.prepare import prepare

    if probe and profile is not None:
        raise ValueError(f"--probe measures here, not what --profile {profile} asks for: leave one of them out")
    chosen = slurm_profile(profile, recipe) if profile is not None else None
    place = make_place(runs, data_dir, plugin, profile=chosen)
    warn_of_other_recipe(parse_words(words), recipe, place.runs)
    made = designs(parse_words(words), recipe, data_dir)
    stated = use_stated_pack(made, data_dir, probe)
    plans = [prepare(design, place.runs, seeds, prune or stated, place.code) for design in track_planning(made)]
    for planned in plans:
        warn_of_needless_settings(planned, place.runs)
    if chosen is None:
        device = estimate.local_device(plans)
    else:
        from ablations.cluster import campaign  # imported here because it loads submitit

        device = campaign.device(chosen)
    if probe:
        from ablations.planning.measure_steps import measure_missing  # imported here because it loads torch
        from vitcore.runtime.device import require_gpu

        if device.gpu:
            require_gpu()
        guards.ensure_data(jobs(plans), place)
        measure_missing(plans, place.runs, place.data_dir, lambda line: print(line, file=sys.stderr))
    if max_hours is not None:
        estimate.check_max_hours(max_hours, plans, jobs(plans, arm), place.runs, device)
    keep = keep_weights or ablate_toml.read(Path()).keep_weights
    views = [
        overview(
            plan, place.runs, plans[:position], device, keep, workers, arm, here=bool(device.name) and chosen is None
        )
        for position, plan in enumerate(plans)
    ]
    if as_json:
        return show_json(views)
    for view, planned in zip(views, plans, strict=True):
        print(render(view, planned, arm), end="\n\n")


def use_stated_pack(made: "list[Design]", data_dir: Path | None, probe: bool) -> bool:
    """Use what the recipe states about its pack if the pack does not exist yet, and return whether this was done.

    Raises ValueError if `probe` is true and the pack does not exist, because step times are measured on the images.
    """
    from vitcore.data.lookup import STATED, pack_hint
    from vitcore.data.pack import find

    recipe = made[0].recipe
    name = str(recipe.config.get("data"))
    if recipe.pack is None or name not in [design.layers.data for design in made] or find(name, data_dir) is not None:
        return False
    missing = f"data={name}: not packed here: {pack_hint(name)}"
    if probe:
        raise ValueError(f"--probe measures on the data: {missing}")
    print(f"{missing}: planned from what the recipe states of it, as if nothing were finished", file=sys.stderr)
    STATED[name] = recipe.pack.about(name)
    return True


def check(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|NAME...", help="Plug-ins (.py), studies or recipes (.yaml or their names), or 'all'."
        ),
    ],
    recipe: parameters.RecipeName = "digits",
    plugin: parameters.Plugins = None,
) -> None:
    """Test a plug-in, a study or a recipe.

    Runs the contract tests on the parts of a plug-in. Lists the arms and confounds of a study. Builds the model of a
    recipe. `all` stands for every packaged part, study and recipe. The exit status is 1 if a check fails, and 2 if
    something cannot be checked, such as a plug-in that does not import.

    Examples:
        ablate check fourier.py
        ablate check mine.yaml --recipe cifar10
        ablate check all
    """
    from ablations.cli.check import check_word
    from ablations.study.reading import read_recipe

    load_plugins(plugin)
    data_folder(None)
    chosen = read_recipe(recipe)
    if not all([check_word(word, chosen) for word in words]):
        raise typer.Exit(FAILED)
