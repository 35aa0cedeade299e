"""`ablate submit`, `cancel`: trials on a SLURM cluster."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.cli.inputs import guards, options
from ablations.cli.inputs.arguments import planned, prepared, slurm_profile, split, warn_of_other_recipe
from ablations.cli.inputs.directories import found_at, make_place, runs_folder
from results.store.schemas import Plan

if TYPE_CHECKING:
    from ablations.execution.launch import Place
    from slurm.profiles.profile import Profile


def submit(
    words: options.Words,
    profile: options.ProfileName,
    recipe: options.RecipeName = "digits",
    runs: options.Runs = None,
    seeds: options.Seeds = None,
    arm: options.ArmGlobs = options.ALL_ARMS,
    prune: options.Prune = False,
    plugin: options.Plugins = None,
    data_dir: options.DataDir = None,
    checkpoints: options.Checkpoints = None,
    keep_weights: options.Keeping = None,
    max_hours: options.MaxHours = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Print the scripts; submit and write nothing.")
    ] = False,
) -> None:
    """Submit what is missing to SLURM.

    Returns at once. Run again, it submits only what is neither done nor queued. It asks `sbatch --test-only` first: if
    a setting of the profile is wrong, nothing is submitted. A last job waits for all others, submits what is
    still missing, and writes tables and report.

    Examples:
        ablate submit position-embedding --recipe cifar10 --profile mycluster
        ablate submit pooling -p mycluster --arm 'pool=gap*' --dry-run
    """
    from ablations.cluster import submit as submitting
    from ablations.planning import jobs

    chosen = slurm_profile(profile, recipe)
    keep = keep_weights.value if keep_weights else chosen.keep_weights
    place = make_place(runs, data_dir, plugin, checkpoints or chosen.checkpoints, keep, chosen)
    warn_of_other_recipe(split(words), recipe, place.runs)
    plans = prepared(split(words), recipe, place, seeds, prune, data_dir)
    ensure_submittable(plans, arm, place, chosen, max_hours)
    if dry_run:
        print(submitting.preview(plans, place, chosen, arm))
        return
    if submitting.trials_to_submit(plans, place, arm):
        submitting.preflight(chosen, place.runs)
    guards.ensure_writable(place.runs)
    for plan in plans:
        jobs.write(place.runs, plan)
    names = [plan.name for plan in plans]
    print(submitting.submit(plans, place, chosen, arm))
    print(f"watch: ablate status {shlex.join(names)}{found_at(runs)} --watch")


def ensure_submittable(
    plans: list[Plan], arms: Sequence[str], place: "Place", profile: "Profile", max_hours: float | None
) -> None:
    """Raise ValueError for trials that the jobs could not train, or not within --max-hours."""
    from ablations.cluster import submit as submitting
    from ablations.cluster.campaign import device
    from ablations.planning import estimate
    from ablations.planning.jobs import jobs

    asked = jobs(plans, arms)
    guards.ensure_data(asked, place)
    submitting.check_gpus(profile, submitting.trials_to_submit(plans, place, arms))
    if max_hours is not None:
        estimate.check_max_hours(max_hours, plans, asked, place.runs, device(profile))


def cancel(words: options.Words, recipe: options.PlannedRecipe = None, runs: options.Runs = None) -> None:
    """Cancel a study's jobs in SLURM.

    Nothing continues until `ablate submit` is given again. scancel does the same for single jobs. Preempted, timed-out
    and killed jobs continue by themselves.

    Examples:
        ablate cancel position-embedding --recipe cifar10
        ablate cancel all
    """
    from ablations.cluster import submit as submitting

    folder = runs_folder(runs)
    names = {plan.name for plan in planned(folder, words, recipe)}
    print(submitting.cancel(folder, names))
