"""Run trials in this process instead of in workers, which take seconds to import torch, and read their results."""

import io
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
from in_process import called

from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.execution.messages import Ended, job_line, read_event, read_job
from ablations.execution.pool import Pool
from ablations.execution.worker import Worker
from ablations.jobs import Job, Keep
from results import store
from vitcore import Config
from vitcore.identity import trial_id


def serve_all(pool: Pool, *_: object) -> None:
    """Run a pool by one worker in this process."""
    while (trial := pool.next_trial(math.inf)) is not None:
        pool.settle(trial, served(pool.place.runs, trial.job, pool.place.keep_weights))


def served(runs: Path, job: Job, keep_weights: Keep = "all") -> Ended:
    """Train a job in this process; return the worker's last event."""
    channel = io.StringIO()
    Worker(Place(runs, None, keep_weights=keep_weights, trainable=job.trainable), channel).serve(
        read_job(job_line(job))
    )
    last = read_event(channel.getvalue().splitlines()[-1])
    assert isinstance(last, Ended)
    return last


def called_serially(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit status, standard output and error of `ablate WORDS`, its trials trained in this process."""
    with monkeypatch.context() as own:
        own.setattr(runner, "drive", serve_all)
        return called(own, *words)


def job_of(config: Config) -> Job:
    return Job(trial_id(config), config.model_dump(), "an arm", "a study")


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
