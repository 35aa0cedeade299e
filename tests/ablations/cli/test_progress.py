"""The display of a run: what each worker does, one estimate of the time, and a table that grows."""

import io
import re
from pathlib import Path

import pytest
import synthetic
from rich.console import Console

from ablations.execution.messages import Ended, Progress
from ablations.planning.jobs import Job, jobs
from ablations.reporting.progress import GrowingTable, Live
from results import store


def test_a_trial_that_compiles_says_so_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    job, file = Job("id", {"seed": 0, "steps": 9}, "arm", ""), io.StringIO()
    Live(Console(file=file), 2).show_compiling(0, job)
    assert "arm seed 0: compiling" in file.getvalue()
    now, display = 100.0, Live(Console(file=io.StringIO(), force_terminal=True, width=120), 2)
    monkeypatch.setattr(display.progress, "get_time", lambda: now)

    def drawn() -> str:
        with display.console.capture() as capture:
            display.console.print(display.progress.get_renderable())
        return capture.get()

    display.show_running(0, job, None)
    now = 200.0
    display.show_running(0, job, None)  # the next trial
    display.show_compiling(0, job)
    now = 242.0
    assert re.search(r"arm seed 0 .*compiling.*0:00:42", drawn())
    display.show_running(0, job, Progress(1))
    assert re.search(r"arm seed 0 .*step 1/9", drawn())
    assert "compiling" not in drawn()


def test_one_estimate_of_the_time_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    file = io.StringIO()
    display = Live(Console(file=file), 4, workers=2)
    job = Job("id", {"seed": 0, "steps": 100}, "arm", "")
    reports = (None, 100.0), (Progress(1), 103.0), (Progress(11), 105.0), (Progress(21), 107.0)
    for progress, now in reports:  # noqa: B007 - the clock reads it
        display.show_running(0, job, progress)
    (line,) = file.getvalue().splitlines()
    assert "first step after 3.0 s" in line
    assert line.endswith("200 ms per step: 0:23 per trial, about 0:44 left")  # (4 - 0.1) * 22.8 s / 2
    assert display.time_left() == ", about 0:43 left"


def test_the_chosen_metric_is_shown_of_each_trial() -> None:
    end, file = Ended("finished", metrics={"test_accuracy": 0.9, "val_accuracy": 0.4}), io.StringIO()
    Live(Console(file=file), 1, metric="val_accuracy").show_end(Job("id", {"seed": 0}, "arm", ""), end)
    assert file.getvalue() == "[1/1] arm seed 0: val accuracy 40.0%, 0.0 s\n"


def test_evaluations_do_not_count_as_steps_and_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: steps of 2 s, evaluations of 60 s after steps 1 and 2, and 30 times as long as training in all."""
    now, file = 0.0, io.StringIO()
    monkeypatch.setattr("time.monotonic", lambda: now)
    display = Live(Console(file=file, force_terminal=True, width=120), 1)
    job = Job("id", {"seed": 0, "steps": 20}, "arm", "", evaluation=30.0)
    display.show_running(0, job, None)
    reports = (5.0, Progress(1, None, True)), (65.0, Progress(1, 0.1)), (67.0, Progress(2, 0.1, True))
    for now, progress in reports:  # noqa: B007 - the clock reads it
        display.show_running(0, job, progress)
    assert "then 2.0 s per step: 19:43 per trial, 19:00 of it for evaluations" in file.getvalue()
    with display.console.capture() as capture:
        display.console.print(display.progress.get_renderable())
    assert "step 2/20  evaluating  accuracy 10.0%" in capture.get()


def test_the_table_fills_in_as_trials_end(tmp_path: Path) -> None:
    synthetic.write(tmp_path, synthetic.position(seeds=2))
    (plan,) = store.read_plans(tmp_path).all()
    asked = jobs([plan])
    table = GrowingTable([*asked, Job("0" * 12, asked[0].config | {"seed": 9}, asked[0].arm, "")], tmp_path)
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    display = Live(console, len(asked), table)
    for job in asked:
        table.show_end(job)
    with console.capture() as capture:
        console.print(display.progress.get_renderable())
    line = next(line for line in capture.get().splitlines() if asked[0].arm in line)
    result = store.trial(tmp_path, asked[0].id).state().result
    assert f"{100 * result.metrics['test_accuracy']:.2f}" in line
    assert "seed 9" in capture.get()
