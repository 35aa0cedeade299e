"""Checks that precede writing and training. A failed check raises a ValueError with one line on what to change."""

from ablations import machine
from ablations.cli.inputs.directories import ensure_publishable, ensure_writable
from ablations.execution import slots
from ablations.execution.launch import Place
from ablations.execution.retry import trials_to_run
from ablations.jobs import Job
from ablations.trainables.trainable import find
from results import store


def ensure_trainable(jobs: list[Job], place: Place) -> None:
    """Raise ValueError if the trials cannot be trained here, or an error of `ensure_data`. Creates missing folders."""
    todo = trials_to_run(place.runs, jobs, place.code)
    slots.check_gpus(todo, len(machine.gpus()), machine.nodes(), "here")
    for job in todo:
        find(job.trainable).check_machine(job.config, job.description)
    ensure_data(jobs, place)
    ensure_publishable(place.runs)
    if place.checkpoints:
        ensure_writable(place.checkpoints, "--checkpoints", mode=0o700)


def ensure_data(jobs: list[Job], place: Place) -> None:
    """Raise ValueError if data that the trials need are missing or damaged, and OSError if they cannot be read."""
    for trainable in sorted({job.trainable for job in jobs}):
        own = [job for job in jobs if job.trainable == trainable]
        left = [job.config for job in own if not store.trial(place.runs, job.id).state().is_over]
        find(trainable).check_data([job.config for job in own], left, place.data_dir)
