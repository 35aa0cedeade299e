"""The command `ablate demo`, which trains a small study in one to two minutes."""

import math
import platform
from importlib import metadata
from pathlib import Path

from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import folder_options, make_place
from ablations.cli.inputs.preparation import ensure_trainable, prepare_plans
from ablations.cli.work import finish, train_here
from ablations.execution.progress import GrowingTable
from ablations.execution.slots import make_slots
from ablations.jobs import jobs
from ablations.planning import estimate
from ablations.planning.saved_plans import save_plan
from ablations.planning.step_times import measure_missing
from results import report, store
from results.figures import study_figure
from results.report import publish
from results.store.schemas import Plan
from results.study_results import load_plans
from results.units import amount_text, duration_text

STUDY, RECIPE, SEEDS = "demo", "digits", 3
SLOWER = 1.6  # trials that run at once slow each other down, and the report takes seconds


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
    (plan,) = prepare_plans([STUDY], RECIPE, place, SEEDS, prune=False, data_dir=None)
    todo = jobs([plan])
    ensure_trainable(todo, place)
    left = [job.id for job in todo if not store.trial(place.runs, job.id).state().is_over]
    if left:
        measure_missing([plan], place.runs, place.data_dir, lambda line: None)
    slots = make_slots(todo, workers)
    print(announcement(plan, left, len(todo), len(slots), place.runs), flush=True)
    save_plan(place.runs, plan)
    table = GrowingTable(todo, place.runs)
    summary = train_here(todo, place, workers, table.show_end, table)
    finish(summary, len(todo), folder_options(runs), [plan])
    print(results_text(plan, place.runs, folder_options(runs)))


def announcement(plan: Plan, left: list[str], trials: int, at_once: int, runs: Path) -> str:
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


def results_text(plan: Plan, runs: Path, where: str) -> str:
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
