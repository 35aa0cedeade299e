"""The results of a run's trials, its workers, and a display that records its messages."""

import subprocess
from pathlib import Path
from typing import Any

from ablations.execution.messages import Ended
from ablations.planning.jobs import Job
from results import store
from vitcore import Config
from vitcore.identity import trial_id


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


def workers_of(pid: int) -> list[int]:
    """Return the worker processes below `pid`."""
    command = ["pgrep", "-P", str(pid), "-f", "ablations.execution.worker"]
    return [int(line) for line in subprocess.run(command, capture_output=True, text=True).stdout.split()]
