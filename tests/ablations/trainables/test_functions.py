"""Functions of users are planned, trained, resumed and compared as our own trials are."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from commands import ONE_ARM, STUDY, planned, served_until
from designs import write
from run_trials import Quiet, serve_all, served

from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.jobs import jobs
from ablations.planning import overview
from ablations.planning.estimate import Device
from ablations.study.reading import read_recipe
from results import store
from results.study_results import load_plans
from results.tables import study_table

RECIPE = "{description: d, train: 'train.py:train', metrics: {score: {better: higher}}, seeds: 3}"
KEYWORDS = "def train(run, lr=0.5, depth: int = 2): return {'score': lr + run.seed / 1000}"
DATACLASS = """
from dataclasses import dataclass
@dataclass
class Settings:
    lr: float = 0.5
    depth: int = 2
def train(settings: Settings, run): return {"score": settings.lr + run.seed / 1000}
"""
MODEL = """
from typing import Literal
from pydantic import BaseModel, Field
class Settings(BaseModel):
    lr: float = Field(0.5, gt=0)
    depth: int = 2
    norm: Literal["batch", "layer"] = "batch"
def train(settings: Settings, run) -> dict[str, float]: return {"score": settings.lr + run.seed / 1000}
"""


@pytest.fixture(autouse=True)
def forget_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the modules of users, which all have one name here."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("train", "helper"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("script", [KEYWORDS, DATACLASS, MODEL], ids=["keywords", "dataclass", "model"])
def test_a_study_of_a_function_gets_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Settings are keyword parameters, a dataclass or a pydantic model."""
    runs, todo = planned(tmp_path, script, RECIPE, STUDY)
    monkeypatch.setattr(runner, "drive", serve_all)
    assert len(runner.run(todo, Place(runs, None), Quiet()).done) == 6
    (tmp_path / "train.py").unlink()  # reading needs no file of the user's
    (plan,) = store.read_plans(runs).readable
    assert [job.id for job in jobs([plan])] == [job.id for job in todo]
    rows = {row.arm: row for row in study_table.table(load_plans(runs, [plan])[0]).rows}
    assert (plan.metric, rows["lr=0.25"].mean) == ("score", pytest.approx(0.251))


REFUSED = [
    (KEYWORDS, "config: {depth: deep}", "depth=deep: a whole number"),
    (DATACLASS, "config: {dept: 3}", "unknown key 'dept'; did you mean 'depth'?"),
    (MODEL, "config: {norm: none}", "norm=none: 'batch' or 'layer'"),
    ("def train(**settings): pass", "", "train: train.py:train: **settings: name each setting as a parameter"),
    ("import nowhere", "", "does not import: ModuleNotFoundError: No module named 'nowhere'"),
    ("def fit(): pass", "", "has no function train"),
    ("def train(lr: 'Rate' = 0.5): pass", "", "train.py:train: settings are plain values: name 'Rate' is not defined"),
    ("class Rate: pass\ndef train(lr: Rate = None): pass", "", "settings are plain values: Unable to generate"),
]


@pytest.mark.parametrize(("script", "line", "message"), REFUSED)
def test_what_cannot_be_called_is_refused_in_one_line(tmp_path: Path, script: str, line: str, message: str) -> None:
    recipe = RECIPE.replace("seeds: 3", line) if line else RECIPE
    with pytest.raises(ValueError, match=r".") as refusal:
        planned(tmp_path, script, recipe, ONE_ARM)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_annotation_of_run_may_be_known_to_type_checkers_alone(tmp_path: Path) -> None:
    """A setting without an annotation whose default is None may have any value."""
    script = "def train(run: 'FunctionRun', lr=None) -> 'dict[str, Number]': return {'score': lr}"
    runs, todo = planned(tmp_path, script, RECIPE, ONE_ARM)
    assert served(runs, todo[0]).metrics == {"score": 0.5}


def test_a_file_named_like_a_package_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(KEYWORDS)
    (tmp_path / "results.py").write_text("")
    with pytest.raises(ValueError, match="beside it, results has the name of a package of this suite: rename it"):
        read_recipe(write(tmp_path, "r", RECIPE))


def test_an_id_is_of_every_local_file_that_is_imported(tmp_path: Path) -> None:
    def ids(name: str, helper: str) -> list[str]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper.py").write_text(helper)
        for module in ("train", "helper"):
            sys.modules.pop(module, None)
        return [job.id for job in planned(tmp_path / name, f"import helper\n{KEYWORDS}", RECIPE, ONE_ARM)[1]]

    first = ids("a", "x = 1")
    assert ids("b", "x = 1") == first
    assert not {*ids("c", "x = 2")} & {*first}
    recipe = read_recipe(str(tmp_path / "c" / "r.yaml"))
    assert '"files":["helper.py","train.py"]' in recipe.trainable


