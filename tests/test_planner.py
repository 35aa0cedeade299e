"""Plans made by a worker that waits: the same plans, the same errors, and nothing where it is gone."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_prepare import SCRIPT, STUDY, design, write_images

from ablations import launch, planner
from ablations.jobs import write as write_plan
from ablations.launch import Ahead, Place
from ablations.prepare import here, prepare
from ablations.study import Design, packaged, read_recipe, read_study
from results import store


def as_sent(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("study", packaged("studies"))
def test_a_design_comes_to_a_worker_as_it_was(study: str) -> None:
    """On every recipe that it fits, whatever its YAML says."""
    for recipe in packaged("recipes"):
        try:
            whole = Design(read_study(study), read_recipe(recipe), {"lr": 1e-3, "steps": 40})
        except ValueError:  # a recipe without the stages of the study
            continue
        assert planner.received(as_sent(planner.sent(whole))) == whole


def test_a_worker_makes_the_plan_that_is_made_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one, one on top of it, and a pruned one, whatever it says of errors; it waits for trials after that."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # more on standard error than a pipe holds
    place, runs, both = Place(tmp_path, None), tmp_path / "runs", "[1d, none]"
    begun: list[None] = []
    with launch.ahead(place, ["new"], 1) as ahead:
        [process] = ahead.processes()
        planned = planner.by(ahead, place, partial(begun.append, None))
        for seeds, prune, positions in ((2, False, both), (3, False, both), (1, True, "[1d, 2d]")):
            wanted = design(tmp_path, STUDY.replace(both, positions))
            made = prepare(wanted, runs, seeds, prune, planner=planned)
            expected = prepare(wanted, runs, seeds, prune)
            write_plan(runs, made)
            assert bool(made.pop("pruned", "")) == bool(expected.pop("pruned", "")) == prune
            assert made == as_sent(expected)
        assert ahead.processes() == [process]
        assert len(begun) == 3
        assert json.loads(planner.line(process, time.monotonic() + 60)) == {"event": "ready"}


def test_a_plan_waits_for_no_worker_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is ready makes it; here it is made where none comes in time."""
    place, made = Place(tmp_path, None), prepare(design(tmp_path), tmp_path, 1)
    with launch.ahead(place, ["new"], 2) as ahead:
        hanging, other = ahead.processes()
        os.kill(hanging.pid, signal.SIGSTOP)
        assert prepare(design(tmp_path), tmp_path, 1, planner=planner.by(ahead, place)) == made
        assert ahead.processes() == [hanging, other]
        os.kill(other.pid, signal.SIGSTOP)
        monkeypatch.setattr(planner, "PATIENCE", 0.1)
        assert prepare(design(tmp_path), tmp_path, 1, planner=planner.by(ahead, place)) == made


def test_what_cannot_be_planned_is_said_as_here(tmp_path: Path) -> None:
    """The error of the worker is that of the command."""
    place, wrong = Place(tmp_path, None), design(tmp_path, patch=3)
    with launch.ahead(place, ["new"], 1) as ahead:
        with pytest.raises(ValueError, match="patch=3") as there:
            prepare(wrong, tmp_path, 1, planner=planner.by(ahead, place))
        with pytest.raises(ValueError, match="patch=3") as found:
            prepare(wrong, tmp_path, 1)
    assert str(there.value) == str(found.value)


READY = """print('{"event": "ready"}', flush=True); input();"""


@pytest.mark.parametrize(
    "program",
    [
        "",
        "print('hello')",
        "print('{}')",
        f"""{READY} print('{{"event": "planned", "pl', end='')""",
        f"""{READY} print('{{"event": "finished"}}', flush=True); input()""",
    ],
)
def test_what_no_worker_makes_is_planned_here(tmp_path: Path, program: str) -> None:
    """One that ends at once, says anything else, is killed in the middle of its answer: none of them is left."""
    process = launch.Start([sys.executable, "-c", program], {}).process()
    ahead = Ahead([(launch.Start([], {}), process)])
    made = prepare(design(tmp_path), tmp_path, 1, planner=planner.by(ahead, Place(tmp_path, None)))
    assert made == prepare(design(tmp_path), tmp_path, 1)
    assert process.poll() is not None
    assert not ahead.waiting


def test_a_worker_that_fails_at_it_leaves_it_to_the_process_that_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error has no line for people; that process comes to the same one, and shows where."""

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(planner, "here", broken)
    wanted = {"design": planner.sent(design(tmp_path)), "seeds": [0], "old": None, "prune": False}
    assert planner.answer(as_sent(wanted)) == {}


def test_with_plugins_and_without_workers_plans_are_made_here(tmp_path: Path) -> None:
    """A plugin has loaded torch here before anything is planned."""
    process = subprocess.Popen(["true"], text=True)
    ahead = Ahead([(launch.Start([], {}), process)])
    assert planner.by(Ahead(), Place(tmp_path, None)) == here
    assert planner.by(ahead, Place(tmp_path, None, (tmp_path / "own.py",))) == here
    assert planner.by(ahead, Place(tmp_path, None)) != here
    process.wait()


@pytest.mark.parametrize("data", ["mnist", "imagefolder:images"])
def test_images_that_are_read_here_are_planned_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    """torchvision's need torch here anyhow; a worker would read a folder once more, and train on it as it was then."""
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "images", 0)
    ahead = Ahead([(launch.Start([], {}), subprocess.Popen(["true"], text=True))])
    wanted = design(tmp_path, data=data)
    assert prepare(wanted, tmp_path, 1, planner=partial(planner.there, ahead)) == prepare(wanted, tmp_path, 1)
    [process] = ahead.processes()
    process.wait()


def test_a_worker_that_reads_no_more_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order may be larger than a pipe."""
    monkeypatch.setattr(planner, "PATIENCE", 1.0)
    program = """print('{"event": "ready"}', flush=True); import time; time.sleep(600)"""
    process = launch.Start([sys.executable, "-c", program], {}).process()
    ahead, old = Ahead([(launch.Start([], {}), process)]), prepare(design(tmp_path), tmp_path, 1)
    large = old | {"found": 300_000 * "x"}
    made = planner.there(ahead, design(tmp_path), [0], large, False)
    assert made == here(design(tmp_path), [0], large, False)
    assert process.poll() == -signal.SIGKILL


def test_run_of_a_new_study_loads_no_torch(tmp_path: Path) -> None:
    """Its workers do: the process that only waits for them takes no time from them."""
    design(tmp_path)
    words = ["run", str(tmp_path / "s.yaml"), "--recipe", str(tmp_path / "r.yaml"), "--runs", str(tmp_path / "runs")]
    told = subprocess.run([sys.executable, "-c", SCRIPT, *words, "--jobs", "1"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-1] == "False"
    assert len(list(store.plans(tmp_path / "runs"))) == 1
