"""The commands `ablate demo`, `run`, `train` and `verify`, which train here, and `seal`, which comes before."""

import math
import platform
import secrets
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from ablations.cli.answer import INTERRUPTED, fail_if, show, show_json
from ablations.cli.check import check_earlier_probes, probe_plans, save_plans
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import data_folders, ensure_publishable, folder_options, make_place, runs_folder
from ablations.cli.inputs.preparation import ensure_data, ensure_trainable, prepare_plans, take_from
from ablations.cli.inputs.words import is_setting, parse_words, refuse_csv
from ablations.cli.work import finish, train_here
from ablations.execution import reopen
from ablations.execution.launch import Place
from ablations.execution.progress import GrowingTable
from ablations.execution.race import Races, open_jobs
from ablations.execution.slots import make_slots
from ablations.jobs import Job, jobs, unfinished
from ablations.planning import bundle_files, estimate, sealing, verification
from ablations.planning.saved_plans import save_plan
from ablations.study.naming import RECIPE
from ablations.study.reading import read_recipe
from ablations.trainables.trainable import LINKS, find, is_trial_id, trial_id
from commonfloor.messages import usual_name
from results import report, store
from results.figures import study_figure
from results.load import load_studies
from results.report import publish, rerun_command
from results.store import seals
from results.store.schemas.base import Settings
from results.store.schemas.plans import Plan
from results.study_results import load_plans
from results.trackers import mirroring
from results.units import amount_text, duration_text

# Statuses of trials that others may start from, now or once they have finished.
GO_ON = ("finished", "interrupted", "running")
DEMO, DEMO_RECIPE, DEMO_SEEDS = "demo", "digits", 3
SLOWER = 1.6  # trials that run at once slow each other down, and the report takes seconds


def run(
    words: parameters.Words,
    recipe: parameters.RecipeName = None,
    runs: parameters.Runs = None,
    seeds: parameters.Seeds = None,
    name: parameters.PlanName = "",
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    workers: parameters.Workers = None,
    race: parameters.Race = False,
    prune: parameters.Prune = False,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    checkpoints: parameters.Checkpoints = None,
    keep_weights: parameters.Keeping = None,
    max_hours: parameters.MaxHours = None,
    sources: parameters.Sources = None,
    tensorboard: Annotated[
        Path | None,
        parameters.option("DIR", "Mirror the training curves to this folder for TensorBoard while trials run."),
    ] = None,
    no_probe: parameters.NoProbe = False,
    plan_only: Annotated[
        bool, parameters.flag("--plan-only", "Write the plans for `ablate work`; train nothing.")
    ] = False,
) -> None:
    """Train missing trials on this machine.

    Prints each study's table as soon as the study is complete. Finished trials are not trained again. Ctrl-C loses
    nothing: run the same command again to continue.

    Examples:

        ablate run position-embedding
        ablate run pooling patch-size --seeds 10 --jobs 2
        ablate run pooling --from results.parquet
        ablate run pooling --seeds 10 --race
    """
    for option, is_given in (("--prune", prune), ("--plan-only", plan_only)):
        if is_given and arm != parameters.ALL_ARMS:
            raise ValueError(f"--arm and {option}: --arm chooses trials of a plan, and {option} writes it: give one")
    place = make_place(runs, data_dir, plugin, checkpoints, keep_weights)
    plans = prepare_plans(words, recipe, place, seeds, prune, data_dir, name, race=race)
    todo = jobs(plans, arm)
    take_from(sources, todo, place.runs, plans, max_hours)
    if plan_only:
        ensure_data(todo, place)
        ensure_publishable(place.runs)
    else:
        ensure_trainable(todo, place)
    warn_of(todo)
    if plan_only and not no_probe:
        check_earlier_probes(plans, arm, place, folder_options(runs))
    elif not no_probe:
        probe_plans(plans, arm, place, workers)
    plans = save_plans(plans, place.runs)
    if plan_only:
        return print(f"planned: ablate work {shlex.quote(str(place.runs))}")
    races = Races(place.runs, plans)
    with mirroring(plans, place.runs, tensorboard):
        on_over = publisher(plans, arm, place.runs)
        summary = train_here(todo, place, workers, on_over, left_out=races.left_out)
    finish(summary, len(todo), folder_options(runs), plans)
    print(next_commands(plans, place.runs, folder_options(runs)))


