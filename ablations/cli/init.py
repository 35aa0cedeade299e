"""The command `ablate init`, which writes a recipe for a user's images or script, and its option --tune."""

import itertools
import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ablations import machine
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import data_folders, ensure_writable, folder_options, make_place
from ablations.cli.inputs.preparation import ensure_trainable
from ablations.cli.work import finish, train_here
from ablations.execution.launch import Place
from ablations.jobs import Job
from ablations.study.reading import read_recipe
from ablations.trainables.command import template
from ablations.trainables.command.draft import Draft, script_name
from ablations.trainables.trainable import VIT, find, trial_id
from ablations.trainables.vit.image_folders import choices
from ablations.trainables.vit.image_folders.choices import Choice
from ablations.trainables.vit.image_folders.survey import Survey, survey
from commonfloor.files import write_bytes
from results import store
from results.store.schemas.base import Settings

SHORTER = 4  # the steps of the recipe divided by the steps of a trial of --tune
LEAST_STEPS = 100
LONGEST_NAME = 100  # characters of the recipe's name, which is a part of longer names
METRIC = "val_accuracy"  # the test images are for the studies that use the recipe


def init(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="A folder with one folder of images per class, or a pack's folder."),
    ] = None,
    out: Annotated[
        Path | None, parameters.out_option("FILE", "The file to write.", "NAME.yaml, named after the folder or script")
    ] = None,
    train: Annotated[str | None, parameters.option("COMMAND", "A command that trains, as 'python train.py'.")] = None,
    metric: Annotated[
        list[str] | None, parameters.option("NAME", "What the command of --train reports. Repeatable.")
    ] = None,
    tune: Annotated[
        bool, parameters.flag("--tune", "Train a small grid of learning rates and widths first, and use the best.")
    ] = False,
    runs: parameters.Runs = None,
    workers: parameters.Workers = None,
) -> None:
    """Write a recipe for your own images or script.

    Looks at every image. Shows sizes, colors, unequal classes, copies in the training and the test set, and files that
    are broken or left out. Chooses image size, patch, model, steps, rates and margin by rules. Writes the reason beside
    each number, and prints the commands to run next.

    With --train, runs the command with --help instead, and reads its options: of argparse, click, typer and Hydra.
    Writes a recipe with each setting, its default, choices and help. A setting whose default --help does not print
    is commented out.

    Examples:

        ablate init ~/photos
        ablate init ~/photos --out photos.yaml --tune
        ablate init --train "python train.py" --metric accuracy
    """
    if (path is None) == (train is None):
        raise ValueError("init: a folder of images, or --train COMMAND")
    if train is not None:
        write_for_command(train, metric or [], out, tune)
        return
    assert path is not None
    if metric:
        raise ValueError("--metric: is for --train")
    target = checked_target(out, path.resolve().name)
    images = survey(path)
    print("\n".join(images.lines()), flush=True)
    device = choices.GPU if machine.gpus() else choices.CPU
    data_folders().use()
    data_dir = None if images.is_found_by_name() else path.parent
    measured: dict[str, Choice] = {}
    if tune:
        measured = measure(images, device, make_place(runs, data_dir, None), workers, folder_options(runs))
    write_bytes(target, choices.render(images, device, measured, read_recipe("digits").arms).encode())
    first = "remove the broken images named above, then " if images.broken else ""
    print(f"\nwrote {target}: each number has its reason beside it\n\n{first}{next_commands(target, runs, data_dir)}")


