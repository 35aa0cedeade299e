"""The commands `ablate run`, `train` and `retry`, which train on this machine."""

import os
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablations import machine
from ablations.cli.answer import FAILED, INTERRUPTED, show_json
from ablations.cli.inputs import guards, parameters
from ablations.cli.inputs.arguments import parse_words, prepare_plans, resolve_settings, trial_ids
from ablations.cli.inputs.corrections import SETTINGS, check_overrides
from ablations.cli.inputs.directories import folder_options, make_place, runs_folder
from ablations.execution import retry as retrying
from ablations.execution import slots
from ablations.execution.launch import Place
from ablations.jobs import Job, jobs
from ablations.planning.saved_plans import save_plan
from results import store
from results.store.schemas import Plan, Settings
from results.units import amount_text
from vitcore.config import Config, merge
from vitcore.options import usual_name

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ablations.execution.pool import RunSummary

MANY = 3  # maximum number of failed trials that are named one by one


def run(
    words: parameters.Words,
    recipe: parameters.RecipeName = "digits",
    runs: parameters.Runs = None,
    seeds: parameters.Seeds = None,
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    workers: parameters.Workers = None,
    prune: parameters.Prune = False,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    checkpoints: parameters.Checkpoints = None,
    keep_weights: parameters.Keeping = None,
    max_hours: parameters.MaxHours = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Mirror the training curves to this folder for TensorBoard while trials run."),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Write the plans for `ablate work`; train nothing.")
    ] = False,
) -> None:
    """Train missing trials on this machine.

    Prints each study's table as soon as the study is complete. Finished trials are not trained again. Ctrl-C loses
    nothing: run the same command again to continue.

    Examples:

        ablate run position-embedding
        ablate run pooling patch-size --seeds 10 --jobs 2
    """
    from ablations.planning import estimate
    from results.trackers import mirroring

    if arm != parameters.ALL_ARMS and (prune or plan_only):
        other = "--prune" if prune else "--plan-only"
        raise ValueError(f"--arm and {other}: --arm chooses trials of a plan, and {other} writes the plan: give one")
    place = make_place(runs, data_dir, plugin, checkpoints, keep_weights)
    plans = prepare_plans(words, recipe, place, seeds, prune, data_dir)
    todo = jobs(plans, arm)
    if max_hours is not None:
        estimate.check_max_hours(max_hours, plans, todo, place.runs, estimate.local_device(plans))
    if plan_only:
        guards.ensure_publishable(place.runs)
    else:
        guards.ensure_trainable(todo, place)
    warn_of_enlarged(job.config for job in todo)
    for planned in plans:
        save_plan(place.runs, planned)
    if plan_only:
        print(f"planned: ablate work {place.runs}")
        return
    with mirroring(plans, place.runs, tensorboard):
        summary = train_here(todo, place, workers, publisher(plans, arm, place.runs))
    finish(summary, len(todo), folder_options(runs), plans)
    print(next_commands(plans, place.runs, folder_options(runs)))


