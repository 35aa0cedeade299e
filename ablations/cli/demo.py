"""The command `ablate demo`, which trains a small study in one to two minutes."""

import math
import platform
from importlib import metadata
from pathlib import Path

from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import folder_options, make_place
from ablations.cli.inputs.guards import ensure_trainable
from ablations.cli.inputs.preparation import prepare_plans
from ablations.cli.progress import GrowingTable
from ablations.cli.running import finish, train_here
from ablations.execution.launch import Place
from ablations.execution.slots import make_slots
from ablations.jobs import Job, jobs
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
    if unfinished(todo, place):
        measure_missing([plan], place.runs, place.data_dir, lambda line: None)
    print(announcement(plan, todo, place, workers), flush=True)
    save_plan(place.runs, plan)
    table = GrowingTable(todo, place.runs)
    summary = train_here(todo, place, workers, table.show_end, table)
    finish(summary, len(todo), folder_options(runs), [plan])
    print(results_text(plan, place.runs, folder_options(runs)))


def unfinished(todo: list[Job], place: Place) -> list[str]:
    """Return the ids of the trials that are not over."""
    return [job.id for job in todo if not store.trial(place.runs, job.id).state().is_over]


def announcement(plan: Plan, todo: list[Job], place: Place, workers: int | None) -> str:
    left = unfinished(todo, place)
    seconds = estimate.seconds([plan], place.runs, estimate.local_device([plan]))
    places = len(make_slots(todo, workers))
    found = {one.name: one for one in metadata.distributions()}
    named = [f"{name} {found[name].version}" for name in ("vit-ablations", "torch", "timm") if name in found]
    size = sum(file.size or 0 for one in found.values() for file in one.files or ())
    installed = f"{', '.join([*named, f'Python {platform.python_version()}'])}; {size / 1e9:.1f} GB with all they need"
    least = 10 * math.ceil(sum(seconds[key] for key in left) / places / 10)
    takes = f"{duration_text(least)} to {duration_text(SLOWER * least)}" if left else "a few seconds"
    planned = f"{amount_text(len(plan.arms), 'arm')} x {amount_text(len(plan.seeds), 'seed')}"
    return (
        f"{plan.question}\n"
        f"  trains     {len(left)} of {amount_text(len(todo), 'trial')}: {planned}\n"
        f"  takes      {takes}, by 50 steps of each arm just now; {amount_text(places, 'trial')} at a time\n"
        f"  installed  {installed}\n"
        f"  writes     {place.runs}, a few MB; downloads nothing\n"
    )


def results_text(plan: Plan, runs: Path, where: str) -> str:
    """Write a study's tables, figure and report, and return text about them. where: the --runs option for commands."""
    (study,) = load_plans(runs, [plan])
    table, page = publish(study, runs), runs / "report.html"
    report.write([study], page)
    figure = store.study_folder(runs, study.name) / "figures" / study_figure.file_name(study)
    return (
        f"{table}\n\nfigure  {figure}\nreport  {page}\n"
        "next    ablate list   the other studies and recipes\n"
        f"        ablate run position-embedding{where}   all 8 arms of the paper with 5 seeds\n"
        "        ablate init FOLDER   the same on your own images"
    )
