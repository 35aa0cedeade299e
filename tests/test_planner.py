"""Plans made by a worker that waits: the same plans, the same errors, and nothing where it is gone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_prepare import SCRIPT, design

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


def test_a_worker_makes_the_plan_that_is_made_here(tmp_path: Path) -> None:
    """A new one, one on top of it, and a pruned one; the worker waits for trials after that."""
    place, runs = Place(tmp_path, None), tmp_path / "runs"
    with launch.ahead(place, ["new"], 1) as ahead:
        by_worker = planner.by(ahead, place)
        assert by_worker != here
        for seeds, prune, change in ((2, False, {}), (3, False, {}), (1, True, {"label_smoothing": 0.2})):
            wanted = design(tmp_path, **change)
            made = prepare(wanted, runs, seeds, prune, planner=by_worker)
            expected = prepare(wanted, runs, seeds, prune)
            assert made.pop("pruned", "") == "" or prune
            assert made == as_sent({key: value for key, value in expected.items() if key != "pruned"})
            write_plan(runs, made)
        _, process = ahead.waiting[0]
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "ready"


def test_what_cannot_be_planned_is_said_as_here(tmp_path: Path) -> None:
    """The error of the worker is that of the command."""
    place, wrong = Place(tmp_path, None), design(tmp_path, patch=3)
    with launch.ahead(place, ["new"], 1) as ahead:
        with pytest.raises(ValueError, match="patch=3") as there:
            prepare(wrong, tmp_path, 1, planner=planner.by(ahead, place))
        with pytest.raises(ValueError, match="patch=3") as found:
            prepare(wrong, tmp_path, 1)
    assert str(there.value) == str(found.value)


@pytest.mark.parametrize(
    "program", ["", 'import sys; sys.stdin.readline(); print(\'{"event": "planned", "pl\', end=\'\')', "print('{}')"]
)
def test_what_no_worker_makes_is_planned_here(tmp_path: Path, program: str) -> None:
    """One that ends at once, one that is killed in the middle of its answer, one that answers something else."""
    process = launch.Start([sys.executable, "-c", program], {}).process()
    ahead = Ahead([(launch.Start([], {}), process)])
    made = prepare(design(tmp_path), tmp_path, 1, planner=planner.by(ahead, Place(tmp_path, None)))
    process.communicate()
    assert made == prepare(design(tmp_path), tmp_path, 1)


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
    """What a plugin prints as it is loaded would fill a pipe that nobody reads yet."""
    process = subprocess.Popen(["true"], text=True)
    ahead = Ahead([(launch.Start([], {}), process)])
    assert planner.by(Ahead(), Place(tmp_path, None)) == here
    assert planner.by(ahead, Place(tmp_path, None, (tmp_path / "own.py",))) == here
    assert planner.by(ahead, Place(tmp_path, None)) != here
    process.wait()


def test_run_of_a_new_study_loads_no_torch(tmp_path: Path) -> None:
    """Its workers do: the process that only waits for them takes no time from them."""
    design(tmp_path)
    words = ["run", str(tmp_path / "s.yaml"), "--recipe", str(tmp_path / "r.yaml"), "--runs", str(tmp_path / "runs")]
    told = subprocess.run([sys.executable, "-c", SCRIPT, *words, "--jobs", "1"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-1] == "False"
    assert len(list(store.plans(tmp_path / "runs"))) == 1
