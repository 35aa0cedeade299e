"""The commands `ablate work` and `ablate retry`, and the training of planned trials on this machine."""

import os
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from ablations import machine
from ablations.cli.answer import FAILED, INTERRUPTED
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import ensure_publishable, folder_options, make_place, runs_folder
from ablations.cli.inputs.plan_names import trial_ids
from ablations.cli.inputs.words import parse_words
from ablations.cluster.submit import publish_pending
from ablations.execution import reopen, runner, slots
from ablations.execution.launch import Place
from ablations.execution.pool import RunSummary
from ablations.execution.progress import Live, stderr_console
from ablations.execution.race import Races
from ablations.jobs import Job, jobs
from results import store
from results.store.schemas.plans import Plan
from results.units import amount_text

MANY = 3  # maximum number of failed trials that are named one by one


def work(
    folder: Annotated[
        Path | None, typer.Argument(metavar="RUNS", help="The run directory.", show_default="ablate.toml's, or runs")
    ] = None,
    workers: parameters.Workers = None,
    minutes: Annotated[
        float | None,
        parameters.option(
            "MINUTES", "Save checkpoints and end before so much time has passed.", "the end of a SLURM job", min=0.1
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="Only trials on so many GPUs.", show_default="all")
    ] = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    checkpoints: parameters.Checkpoints = None,
    keep_weights: parameters.Keeping = None,
) -> None:
    """Train unclaimed trials until none is left.

    Takes the trials of all planned studies. Start it as often as you like, on any machine that sees the run directory:
    no trial is trained twice. Plan the studies first, with `ablate run` or `ablate submit`. It ends at once if other
    processes hold all trials that are left. It waits up to ten minutes for a trial that others start from. SIGTERM,
    SIGINT, SIGUSR1 and SIGUSR2 save checkpoints and end it. To use several GPUs of a SLURM allocation as tasks, put
    `srun --ntasks=4 --gpus-per-task=1` before the command.

    Examples:

        ablate work /shared/runs
        ablate work /shared/runs --minutes 235
    """
    place = make_place(folder, data_dir, plugin, checkpoints, keep_weights)
    plans = store.read_plans(place.runs).all()
    if not plans:
        where = folder_options(place.runs)
        raise ValueError(f"{place.runs}: no study is planned there: ablate run STUDY{where} --plan-only")
    ensure_plugins(plans, place)
    ensure_publishable(place.runs)
    todo = [job for job in jobs(plans) if gpus is None or job.ranks == gpus]
    children = [job for job in todo if job.parents]
    renewed = reopen.renewal_line(reopen.reopen_lost_parents(place.runs, children, place.code))
    if renewed:
        print(renewed, flush=True)
    if machine.is_login_node():
        workers = min(workers or machine.LOGIN_NODE_TRIALS, machine.LOGIN_NODE_TRIALS)
    deadline = machine.stop_time(60 * minutes if minutes else machine.seconds_left())
    with runner.signal_handler(lambda *_: os.kill(os.getpid(), signal.SIGTERM), signal.SIGUSR1, signal.SIGUSR2):
        races = Races(place.runs, plans)
        name = machine.process_name()
        summary = runner.pull(todo, place, name, workers, deadline, left_out=races.left_out, is_race=races.are_there)
    done = len(summary.done)
    failed = len(summary.failed) + len(summary.blocked)
    print(f"{amount_text(done, 'trial')} done here, {failed} failed, {summary.left} left", flush=True)
    if not summary.left and gpus is None:
        written = publish_pending(place.runs, plans)
        if written:
            print(written)
    finish(summary, done + failed + summary.left, folder_options(folder), plans)


def ensure_plugins(plans: Iterable[Plan], place: Place) -> None:
    loaded = {Path(file).name for file in place.plugins}
    for plan in plans:
        for file in plan.asked.plugins if plan.asked else ():
            if Path(file).name not in loaded:
                raise ValueError(f"{plan.name}: was planned with a plug-in: --plugin {file}")


