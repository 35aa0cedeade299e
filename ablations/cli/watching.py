"""The commands `ablate status` and `ablate logs`, which show trials."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ablations.cli.answer import print_damaged, show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.arguments import checked_names, trial_ids
from ablations.cli.inputs.directories import folder_options, runs_folder
from results.store import plan_files

if TYPE_CHECKING:
    from ablations.status.view import Statuses


def status(
    words: parameters.Names = None,
    recipe: parameters.PlannedRecipe = None,
    runs: parameters.Runs = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until all trials are done, or Ctrl-C.")] = False,
    as_json: parameters.AsJson = False,
) -> None:
    """Show which trials are done, running or failed.

    Changes nothing, and works without SLURM. Reads the disk first, then SLURM's queue, then its accounting. What
    does not answer within seconds is shown as unknown. --watch reads the disk every few seconds and asks SLURM once
    a minute.

    Examples:

        ablate status
        ablate status position-embedding --recipe cifar10 --watch
    """
    from rich.console import Console

    from ablations.status import view as status_view
    from ablations.status.slurm_answers import RateLimitedAsker
    from ablations.status.study_status import study_status

    folder, where = runs_folder(runs), folder_options(runs)
    asker = RateLimitedAsker(folder)
    names = checked_names(words, recipe, folder)

    def read() -> "Statuses":
        plans, damaged = plan_files.named_plans(folder, names)
        answers = asker()
        return [study_status(plan, folder, answers) for plan in plans], damaged

    if as_json and watch:
        raise ValueError("--watch: leave out --json")
    studies, damaged = status_view.show_live(read, where) if watch else read()
    with print_damaged(damaged):
        if as_json:
            show_json(studies)
        else:
            Console().print(status_view.render(studies, where), soft_wrap=True, highlight=False)


def logs(
    words: parameters.StudiesOrTrials,
    recipe: parameters.PlannedRecipe = None,
    runs: parameters.Runs = None,
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    failed: Annotated[bool, typer.Option("--failed", help="Show failed trials only.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Lines to print of each log.")] = 20,
    as_json: parameters.AsJson = False,
) -> None:
    """Print the end of each trial's log.

    Adds the traceback of a failure. For a trial that never began or was interrupted, also prints the log of its SLURM
    task.

    Examples:

        ablate logs position-embedding --failed
        ablate logs 3f2a9c01b7de --lines 100
    """
    from ablations.status import log_tails

    folder = runs_folder(runs)
    found = log_tails.tails(folder, trial_ids(folder, words, recipe, arm), lines, failed)
    if as_json:
        return show_json([{"logs": [asdict(tail) for tail in found]}])
    tail = None
    for tail in found:
        print(tail)
    if tail is None:
        print("nothing has failed" if failed else "nothing has begun", file=sys.stderr)