def checked_target(out: Path | None, name: str) -> Path:
    """Return the file to write. name: what it is named after without --out. Raises ValueError if it cannot be new."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:LONGEST_NAME]
    target = out or Path(f"{stem or 'recipe'}.yaml")
    if target.exists():
        raise ValueError(f"{target}: exists already; use --out to name another file")
    if target.suffix not in (".yaml", ".yml"):
        raise ValueError(f"--out {target}: a recipe is a .yaml file")
    if not target.parent.is_dir():
        raise ValueError(f"--out {target}: no such folder: {target.parent}")
    ensure_writable(target.parent, "--out")
    return target


def write_for_command(train: str, metrics: list[str], out: Path | None, tune: bool) -> None:
    if tune:
        raise ValueError("--tune: is for images")
    target = checked_target(out, script_name(template.split("--train", train)).removesuffix(".py"))
    recipe = Draft(train, metrics, os.path.relpath(Path.cwd(), target.parent))
    write_bytes(target, recipe.text().encode())
    text = f"wrote {target}: {len(recipe.known)} settings with their defaults"
    others = len(recipe.settings) - len(recipe.known)
    if others:
        text += f", {others} commented out"
    print(text)
    if recipe.unfilled:
        print(f"fill in: {', '.join(recipe.unfilled)}")
    on = shlex.quote(str(target))
    print(f"go on with:\n  ablate check {on}\n  ablate plan STUDY.yaml --recipe {on}")


def next_commands(recipe: Path, runs: Path | None, data_dir: Path | None) -> str:
    on = f"--recipe {shlex.quote(str(recipe))}"
    where = folder_options(runs, data_dir)
    commands = {
        f"plan demo {on}{where} --probe": "how long its arms take: positions none, 1d, 2d",
        f"run demo {on}{where}": "ends in a table with verdicts",
        f"report demo {on}{folder_options(runs)}": "the same as a page",
        f"run position-embedding {on}{where}": "all 8 arms; those three are not trained again",
    }
    width = max(map(len, commands))
    return "\n".join(["go on with:", *(f"  ablate {words:{width}}   # {why}" for words, why in commands.items())])


def measure(images: Survey, device: str, place: Place, workers: int | None, where: str) -> dict[str, Choice]:
    """Train a grid of learning rates and widths; return key -> choice for the best pair by validation accuracy."""
    settings = {choice.key: choice.value for choice in choices.config_choices(images, device)}
    jobs = tuning_jobs(settings | {"data": images.data})
    ensure_trainable(jobs, place)
    print(f"\ntuning: {len(jobs)} trials of {jobs[0].config['steps']:,} steps, seed 0", flush=True)
    finish(train_here(jobs, place, workers), len(jobs), where)
    accuracies = {(job.config["lr"], job.config["width"]): accuracy(place.runs, job) for job in jobs}
    for (lr, width), value in accuracies.items():
        print(f"  lr={lr:g} width={width}: validation accuracy {100 * value:.1f}%")
    by_rule = (settings["lr"], settings["width"])
    lr, width = max(accuracies, key=lambda pair: (accuracies[pair], pair == by_rule))
    best = accuracies[lr, width]
    reason = f"best of {len(jobs)} pairs, {100 * best:.1f}% validation accuracy, one seed"
    rates = [rate for rate, _ in accuracies]
    if best == 0:
        reason = f"by rule, as all {len(jobs)} trials of --tune diverged"
    elif lr in (min(rates), max(rates)):
        reason += "; the edge of what was tried"
    return {"lr": Choice("lr", lr, reason), "width": Choice("width", width, "as for lr")}


def tuning_jobs(settings: Settings) -> list[Job]:
    """Return a job for each combination of three learning rates (half a decade apart) and two widths."""
    steps = max(LEAST_STEPS, settings["steps"] // SHORTER)
    rates = choices.learning_rates(settings["lr"])[1:4]
    pairs = itertools.product(rates, (settings["width"], 2 * settings["width"]))
    trainable = find(VIT)
    jobs = []
    for lr, width in pairs:
        resolved = trainable.resolve({**settings, "lr": lr, "width": width, "steps": steps})
        key = trial_id(trainable, resolved)
        name = f"lr={lr:g},width={width}"
        described = trainable.describe(resolved)
        jobs.append(Job(key, resolved, name, "tune", description=described, metric=METRIC, selection_metric=METRIC))
    return jobs


def accuracy(runs: Path, job: Job) -> float:
    """Return a job's validation accuracy, or 0 if it diverged, which no other job falls below."""
    result = store.trial(runs, job.id).state().result
    return float(result.metrics.get(METRIC) or 0.0) if result else 0.0
