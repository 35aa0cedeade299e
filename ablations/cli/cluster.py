"""The commands `ablate submit`, `cancel` and `profile`, which train on a SLURM cluster."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ablations.cli.answer import fail_if
from ablations.cli.check import check_earlier_probes, save_plans
from ablations.cli.inputs import directories, parameters
from ablations.cli.inputs.plan_names import named_plans
from ablations.cli.inputs.preparation import ensure_data, prepare_plans, slurm_profile, take_from
from ablations.cli.inputs.words import parse_words
from ablations.cluster import submit as submitting
from ablations.cluster.campaign import device
from ablations.jobs import jobs
from commonfloor.files import write_bytes
from slurm.partitions import nodes
from slurm.profile import draft, path_to_write


def submit(
    words: parameters.Words,
    profile: parameters.ProfileName = None,
    recipe: parameters.RecipeName = None,
    runs: parameters.Runs = None,
    seeds: parameters.Seeds = None,
    name: parameters.PlanName = "",
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    race: parameters.Race = False,
    prune: parameters.Prune = False,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    checkpoints: parameters.Checkpoints = None,
    keep_weights: parameters.Keeping = None,
    max_hours: parameters.MaxHours = None,
    sources: parameters.Sources = None,
    no_probe: parameters.NoProbe = False,
    dry_run: Annotated[
        bool, parameters.flag("--dry-run", "Print the scripts; submit and write nothing.", "-n")
    ] = False,
) -> None:
    """Submit missing trials to SLURM.

    Returns at once. If the command is given again, it submits only trials that are neither done nor queued. It runs
    `sbatch --test-only` first, and submits nothing if a setting of the profile is wrong. A last job waits for all
    others, submits what is still missing, and writes tables and report. `--profile local` trains on this machine, in
    the background.

    Examples:

        ablate submit position-embedding --recipe cifar10 --profile mycluster
        ablate submit pooling -p mycluster --arm 'pool=gap*' --dry-run
    """
    if dry_run and sources:
        raise ValueError("--dry-run and --from: a dry run takes nothing: `ablate plan --from` counts")
    named = profile or directories.read_ablate_toml().profile
    if named is None:
        raise ValueError("name a SLURM profile: --profile NAME|FILE, or `profile` in ablate.toml")
    chosen = slurm_profile(named, recipe)
    place = directories.make_place(runs, data_dir, plugin, checkpoints, keep_weights, chosen)
    plans = prepare_plans(words, recipe, place, seeds, prune, data_dir, name, race=race)
    chosen_jobs = jobs(plans, arm)
    take_from(sources, chosen_jobs, place.runs, plans, max_hours, device(chosen))
    todo = submitting.trials_to_submit(plans, place, arm)
    ensure_data(chosen_jobs, place)
    submitting.check_gpus(chosen, todo)
    if not no_probe:
        check_earlier_probes(plans, arm, place, directories.folder_options(runs))
    on_this_machine = submitting.is_this_machine(named)
    if dry_run and on_this_machine:
        return print(f"# {len(todo)} trials on this machine")
    if dry_run:
        return print(submitting.preview(plans, place, chosen, arm))
    if todo and not on_this_machine:
        submitting.preflight(chosen, place.runs)
    directories.ensure_publishable(place.runs)
    plans = save_plans(plans, place.runs)
    if on_this_machine:
        print(submitting.start_here(plans, place, chosen, arm))
    else:
        print(submitting.submit(plans, place, chosen, arm))
    names = shlex.join(plan.name for plan in plans)
    print(f"watch: ablate status {names}{directories.folder_options(runs)} --watch")


def cancel(words: parameters.Words, recipe: parameters.PlannedRecipe = None, runs: parameters.Runs = None) -> None:
    """Cancel a study's jobs in SLURM.

    Cancelled trials do not continue until the next `ablate submit`. Use scancel to cancel single jobs. Preempted,
    timed-out and killed jobs continue by themselves.

    Examples:

        ablate cancel position-embedding --recipe cifar10
        ablate cancel all
    """
    folder = directories.runs_folder(runs)
    plans = named_plans(folder, parse_words(words, recipe)).all()
    print(submitting.cancel(folder, {plan.name for plan in plans}))


def init_profile(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The name by which --profile finds it.", show_default="standard output"),
    ] = None,
    out: Annotated[Path | None, parameters.out_option("FILE", "Write to this file instead.")] = None,
) -> None:
    """Write a first profile with comments.

    Takes partitions and GPUs from this cluster's sinfo. Edit the profile, then test it with
    `ablate profile check`.

    Examples:

        ablate profile init mycluster
        ablate profile init --out mycluster.yaml
    """
    if name and out:
        raise ValueError(f"--out {out}: with NAME={name} the file lies where --profile {name} finds it")
    path = path_to_write(name) if name else out
    if path and path.exists():
        raise ValueError(f"{path}: exists already")
    text = draft(nodes())
    if path is None:
        print(text)
    else:
        write_bytes(path, text.encode())
        print(path)


def check_profile(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="The profile.")],
    runs: parameters.Runs = None,
    data_dir: parameters.DataDir = None,
) -> None:
    """Test a profile with a short job.

    Checks what trials need on a node: imports, GPU, data, hard links in the run directory, sbatch, torch.compile.
    Without sbatch on the node, nothing resubmits unfinished trials.

    Examples:

        ablate profile check mycluster
        ablate profile check mycluster.yaml --runs /shared/runs
    """
    profile = submitting.read_profile(name)
    place = directories.make_place(runs, data_dir, None, profile=profile)
    directories.ensure_writable(place.runs)
    lines, good = submitting.check(profile, place)
    print("\n".join(lines))
    fail_if(not good)
