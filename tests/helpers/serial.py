"""Train in this process instead of in workers, which take seconds to import torch."""

import io
import math
from pathlib import Path

import pytest
from in_process import called

from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.execution.messages import Ended, job_line, read_event, read_job
from ablations.execution.pool import Pool
from ablations.execution.worker import Worker
from ablations.planning.jobs import Job
from ablations.reporting.cleaning import Keep


def serve_all(pool: Pool, *_: object) -> None:
    """Run a pool by one worker in this process."""
    while (trial := pool.next_trial(math.inf)) is not None:
        pool.settle(trial, served(pool.place.runs, trial.job, pool.place.keep_weights))


def served(runs: Path, job: Job, keep_weights: Keep = "all") -> Ended:
    """Train a job in this process; return the worker's last event."""
    channel = io.StringIO()
    Worker(Place(runs, None, keep_weights=keep_weights), channel).serve(read_job(job_line(job)))
    last = read_event(channel.getvalue().splitlines()[-1])
    assert isinstance(last, Ended)
    return last


def called_serially(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit status, standard output and error of `ablate WORDS`, its trials trained in this process."""
    with monkeypatch.context() as own:
        own.setattr(runner, "drive", serve_all)
        return called(own, *words)