def work(
    folder: Annotated[
        Path | None, typer.Argument(metavar="RUNS", help="The run directory.", show_default="ablate.toml's, or runs")
    ] = None,
    workers: parameters.Workers = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            metavar="MINUTES",
            min=0.1,
            help="Save checkpoints and end before so much time has passed.",
            show_default="the end of a SLURM job",
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
    from ablations.cluster.submit import publish_pending
    from ablations.execution import runner

    place = make_place(folder, data_dir, plugin, checkpoints, keep_weights)
    plans = store.read_plans(place.runs).all()
    if not plans:
        raise ValueError(f"{place.runs}: no study is planned there: ablate run STUDY --runs {place.runs} --plan-only")
    ensure_plugins(plans, place)
    guards.ensure_publishable(place.runs)
    todo = [job for job in jobs(plans) if gpus is None or job.ranks == gpus]
    if renewed := retrying.reopen_lost_parents(place.runs, [job for job in todo if job.parents], place.code):
        print(retrying.renewal_line(renewed), flush=True)
    if machine.is_login_node():
        workers = min(workers or machine.LOGIN_NODE_TRIALS, machine.LOGIN_NODE_TRIALS)
    deadline = machine.stop_time(60 * minutes if minutes else machine.seconds_left())
    with runner.signal_handler(lambda *_: os.kill(os.getpid(), signal.SIGTERM), signal.SIGUSR1, signal.SIGUSR2):
        summary = runner.pull(todo, place, machine.process_name(), workers, deadline)
    done, failed = amount_text(len(summary.done), "trial"), len(summary.failed) + len(summary.blocked)
    print(f"{done} done here, {failed} failed, {summary.left} left", flush=True)
    if not summary.left and gpus is None and (written := publish_pending(place.runs, plans)):
        print(written)
    finish(summary, len(summary.done) + failed + summary.left, folder_options(folder), plans)


def ensure_plugins(plans: Iterable[Plan], place: Place) -> None:
    """Raise ValueError if a plan was made with a plug-in that is not loaded: its trials would fail."""
    loaded = {Path(file).name for file in place.plugins}
    for plan in plans:
        missing = [file for file in (plan.asked.plugins if plan.asked else ()) if Path(file).name not in loaded]
        if missing:
            raise ValueError(f"{plan.name}: was planned with a plug-in: --plugin {missing[0]}")


def next_commands(plans: Sequence[Plan], runs: Path, where: str) -> str:
    """Return text with the commands that show results. where: the --runs option for these commands."""
    asked = jobs(plans)
    left = sum(not store.trial(runs, job.id).state().is_over for job in asked)
    names = " ".join(shlex.quote(plan.name) for plan in plans) + where
    table = f"ablate table {names}{' --interim' if left else ''}"
    so_far = f"   verdicts so far: {left} of {len(asked)} planned trials are still to do" if left else ""
    return f"next    {table}{so_far}\n        ablate plot {names}; ablate report {names}"


def warn_of_enlarged(configs: Iterable[Settings]) -> None:
    from ablations.study.confounds import enlargement_notes

    seen = sorted({(config["data"], config["image_size"]) for config in configs})
    for line in dict.fromkeys(note for data, size in seen for note in enlargement_notes(data, size)):
        print(f"ablate: {line}", file=sys.stderr)


def publisher(plans: list[Plan], arms: Sequence[str], runs: Path) -> Callable[[Job], str]:
    """Return a function of an ended trial, which writes and returns the tables of studies that are then complete."""
    open_trials = {planned.name: {job.id for job in jobs([planned], arms)} for planned in plans}

    def publish_ended(job: Job) -> str:
        tables = []
        for name, ids in list(open_trials.items()):
            ids.discard(job.id)
            if not ids:
                from results.publish import publish
                from results.study_results import load_plans

                del open_trials[name]
                own = next(planned for planned in plans if planned.name == name)
                tables.append(publish(load_plans(runs, [own])[0], runs) + "\n")
        return "\n".join(tables)

    return publish_ended


def train(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings; all others are the recipe's.",
            callback=parameters.refuse_options,
        ),
    ],
    recipe: parameters.RecipeName = "digits",
    runs: parameters.Runs = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    checkpoints: parameters.Checkpoints = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Train a single trial.

    Runs the same code as a study. Prints the trial's folder and its metrics. Trials that it starts from are trained
    first if their weights are missing.

    Examples:

        ablate train position=2d seed=1
        ablate train data=imagefolder:photos image_size=32 patch=4 steps=100
    """
    place = make_place(runs, data_dir, plugin, checkpoints)
    config = one_config(words, recipe, data_dir)
    from ablations.planning import init_checks  # imported here because mistakes are answered before torch is loaded
    from vitcore.analysis.cost import measure
    from vitcore.data.splits import check
    from vitcore.identity import trial_id

    check(config)
    before = init_checks.ancestors(config, place.runs)
    parents = init_checks.parent_names(before)
    job = Job(trial_id(config), config.model_dump(), "train", "", parents=parents, description=asdict(measure(config)))
    todo = retrying.trials_to_run(place.runs, [*before, job], place.code)
    guards.ensure_trainable([job, *todo], place)
    warn_of_enlarged([job.config])
    summary = train_here([*before, job], place, 1)
    state = store.trial(place.runs, job.id).state()
    if as_json and state.result is not None:
        show_json([store.read_json(place.runs / "trials" / job.id / "result.json")])
    elif state.result is not None:
        shown = "  ".join(f"{name} {value:.4f}" for name, value in state.result.metrics.items())
        print(f"{place.runs / 'trials' / job.id}  {state.status}  {shown}")
    finish(summary, len(todo), folder_options(runs))


def one_config(words: list[str], recipe: str, data_dir: Path | None) -> Config:
    """Return the recipe's config with the words' settings. Raises ValueError if they name a study or set the margin."""
    from ablations.study.reading import read_recipe

    asked = parse_words(words)
    if asked.margin is not None:
        raise ValueError(f"margin={asked.margin}: applies to studies: give it to `ablate run`")
    for word in map(usual_name, asked.studies[:1]):
        if word in SETTINGS:
            raise ValueError(f"'{asked.studies[0]}' is not key=value: write {word}=VALUE")
        again = f"`ablate run {shlex.quote(asked.studies[0])}` trains a study"
        raise ValueError(f"'{asked.studies[0]}' is not key=value: train takes one config; {again}")
    check_overrides(asked.overrides, [], recipe)
    return Config(**resolve_settings(merge(read_recipe(recipe).config, asked.overrides), data_dir))


def train_here(
    jobs: list[Job],
    place: Place,
    workers: int | None,
    on_over: Callable[[Job], str] = lambda job: "",
    above: "RenderableType | None" = None,
    metric: str = "test_accuracy",
) -> "RunSummary":
    """Train the unfinished trials on this machine, and return how all trials ended.

    workers: the maximum number of concurrent trials, or None for the default. on_over: called with each trial that had
    ended before or ends without being interrupted; returns text to print. above: what a terminal shows above the
    progress bars. metric: the metric to show for each trial that ends. Raises the errors of `runner.run` and
    `Trial.reopen`.
    """
    from ablations.cli.progress import Live, stderr_console
    from ablations.execution import runner

    renewed = retrying.renewal_line(retrying.reopen_lost_parents(place.runs, jobs, place.code))
    todo = retrying.trials_to_run(place.runs, jobs, place.code)
    wanted = max((len(slots.make_slots(group, workers)) for group in slots.group_by_ranks(todo)), default=0)
    most = machine.LOGIN_NODE_TRIALS if machine.is_login_node() else wanted
    at_once = min(wanted, most)
    with Live(stderr_console(), len(todo), above, at_once, metric) as display:
        if renewed:
            display.say(renewed)
        if wanted > most:
            display.say(
                f"a login node (there is sbatch, and no allocation): {amount_text(most, 'trial')} at a time "
                f"instead of {wanted}; for more: `ablate submit`, or this command inside an allocation (salloc, srun)"
            )
            workers = most

        def show_over(job: Job) -> None:
            if text := on_over(job):
                display.print_result(text)

        return runner.run(jobs, place, display, workers, show_over)


def finish(summary: "RunSummary", asked: int, where: str, plans: Sequence[Plan] = ()) -> None:
    """Report on standard error the trials that are not done.

    Raises Exit(INTERRUPTED) if the run was stopped, or else Exit(FAILED) if trials are not done. asked: the number of
    requested trials. where: the --runs option for advice. plans: the plans that advice may name.
    """
    if summary.stopped:
        done, left = len(summary.done), asked - len(summary.done) - len(summary.failed) - len(summary.blocked)
        counted = f"{amount_text(done, 'trial')} done, {left} left"
        print(f"interrupted: {counted}; the same command continues", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if summary.interrupted:
        causes = "; ".join(dict.fromkeys(summary.interrupted.values()))
        counted = amount_text(len(summary.interrupted), "trial")
        print(f"{counted} interrupted ({causes}): the same command continues", file=sys.stderr)
    if summary.failed:
        print(failures(summary.failed, where, plans), file=sys.stderr)
    if summary.blocked:
        causes = "; ".join(dict.fromkeys(summary.blocked.values()))
        print(f"{amount_text(len(summary.blocked), 'trial')} blocked ({causes})", file=sys.stderr)
    if summary.failed or summary.interrupted or summary.blocked:
        raise typer.Exit(FAILED)


def failures(failed: Mapping[str, str], where: str, plans: Sequence[Plan]) -> str:
    """Return a line with the most common cause of failure and the command that retries the failed trials.

    failed: id -> cause. where: the --runs option for the command.
    """
    cause, count = Counter(failed.values()).most_common(1)[0]
    of = cause if count == len(failed) else f"{count} of them: {cause}"
    names = [shlex.quote(plan.name) for plan in plans if failed.keys() & {job.id for job in jobs([plan])}]
    again = " ".join(list(failed) if len(failed) <= MANY or not names else names)
    return f"{amount_text(len(failed), 'trial')} failed ({of}); fix the cause, then: `ablate retry {again}{where}`"


def retry(
    words: parameters.StudiesOrTrials,
    recipe: parameters.PlannedRecipe = None,
    runs: parameters.Runs = None,
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    failed: Annotated[bool, typer.Option("--failed", help="Retry all failed trials. This is the default.")] = False,
    oom: Annotated[bool, typer.Option("--oom", help="Retry only trials that ran out of memory.")] = False,
    diverged: Annotated[
        bool, typer.Option("--diverged", help="Retry diverged trials; their old results are set aside.")
    ] = False,
) -> None:
    """Let failed trials run again.

    The next `ablate run` or `ablate submit` continues them from their newest checkpoints.

    Examples:

        ablate retry position-embedding --oom
        ablate retry 3f2a9c01b7de
    """
    folder = runs_folder(runs)
    ids = list(dict.fromkeys(trial_ids(folder, words, recipe, arm)))
    trials = [store.trial(folder, key) for key in ids]
    reopened = retrying.retry(trials, failed=failed or not (oom or diverged), oom=oom, diverged=diverged)
    meant = [job for job in jobs(store.read_plans(folder).readable) if {job.id, *job.parents} & {*ids}]
    renewed = retrying.renewal_line(retrying.reopen_lost_parents(folder, meant))
    if reopened:
        held = "" if all(reopened) else f"; {reopened.count(False)} held by a worker right now"
        print(f"{amount_text(sum(reopened), 'trial')} may be run again{held}")
    elif not renewed:
        how = " or ".join(["ran out of memory"] * oom + ["diverged"] * diverged) or "failed"
        broken = any(trial.state().status == "broken" for trial in trials)
        then = "`ablate run` trains trials with a damaged result again" if broken else "there is nothing to retry"
        print(f"0 of {amount_text(len(ids), 'trial')} {how}: {then}")
    if renewed:
        print(renewed)
