"""`ablate plan`: what a run would do."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.cli.answer import show_json
from ablations.cli.inputs import guards, options
from ablations.cli.inputs.arguments import counted, designs, slurm_profile, split, warn_of_other_recipe
from ablations.cli.inputs.directories import make_place
from ablations.study import settings
from results.store.schemas import Plan

if TYPE_CHECKING:
    from ablations.execution.launch import Place
    from ablations.planning.step_times import Device
    from ablations.study.design import Design
    from slurm.profiles.profile import Profile


def plan(
    words: options.Words,
    recipe: options.RecipeName = "digits",
    runs: options.Runs = None,
    seeds: options.Seeds = None,
    arm: options.ArmGlobs = options.ALL_ARMS,
    prune: options.Prune = False,
    plugin: options.Plugins = None,
    data_dir: options.DataDir = None,
    workers: options.Workers = None,
    keep_weights: options.Keeping = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            "-p",
            metavar="NAME|FILE",
            help="Estimate hours for this SLURM profile.  [default: this machine]",
        ),
    ] = None,
    max_hours: options.MaxHours = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure 50 steps of every arm here first, and keep the times.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show trials, hours and confounds; train nothing.

    Says how many trials are finished, shared with other studies and to do, what data they see, how long they take, what
    differs between the arms, and the smallest difference that the seeds can resolve.

    Examples:
        ablate plan position-embedding --probe
        ablate plan pooling --recipe cifar10 --profile mycluster
    """
    from ablations.planning import estimate
    from ablations.planning.jobs import jobs
    from ablations.planning.overview import overview, render
    from ablations.planning.prepare import prepare

    if probe and profile is not None:
        raise ValueError(f"--probe measures here, not what --profile {profile} asks for: leave one of them out")
    chosen = slurm_profile(profile, recipe) if profile is not None else None
    place = make_place(runs, data_dir, plugin, profile=chosen)
    warn_of_other_recipe(split(words), recipe, place.runs)
    made = designs(split(words), recipe, data_dir)
    stated = take_as_stated(made, data_dir, probe)
    plans = [prepare(design, place.runs, seeds, prune or stated, place.code) for design in counted(made)]
    device = estimate.local_device(plans) if chosen is None else profile_device(chosen)
    if probe:
        measure_paces(plans, place)
    if max_hours is not None:
        estimate.check_max_hours(max_hours, plans, jobs(plans, arm), place.runs, device)
    keep = keep_weights.value if keep_weights else settings.read(Path()).keep_weights
    views = [
        overview(plan, place.runs, plans[:position], device, keep, workers, arm, chosen is None)
        for position, plan in enumerate(plans)
    ]
    if as_json:
        show_json(views)
    else:
        for view, planned in zip(views, plans, strict=True):
            print(render(view, planned, arm), end="\n\n")


def take_as_stated(made: "list[Design]", data_dir: Path | None, probe: bool) -> bool:
    """Use the recipe's statement about a pack that does not exist yet, with a note on standard error.

    Raises ValueError if --probe needs the pack.
    """
    from vitcore.data.lookup import STATED, unpacked
    from vitcore.data.pack import find

    recipe = made[0].recipe
    name = str(recipe.config.get("data"))
    used = any(name == design.data for design in made)
    if recipe.pack is None or not used or find(name, data_dir) is not None:
        return False
    missing = f"data={name}: not packed here: {unpacked(name)}"
    if probe:
        raise ValueError(f"--probe measures on the data: {missing}")
    print(f"{missing}: planned from what the recipe states of it, as if nothing were finished", file=sys.stderr)
    STATED[name] = recipe.pack.about(name)
    return True


def measure_paces(plans: list[Plan], place: "Place") -> None:
    """Measure the step time of every arm, with one line each on standard error."""
    from ablations.planning.jobs import jobs
    from ablations.planning.measure_steps import measure_missing

    guards.ensure_data(jobs(plans), place)
    measure_missing(plans, place.runs, place.data_dir, lambda line: print(line, file=sys.stderr))


def profile_device(profile: "Profile") -> "Device":
    """Return the device of a profile's jobs."""
    from ablations.cluster.campaign import device  # late: submitit

    return device(profile)
