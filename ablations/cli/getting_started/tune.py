"""The option `ablate init --tune`, which trains a grid of learning rates and widths before it writes a recipe."""

import itertools
from pathlib import Path

from ablations.cli.inputs import guards
from ablations.cli.inputs.directories import make_place
from ablations.cli.running import finish, train_here
from ablations.planning.jobs import Job
from ablations.study.init import recipe as init_recipe
from ablations.study.init.recipe import Choice
from ablations.study.init.survey import Survey
from results import store
from results.store.schemas import Settings
from vitcore.analysis.cost import measure as model_cost
from vitcore.config import Config
from vitcore.identity import trial_id

SHORTER = 4  # divides the steps of the recipe to give the steps of a trial
LEAST_STEPS = 100


def measure(found: Survey, device: str, runs: Path | None, workers: int | None) -> dict[str, Choice]:
    """Train a grid of learning rates and widths, and return the pair with the best validation accuracy.

    A tie goes to the pair that `ablate init` chooses without --tune. device: the kind that the recipe is for.
    """
    settings = {one.key: one.value for one in init_recipe.choices(found, device)}
    jobs = grid(settings | {"data": found.data})
    place = make_place(runs, None, None)
    guards.ensure_data(jobs, place)
    guards.ensure_fits(jobs)
    guards.ensure_writable(place.runs)
    print(f"\ntuning: {len(jobs)} trials of {jobs[0].config['steps']:,} steps, seed 0", flush=True)
    finish(train_here(jobs, place, workers), len(jobs))
    reached = {(job.config["lr"], job.config["width"]): accuracy(place.runs, job) for job in jobs}
    for (lr, width), value in reached.items():
        print(f"  lr={lr:g} width={width}: validation accuracy {100 * value:.1f}%")
    by_rule = (settings["lr"], settings["width"])
    lr, width = max(reached, key=lambda pair: (reached[pair], pair == by_rule))
    rates, widths = (sorted({pair[place] for pair in reached}) for place in (0, 1))
    measured = f"best of {len(reached)} pairs, {100 * reached[lr, width]:.1f}% validation accuracy, one seed"
    return {
        "lr": Choice("lr", lr, f"{measured}{at_edge(lr, rates)}"),
        "width": Choice("width", width, f"as for lr{at_edge(width, widths)}"),
    }


def grid(settings: Settings) -> list[Job]:
    """Return a job for each pair of three learning rates, half a decade apart, and two widths."""
    steps = max(LEAST_STEPS, settings["steps"] // SHORTER)
    rates = init_recipe.rates(settings["lr"])[1:4]
    pairs = itertools.product(rates, (settings["width"], 2 * settings["width"]))
    jobs = []
    for lr, width in pairs:
        config = Config(**{**settings, "lr": lr, "width": width, "steps": steps})
        name = f"lr={lr:g},width={width}"
        jobs.append(Job(trial_id(config), config.model_dump(), name, "tune", cost=model_cost(config)))
    return jobs


def accuracy(runs: Path, job: Job) -> float:
    result = store.trial(runs, job.id).state().result
    return float(result.metrics.get("val_accuracy") or 0.0) if result else 0.0


def at_edge(value: float, tried: list[float]) -> str:
    """Return a note if the best value is the smallest or the largest of at least three tried values."""
    return "; the edge of what was tried" if len(tried) > 2 and value in (tried[0], tried[-1]) else ""