def seal(
    words: parameters.Words,
    recipe: parameters.RecipeName = None,
    runs: parameters.Runs = None,
    seeds: parameters.Seeds = None,
    name: parameters.PlanName = "",
    race: parameters.Race = False,
    out: Annotated[
        Path | None,
        parameters.out_option("FILE.json", "A copy to deposit.", "none besides the run directory's"),
    ] = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Fix what a study declares, before its results.

    Writes the study's plan, and a file with its metric, margin, seeds, arms, tests, code and data. It is refused once
    a trial has results. Tables say whether results are as sealed, or what differs.

    Examples:

        ablate seal position-embedding
        ablate seal heads.yaml --recipe mine.yaml --seeds 10 --race --out heads-seal.json
    """
    place = make_place(runs, data_dir, plugin)
    plans = prepare_plans(words, recipe, place, seeds, False, data_dir, name, race=race)
    if len(plans) > 1:
        raise ValueError(f"{len(plans)} studies: a seal is one study's: name one")
    (plan,) = plans
    if out is not None and out.suffix != ".json":
        raise ValueError(f"--out {out}: a seal is a file named .json")
    unwritten = sealing.sealed(plan, place.runs, place.plugins)
    ensure_publishable(place.runs)
    save_plan(place.runs, plan)
    sealed = sealing.write(place.runs, unwritten)
    if out is not None:
        store.write_bytes(out, seals.seal_bytes(sealed))
    path = out or runs_folder(runs) / seals.FOLDER / seals.file_name(sealed)
    content = {"seal": str(path), "sha256": seals.sha256(sealed), "study": plan.name, "time": sealed.time}
    show(content, sealing.instructions(sealed, path, rerun_command(plan) + folder_options(runs)), as_json)


def next_commands(plans: Sequence[Plan], runs: Path, where: str) -> str:
    planned = open_jobs(runs, plans)
    left = len(unfinished(planned, runs))
    names = " ".join(shlex.quote(plan.name) for plan in plans) + where
    table = f"ablate table {names}"
    if left:
        table += f" --interim   verdicts so far: {left} of {len(planned)} planned trials are still to do"
    return f"next    {table}\n        ablate plot {names}; ablate report {names}"


def warn_of(todo: Iterable[Job]) -> None:
    lines: list[str] = []
    for job in todo:
        lines += find(job.trainable).warnings(job.config)
    for line in dict.fromkeys(lines):
        print(f"ablate: {line}", file=sys.stderr)


def publisher(plans: list[Plan], arms: Sequence[str], runs: Path) -> Callable[[Job], str]:
    """Return a function of an ended trial, which writes and returns the tables of studies that are then complete."""
    open_trials = {plan.name: {job.id for job in jobs([plan], arms)} for plan in plans}

    def publish_ended(job: Job) -> str:
        tables = []
        for plan in plans:
            ids = open_trials[plan.name]
            if job.id in ids:
                ids.remove(job.id)
                if not ids:
                    tables.append(publish(load_plans(runs, [plan])[0], runs) + "\n")
        return "\n".join(tables)

    return publish_ended


def train(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE", help="Settings; all others are the recipe's.", callback=parameters.refuse_options
        ),
    ],
    recipe: parameters.RecipeName = None,
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
    job, before = one_trial(words, recipe, place.runs, data_dir)
    todo = reopen.trials_to_run(place.runs, [*before, job], place.code)
    ensure_trainable([job, *todo], place)
    warn_of([job])
    summary = train_here([*before, job], place, 1)
    state = store.trial(place.runs, job.id).state()
    folder = place.runs / "trials" / job.id
    if as_json and state.result is not None:
        show_json([store.read_json(folder / "result.json")])
    elif state.result is not None:
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in state.result.metrics.items())
        print(f"{folder}  {state.status}  {metrics}")
    finish(summary, len(todo), folder_options(runs))


def one_trial(words: list[str], recipe: str | None, runs: Path, data_dir: Path | None) -> tuple[Job, list[Job]]:
    request = parse_words(words, recipe)
    if request.margin is not None:
        raise ValueError(f"margin={request.margin}: applies to studies: give it to `ablate run`")
    if request.studies:
        word = request.studies[0]
        if is_setting(word):
            raise ValueError(f"'{word}' is not key=value: write {usual_name(word)}=VALUE")
        again = f"`ablate run {shlex.quote(word)}` trains a study"
        raise ValueError(f"'{word}' is not key=value: train takes one config; {again}")
    request.check_overrides()
    base = read_recipe(request.recipe or RECIPE)
    trainable = find(base.trainable)
    merged = trainable.merge(base.config, request.overrides)
    settings = trainable.resolve(data_folders(data_dir).resolve(merged))
    before = ancestors(base.trainable, settings, runs)
    job = Job(
        trial_id(trainable, settings),
        settings,
        "train",
        "",
        parents=parent_names(before),
        description=trainable.describe(settings),
        trainable=base.trainable,
        metric=trainable.metrics([settings])[0].name,
        selection_metric=trainable.selection_metric,
    )
    return job, before


def ancestors(name: str, settings: Settings, runs: Path) -> list[Job]:
    """Return the jobs in `runs` that must finish before a trial with these settings begins, oldest first.

    The first is the nearest finished ancestor with weights, or else the earliest ancestor. Finished ancestors without
    weights are trained again.
    """
    trainable = find(name)
    before: list[Job] = []
    while link := link_of(settings):
        text = f"{link}={settings[link]}"
        trial = store.trial(runs, settings[link])
        state = trial.state()
        if state.status not in GO_ON:
            raise ValueError(f"{text}: {state.status} in {runs}: name a finished trial or a file")
        parent = trainable.resolve(trial.config())
        trainable.check_trial(settings, parent)
        before.insert(0, Job(trial.id, parent, "train", "", trainable=name))
        if state.status == "finished" and state.weights.exists():
            break
        if trial_id(trainable, parent) != trial.id:
            raise ValueError(
                f"{text}: its weights are not in {runs}, and it cannot be trained again: its data "
                "or the code of its parts changed"
            )
        settings = parent
    else:
        trainable.check_trial(settings, None)
    return [replace(job, parents=parent_names(before[:position])) for position, job in enumerate(before)]


def link_of(settings: Settings) -> str:
    return next((link for link in LINKS if is_trial_id(settings.get(link))), "")


def parent_names(before: Sequence[Job]) -> dict[str, str]:
    """Return job id -> display name, nearest ancestor first. before: the ancestors' jobs, oldest first."""
    return {job.id: f"trial {job.id}" for job in reversed(before)}


def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE|DIR", help="A bundle, an export, or a run directory with imported trials.")
    ],
    sample: Annotated[int, parameters.option("N", "How many trials to train.", min=1)] = 3,
    seed: Annotated[
        int | None, parameters.option("N", "Which trials are chosen.", "0; of a bundle another one each time", min=0)
    ] = None,
    recipe: Annotated[
        str | None,
        parameters.recipe_option("The recipe of their code, once you have read it.", "none: only ViTs are trained"),
    ] = None,
    runs: Annotated[Path | None, parameters.runs_option("DIR", "Train in this folder, and keep it.")] = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    workers: parameters.Workers = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Train some trials of others anew, and compare.

    Chooses trials of a bundle, an export, or of those that were imported into a run directory. Compares weights and
    metrics, and names what differs between the machines. Of a bundle, every hash is checked first, and its seals are
    shown. The exit status is 1 if a trial comes out otherwise.

    Examples:

        ablate verify bundle.zip --sample 3
        ablate verify runs --sample 5 --seed 1 --json
    """
    refuse_csv(file)
    if not file.exists():
        raise ValueError(f"{file}: no such bundle, export or run directory")
    with ExitStack() as stack:
        source = file
        checked: list[str] = []
        drawn = seed or 0
        if bundle_files.is_bundle(file):
            bundle = bundle_files.read_bundle(file)
            source = stack.enter_context(bundle_files.temporary_results(bundle))
            checked = verification.checked_bundle(bundle, load_studies(source))
            if seed is None:  # who packed it could not know
                drawn = secrets.randbelow(10_000)
        studies = load_studies(source)
        if recipe is not None:
            code = {"trainable": read_recipe(recipe).trainable}
            studies = [replace(study, plan=study.plan.model_copy(update=code)) for study in studies]
        elif source.is_file():
            verification.refuse_code_of_others(file, studies)
        candidates = verification.reported_trials(source, studies)
        chosen = verification.sampled(candidates, sample, drawn)
        if not as_json:
            print(*checked, sep="\n", end="\n" if checked else "", flush=True)
        folder = runs or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ablate-verify-")))
        place = make_place(folder, data_dir, plugin)
        ensure_trainable([claim.job for claim in chosen], place)
        todo = verification.checked_jobs(chosen, place.runs)
        train_anew(todo, place, workers)
        results = [verification.verified(claim, place.runs) for claim in chosen]
        rounded = verification.rounding_jobs(todo, results)
        if rounded:
            other = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ablate-verify-")))
            train_anew(rounded, replace(place, runs=other), workers)
            results = verification.with_rounding(results, place.runs, other)
    content = {"source": str(file), "seed": drawn, "candidates": len(candidates), "trials": results}
    if checked:
        content["checked"] = checked
    show(content, verification.summary(file, results, len(candidates), drawn), as_json)
    fail_if(not all(result.is_equal for result in results))


def train_anew(todo: list[Job], place: Place, workers: int | None) -> None:
    if train_here(todo, place, workers).stopped:
        print("interrupted: no trial is compared", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def demo(runs: parameters.Runs = None, workers: parameters.Workers = None) -> None:
    """Train 9 tiny ViTs, and show a table and a report.

    Shows whether a ViT needs position embeddings. Trains three arms (none, 1d, 2d) with three seeds each, on the 1,797
    images of digits that come with scikit-learn. Takes one to two minutes on two idle cores, and needs no GPU and no
    network. Finished trials are not trained again.

    Examples:

        ablate demo
        ablate demo --runs /tmp/demo
    """
    place = make_place(runs, None, None)
    (plan,) = prepare_plans([DEMO], DEMO_RECIPE, place, DEMO_SEEDS, prune=False, data_dir=None)
    todo = jobs([plan])
    ensure_trainable(todo, place)
    left = [*unfinished(todo, place.runs)]
    if left:
        estimate.measure_missing([plan], place.runs, place.data_dir, lambda line: None)
    slots = make_slots(todo, workers)
    print(demo_announcement(plan, left, len(todo), len(slots), place.runs), flush=True)
    save_plan(place.runs, plan)
    table = GrowingTable(todo, place.runs)
    summary = train_here(todo, place, workers, table.show_end, table)
    finish(summary, len(todo), folder_options(runs), [plan])
    print(demo_results(plan, place.runs, folder_options(runs)))


def demo_announcement(plan: Plan, left: list[str], trials: int, at_once: int, runs: Path) -> str:
    """Return what is going to happen. left: ids of the trials to do. trials: the number of all."""
    takes = "a few seconds"
    if left:
        seconds = estimate.seconds([plan], runs, estimate.local_device([plan]))
        least = 10 * math.ceil(sum(seconds[trial_id] for trial_id in left) / at_once / 10)
        takes = f"{duration_text(least)} to {duration_text(SLOWER * least)}"
    planned = f"{amount_text(len(plan.arms), 'arm')} x {amount_text(len(plan.seeds), 'seed')}"
    return (
        f"{plan.question}\n"
        f"  trains     {len(left)} of {amount_text(trials, 'trial')}: {planned}\n"
        f"  takes      {takes}, by 50 steps of each arm just now; {amount_text(at_once, 'trial')} at a time\n"
        f"  installed  {installed_text()}\n"
        f"  writes     {runs}, a few MB; downloads nothing\n"
    )


def installed_text() -> str:
    packages = {package.name: package for package in metadata.distributions()}
    size = 0
    for package in packages.values():
        size += sum(file.size or 0 for file in package.files or ())
    versions = [f"{name} {packages[name].version}" for name in ("vit-ablations", "torch", "timm") if name in packages]
    return f"{', '.join(versions)}, Python {platform.python_version()}; {size / 1e9:.1f} GB with all they need"


def demo_results(plan: Plan, runs: Path, where: str) -> str:
    """Write a study's tables, figure and report, and return text about them. where: the --runs option for commands."""
    (study,) = load_plans(runs, [plan])
    table = publish(study, runs)
    page = runs / "report.html"
    report.write([study], page)
    figure = store.study_folder(runs, study.name) / "figures" / study_figure.file_name(study)
    return (
        f"{table}\n\nfigure  {figure}\nreport  {page}\n"
        "next    ablate list   the other studies and recipes\n"
        f"        ablate run position-embedding{where}   all 8 arms of the paper with 5 seeds\n"
        "        ablate init FOLDER   the same on your own images"
    )
