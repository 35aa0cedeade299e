"""The commands `ablate plan` and `check`, which show what a run would do and whether its parts work."""

import sys
from typing import Annotated

import typer

from ablations.cli.answer import FAILED, show_json
from ablations.cli.inputs import guards, parameters
from ablations.cli.inputs.arguments import prepare_plans, slurm_profile
from ablations.cli.inputs.directories import data_folder, imported_files, load_plugins, make_place
from ablations.jobs import jobs


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
        str | None, parameters.profile_option("Estimate hours for this SLURM profile.", "this machine")
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

    if probe and profile is not None:
        raise ValueError(f"--probe measures here, not what --profile {profile} asks for: leave one of them out")
    chosen = slurm_profile(profile, recipe) if profile is not None else None
    place = make_place(runs, data_dir, plugin, keep_weights=keep_weights, profile=chosen)
    plans = prepare_plans(words, recipe, place, seeds, prune, data_dir, stated=not probe)
    if chosen is None:
        device = estimate.local_device(plans)
    else:
        from ablations.cluster import campaign  # imported here because most plans need no cluster

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
    keep, here = place.keep_weights, bool(device.name) and chosen is None
    views = [
        overview(plan, place.runs, plans[:position], device, keep, workers, arm, here, imported_files(place.plugins))
        for position, plan in enumerate(plans)
    ]
    if as_json:
        return show_json(views)
    for view, planned in zip(views, plans, strict=True):
        print(render(view, planned, arm), end="\n\n")


def check(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|NAME", help="Plug-ins (.py), studies or recipes (.yaml or their names), or 'all'."
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
