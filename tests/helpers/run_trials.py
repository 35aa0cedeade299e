"""Run trials in this process instead of in workers, which take seconds to import torch, and read their results."""

import io
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import closed_form
import pytest
from designs import design
from in_process import called

from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.execution.messages import Ended, job_line, read_event, read_job
from ablations.execution.pool import Pool
from ablations.execution.worker import Worker
from ablations.jobs import Job, Keep, jobs
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan
from ablations.trainables.trainable import VIT, find, trial_id
from results import store
from vitcore import Config


def serve_all(pool: Pool, *_: object) -> None:
    """Run a pool by one worker in this process."""
    while (trial := next(pool.ready_trials(math.inf), None)) is not None:
        pool.settle(trial, served_in(pool.place, trial.job))


def served(runs: Path, job: Job, keep_weights: Keep = "all") -> Ended:
    """Train a job in this process; return the worker's last event."""
    return served_in(Place(runs, None, keep_weights=keep_weights), job)


def served_in(place: Place, job: Job) -> Ended:
    """Train a job in this process; return the worker's last event."""
    channel = io.StringIO()
    Worker(replace(place, trainable=job.trainable), channel).serve(read_job(job_line(job)))
    last = read_event(channel.getvalue().splitlines()[-1])
    assert isinstance(last, Ended)
    return last


def called_serially(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit status, standard output and error of `ablate WORDS`, its trials trained in this process."""
    with monkeypatch.context() as own:
        own.setattr(runner, "drive", serve_all)
        return called(own, *words)


def planned_curves(
    folder: Path, study: str = closed_form.STUDY, recipe: str = closed_form.RECIPE, **overrides: object
) -> tuple[Path, list[Job]]:
    """Return a run directory with a plan of closed forms, and the plan's jobs."""
    runs = folder / "runs"
    runs.mkdir(parents=True)
    plan = prepare(design(folder, study, recipe, **overrides), runs, None, code="0" * 12)
    save_plan(runs, plan)
    return runs, jobs([plan])


def curve_job(**settings: object) -> Job:
    """Return the job of a closed form, which a worker trains if its PYTHONPATH has closed_form.HELPERS."""
    resolved = closed_form.CLOSED_FORM.resolve(settings)
    key = trial_id(closed_form.CLOSED_FORM, resolved)
    return Job(key, resolved, "an arm", "a study", trainable=closed_form.NAME)


def job_of(config: Config) -> Job:
    settings = config.model_dump()
    return Job(trial_id(find(VIT), settings), settings, "an arm", "a study")


class Quiet:
    """A display that records its messages."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.events: list[tuple[str, str]] = []

    def show_running(self, *_: object) -> None: ...

    show_compiling = show_idle = show_running

    def show_end(self, job: Job, end: Ended) -> None:
        self.events.append((job.arm, end.kind))

    def say(self, text: str) -> None:
        self.said.append(text)


def outcomes(runs: Path, jobs: list[Job]) -> dict[str, Any]:
    """Return the part of the trials' results that must not depend on interruptions: weights, metrics and curves."""
    found = {}
    for job in jobs:
        state = store.trial(runs, job.id).state()
        assert state.result, state
        curve = [line.content() | {"seconds": None} for line in store.read_metrics(state.attempt)]
        found[job.id] = (state.result.weights_sha256, state.result.metrics, curve)
    return found


def workers_of(pid: int, module: str = "ablations.execution.worker") -> list[int]:
    """Return the processes below `pid` that run a worker, or a rank of one."""
    command = ["pgrep", "-P", str(pid), "-f", module]
    return [int(line) for line in subprocess.run(command, capture_output=True, text=True).stdout.split()]
