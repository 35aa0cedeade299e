"""The pool of workers as one worker in this process: seconds sooner than processes that import torch."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import called

from ablations.execution import runner
from ablations.execution.launch import Place, worker_settings
from ablations.execution.messages import Ended, job_line, read_event, read_job
from ablations.execution.worker import Worker
from ablations.planning.jobs import Job


class Serial:
    """A pool of one worker, in this process."""

    def __init__(self, jobs: list[Job], place: Place, slots: object, display: runner.Display) -> None:
        self.jobs, self.place, self.display = jobs, place, display

    def run(self, on_over: Callable[[Job], None], deadline: float, called_off: object) -> runner.RunSummary:
        tally = runner.RunSummary()
        for job in self.jobs:
            last = served(self.place.runs, job)
            if last.kind == "failed":
                tally.failed[job.id] = last.cause
            else:
                tally.done.append(job.id)
            self.display.over(job, last)
            on_over(job)
        return tally


def served(runs: Path, job: Job) -> Ended:
    """The last event of a worker that was handed the job."""
    channel = io.StringIO()
    Worker(worker_settings(Place(runs, None), on_cpu=True), channel).serve(read_job(job_line(job)))
    last = read_event(channel.getvalue().splitlines()[-1])
    assert isinstance(last, Ended)
    return last


def called_serially(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    """Exit status, standard output and error of `ablate WORDS`, its trials trained in this process."""
    with monkeypatch.context() as own:
        own.setattr(runner, "Pool", Serial)
        return called(own, *words)