LOADS = """
import importlib, runpy
import helper
def train(run, lr=0.5, model="mlp"):
    importlib.import_module("found")
    importlib.import_module(f"models.{model}")
    runpy.run_path("more.py")
    return {"score": 1}
"""


def test_a_plan_says_where_code_is_loaded_that_it_cannot_find(tmp_path: Path) -> None:
    """Modules whose names are computed, and text that is executed. A recipe with `code` has named their files."""
    (tmp_path / "helper.py").write_text("def f(model, text):\n    model.eval(), model.exec(text)\n    exec(text)")
    (tmp_path / "found.py").touch()
    for code, note in (("", "what train.py:6, train.py:7, helper.py:3 loads is not in the ids"), ("found.py", "")):
        recipe = RECIPE.replace("seeds: 3", f"seeds: 1, code: [{code}]")
        runs, _ = planned(tmp_path, LOADS, recipe, ONE_ARM)
        (plan,) = store.read_plans(runs).readable
        text = overview.render(overview.overview(plan, runs, [], Device(gpu=False, name="cpu")), plan)
        assert "  code    found.py, helper.py, train.py\n" in text
        assert ("is not in the ids" in text, note in text) == (bool(note), True)
        (runs / "studies" / plan.name / "plan.json").unlink()


RESUMES = """
import json
def train(run, lr=0.5):
    saved = run.checkpoint()
    step = json.loads(saved) if saved else 0
    while step < 5:
        step += 1
        run.log(step, loss=1 / step)
        run.save_checkpoint(json.dumps(step).encode())
        (run.folder / f"step-{step}").touch()
        while step == 3 and saved is None:
            if run.should_stop():
                return None
    run.save_correct([1, 0], [True, False])
    run.save_weights(b"weights")
    return {"score": len(list(run.folder.iterdir()))}
"""


def test_a_function_resumes_with_its_checkpoint_its_curve_and_its_folder(tmp_path: Path) -> None:
    runs, todo = planned(tmp_path, RESUMES, RECIPE, ONE_ARM)
    assert served_until(runs, todo[0], "trials/*/attempts/0001/folder/step-3").kind == "stopped"
    assert served(runs, todo[0]).metrics == {"score": 5}
    state = store.trial(runs, todo[0].id).state()
    assert state.attempt is not None
    assert [(line.step, line.number("loss")) for line in store.read_metrics(state.attempt)] == [
        (step, 1 / step) for step in range(1, 6)
    ]
    with np.load(state.attempt / "correct.npz") as stored:
        assert stored["correct"].tolist() == [1, 0]
    assert state.weights.read_bytes() == b"weights"


NUMBERS = """
import numpy as np
def train(run, lr=0.5):
    for step in np.arange(1, 4):
        run.log(step, score=np.float32(0.5), images=8 * step)
    run.progress(np.int64(4))
    return {"score": 1}
"""


def test_numbers_of_numpy_are_numbers_of_the_curve(tmp_path: Path) -> None:
    runs, todo = planned(tmp_path, NUMBERS, RECIPE, ONE_ARM)
    assert served(runs, todo[0]).kind == "finished"
    state = store.trial(runs, todo[0].id).state()
    assert state.attempt is not None
    lines = store.read_metrics(state.attempt)
    assert [(line.step, line.images, line.number("score")) for line in lines] == [(n, 8 * n, 0.5) for n in (1, 2, 3)]


FAULTS = [
    ("raise KeyError('layer')", "bug", "KeyError: 'layer'"),
    ("raise SystemExit(2)", "bug", "SystemExit: 2"),
    ("raise MemoryError", "memory", "MemoryError"),
    ("raise RuntimeError('CUDA out of memory. Tried to allocate')", "memory", "RuntimeError: CUDA out of memory"),
    ("return {'scores': 1}", "input", "metric score is missing: there are scores"),
    ("return {'score': 'high'}", "input", "metric score=high: a number"),
    ("return {'score': float('nan')}", "input", "metric score=nan: not finite"),
    ("run.log(0.5, loss=1)", "bug", "ValueError: step=0.5: a whole number of at least 0"),
    ("return 3", "input", "train.py:train returned 3: metric -> number"),
]


@pytest.mark.parametrize(("body", "kind", "cause"), FAULTS, ids=[body for body, _, _ in FAULTS])
def test_a_fault_of_a_function_is_one_line(tmp_path: Path, body: str, kind: str, cause: str) -> None:
    runs, todo = planned(tmp_path, f"def train(run, lr=0.5): {body}", RECIPE, ONE_ARM)
    assert served(runs, todo[0]).kind in ("failed", "again")
    failure = store.trial(runs, todo[0].id).failure()
    assert failure is not None
    assert (failure.kind, cause in failure.cause) == (kind, True)


def test_a_floating_point_error_is_divergence(tmp_path: Path) -> None:
    runs, todo = planned(tmp_path, "def train(lr=0.5): raise FloatingPointError", RECIPE, ONE_ARM)
    assert served(runs, todo[0]).kind == "diverged"
