"""The command `ablate init`, which writes a recipe for a user's images, and its option --tune."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ablations import machine
from ablations.cli.inputs import guards, parameters
from ablations.cli.inputs.directories import data_folder, ensure_writable, folder_options, make_place
from ablations.cli.running import finish, train_here
from ablations.execution.launch import Place
from ablations.jobs import Job
from ablations.study.reading import read_recipe
from ablations.trainables.trainable import VIT, find, trial_id
from ablations.trainables.vit.image_folders import choices
from ablations.trainables.vit.image_folders.choices import Choice
from ablations.trainables.vit.image_folders.survey import Survey, survey
from results import store
from results.store.schemas import Settings

SHORTER = 4  # the steps of the recipe divided by the steps of a trial of --tune
LEAST_STEPS = 100
LONGEST_NAME = 100  # characters of the recipe's name, which is a part of longer names
METRIC = "val_accuracy"  # the test images are for the studies that use the recipe


def init(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="A folder with one folder of images per class, or a pack's folder."),
    ],
    out: Annotated[
        Path | None, parameters.out_option("FILE", "The file to write.", "NAME.yaml, named after the folder")
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Train a small grid of learning rates and widths first, and use the best.")
    ] = False,
    runs: parameters.Runs = None,
    workers: parameters.Workers = None,
) -> None:
    """Write a recipe for your own images.

    Looks at every image. Shows sizes, colors, unequal classes, copies in the training and the test set, and files that
    are broken or left out. Chooses image size, patch, model, steps, rates and margin by rules. Writes the reason beside
    each number, and prints the commands to run next.

    Examples:

        ablate init ~/photos
        ablate init ~/photos --out photos.yaml --tune
    """
    target = out or Path(
        (re.sub(r"[^A-Za-z0-9_-]+", "-", path.resolve().name).strip("-")[:LONGEST_NAME] or "recipe") + ".yaml"
    )
    if target.exists():
        raise ValueError(f"{target}: exists already; use --out to name another file")
    if target.suffix not in (".yaml", ".yml"):
        raise ValueError(f"--out {target}: a recipe is a .yaml file")
    if not target.parent.is_dir():
        raise ValueError(f"--out {target}: no such folder: {target.parent}")
    ensure_writable(target.parent, "--out")
    found = survey(path)
    print("\n".join(found.lines()), flush=True)
    device = choices.GPU if machine.gpus() else choices.CPU
    data_folder(None)
    data_dir = None if found.is_found_by_name() else path.parent
    where = folder_options(runs)
    measured = measure(found, device, make_place(runs, data_dir, None), workers, where) if tune else {}
    target.write_text(choices.render(found, device, measured, read_recipe("digits").arms))
    first = "remove the broken images named above, then " if found.broken else ""
    print(f"\nwrote {target}: each number has its reason beside it\n\n{first}{next_commands(target, runs, data_dir)}")


def next_commands(recipe: Path, runs: Path | None, data_dir: Path | None) -> str:
    """Return text that lists the commands to run next, each with its purpose.

    runs: the option --runs of `ablate init`, or None. data_dir: the --data-dir by which the commands find the pack, or
    None if they need none.
    """
    on, where = f"--recipe {shlex.quote(str(recipe))}", folder_options(runs, data_dir)
    commands = {
        f"plan demo {on}{where} --probe": "how long its arms take: positions none, 1d, 2d",
        f"run demo {on}{where}": "ends in a table with verdicts",
        f"report demo {on}{folder_options(runs)}": "the same as a page",
        f"run position-embedding {on}{where}": "all 8 arms; those three are not trained again",
    }
    width = max(map(len, commands))
    return "\n".join(["go on with:", *(f"  ablate {words:{width}}   # {why}" for words, why in commands.items())])


def measure(found: Survey, device: str, place: Place, workers: int | None, where: str) -> dict[str, Choice]:
    """Train a grid of learning rates and widths. Return key -> choice for the pair with the best validation accuracy.

    A tie goes to the pair that `ablate init` chooses without --tune, and so does the choice if all trials diverged.
    device: choices.CPU or choices.GPU. where: the --runs option for the advice on failed trials. Raises the errors of
    `ensure_trainable`, `train_here` and `finish`.
    """
    settings = {one.key: one.value for one in choices.config_choices(found, device)}
    jobs = tuning_jobs(settings | {"data": found.data})
    guards.ensure_trainable(jobs, place)
    print(f"\ntuning: {len(jobs)} trials of {jobs[0].config['steps']:,} steps, seed 0", flush=True)
    finish(train_here(jobs, place, workers), len(jobs), where)
    reached = {(job.config["lr"], job.config["width"]): accuracy(place.runs, job) for job in jobs}
    for (lr, width), value in reached.items():
        print(f"  lr={lr:g} width={width}: validation accuracy {100 * value:.1f}%")
    by_rule = (settings["lr"], settings["width"])
    lr, width = max(reached, key=lambda pair: (reached[pair], pair == by_rule))
    rates, widths = (sorted({pair[place] for pair in reached}) for place in (0, 1))
    measured = f"best of {len(reached)} pairs, {100 * reached[lr, width]:.1f}% validation accuracy, one seed"
    if not any(reached.values()):
        unmeasured = f"by rule, as all {len(reached)} trials of --tune diverged"
        return {"lr": choices.Choice("lr", lr, unmeasured), "width": choices.Choice("width", width, "as for lr")}
    return {
        "lr": choices.Choice("lr", lr, f"{measured}{edge_note(lr, rates)}"),
        "width": choices.Choice("width", width, f"as for lr{edge_note(width, widths)}"),
    }


def tuning_jobs(settings: Settings) -> list[Job]:
    """Return a job for each combination of three learning rates (half a decade apart) and two widths."""
    steps = max(LEAST_STEPS, settings["steps"] // SHORTER)
    rates = choices.learning_rates(settings["lr"])[1:4]
    pairs = itertools.product(rates, (settings["width"], 2 * settings["width"]))
    trainable = find(VIT)
    jobs = []
    for lr, width in pairs:
        resolved = trainable.resolve({**settings, "lr": lr, "width": width, "steps": steps})
        name = f"lr={lr:g},width={width}"
        job = Job(
            trial_id(trainable, resolved),
            resolved,
            name,
            "tune",
            description=trainable.describe(resolved),
            metric=METRIC,
            selection_metric=METRIC,
        )
        jobs.append(job)
    return jobs


def accuracy(runs: Path, job: Job) -> float:
    """Return a job's validation accuracy, or 0 if it diverged, which no other job falls below."""
    result = store.trial(runs, job.id).state().result
    return float(result.metrics.get(METRIC) or 0.0) if result else 0.0


def edge_note(value: float, tried: list[float]) -> str:
    return "; the edge of what was tried" if len(tried) > 2 and value in (tried[0], tried[-1]) else ""