def train_here(
    jobs: list[Job],
    place: Place,
    workers: int | None,
    on_over: Callable[[Job], str] = lambda job: "",
    above: RenderableType | None = None,
    left_out: Callable[[], Mapping[str, str]] = dict,
) -> RunSummary:
    """Train the unfinished trials on this machine, and return how all trials ended.

    workers: the maximum number of concurrent trials, or None for the default. on_over: called with each trial that had
    ended before or ends without being interrupted; returns text to print. above: what a terminal shows above the
    progress bars. left_out: returns id -> reason of the trials that races leave out now.
    """
    renewed = reopen.renewal_line(reopen.reopen_lost_parents(place.runs, jobs, place.code))
    todo = reopen.trials_to_run(place.runs, jobs, place.code)
    wanted = max((len(slots.make_slots(group, workers)) for group in slots.group_for_pools(todo)), default=0)
    most = machine.LOGIN_NODE_TRIALS if machine.is_login_node() else wanted
    at_once = min(wanted, most)
    with Live(stderr_console(), len(todo), above, at_once) as display:
        if renewed:
            display.say(renewed)
        if wanted > most:
            display.say(
                f"a login node (there is sbatch, and no allocation): {amount_text(most, 'trial')} at a time "
                f"instead of {wanted}; for more: `ablate submit`, or this command inside an allocation (salloc, srun)"
            )
            workers = most

        def show_over(job: Job) -> None:
            text = on_over(job)
            if text:
                display.print_result(text)

        return runner.run(jobs, place, display, workers, show_over, left_out=left_out)


def finish(summary: RunSummary, asked: int, where: str, plans: Sequence[Plan] = ()) -> None:
    """Report on standard error the trials that are not done."""
    if summary.stopped:
        done = len(summary.done)
        left = asked - done - len(summary.failed) - len(summary.blocked) - len(summary.left_out)
        counted = f"{amount_text(done, 'trial')} done, {left} left"
        print(f"interrupted: {counted}; the same command continues", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    lines = []
    if summary.interrupted:
        lines.append(f"{counted_causes('interrupted', summary.interrupted)}: the same command continues")
    if summary.failed:
        lines.append(failures(summary.failed, where, plans))
    if summary.blocked:
        lines.append(counted_causes("blocked", summary.blocked))
    if lines:
        print("\n".join(lines), file=sys.stderr)
        raise typer.Exit(FAILED)


def counted_causes(what: str, causes: Mapping[str, str]) -> str:
    """Return text such as "2 trials blocked (why)". causes: id -> cause."""
    return f"{amount_text(len(causes), 'trial')} {what} ({'; '.join(dict.fromkeys(causes.values()))})"


def failures(failed: Mapping[str, str], where: str, plans: Sequence[Plan]) -> str:
    ((cause, count),) = Counter(failed.values()).most_common(1)
    if count < len(failed):
        cause = f"{count} of them: {cause}"
    names = list(failed)
    if len(failed) > MANY and plans:
        names = [shlex.quote(plan.name) for plan in plans if failed.keys() & {job.id for job in jobs([plan])}]
    again = f"`ablate retry {' '.join(names)}{where}`"
    return f"{amount_text(len(failed), 'trial')} failed ({cause}); fix the cause, then: {again}"


def retry(
    words: parameters.StudiesOrTrials,
    recipe: parameters.PlannedRecipe = None,
    runs: parameters.Runs = None,
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    failed: Annotated[bool, parameters.flag("--failed", "Retry all failed trials. This is the default.")] = False,
    oom: Annotated[bool, parameters.flag("--oom", "Retry only trials that ran out of memory.")] = False,
    diverged: Annotated[
        bool, parameters.flag("--diverged", "Retry diverged trials; their old results are set aside.")
    ] = False,
) -> None:
    """Let failed trials run again.

    The next `ablate run` or `ablate submit` continues them from their newest checkpoints.

    Examples:

        ablate retry position-embedding --oom
        ablate retry 3f2a9c01b7de
    """
    folder = runs_folder(runs)
    ids = list(dict.fromkeys(trial_ids(folder, parse_words(words, recipe), arm)))
    trials = [store.trial(folder, trial_id) for trial_id in ids]
    reopened = reopen.retry(trials, failed=failed or not (oom or diverged), oom=oom, diverged=diverged)
    planned = jobs(store.read_plans(folder).readable)
    related = [job for job in planned if {job.id, *job.parents} & {*ids}]
    renewed = reopen.renewal_line(reopen.reopen_lost_parents(folder, related))
    if reopened:
        line = f"{amount_text(sum(reopened), 'trial')} may be run again"
        if not all(reopened):
            line += f"; {reopened.count(False)} held by a worker right now"
        print(line)
    elif not renewed:
        print(nothing_to_retry(trials, oom, diverged))
    if renewed:
        print(renewed)


def nothing_to_retry(trials: Sequence[store.Trial], oom: bool, diverged: bool) -> str:
    causes = ["ran out of memory"] * oom + ["diverged"] * diverged
    advice = "there is nothing to retry"
    if any(trial.state().status == "broken" for trial in trials):
        advice = "`ablate run` trains trials with a damaged result again"
    return f"0 of {amount_text(len(trials), 'trial')} {' or '.join(causes) or 'failed'}: {advice}"
