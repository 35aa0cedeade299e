"""The command that a report prints under "Make it again" runs as printed, in any folder."""

import html
import re
import shlex
from pathlib import Path

import pytest
from photographs import photographs
from run_trials import called_serially

from results import report
from results.store.schemas.plans import Plan
from vitcore.model.position import POSITION

PLUGIN = """
from vitcore.model.position import POSITION, Position

class Mine(Position):
    "Nothing (arXiv 0000.00000)."

POSITION["mine"] = Mine
"""
STUDY = "{question: q, baseline: {position: 1d}, factors: {position: [1d, mine]}, margin: 0.02}"
RECIPE = """
description: Small.
config: {data: digits, width: 8, depth: 1, heads: 1, patch: 4, pool: gap, steps: 2, batch: 4, evaluations: 1}
"""


def test_the_command_of_a_report_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The study, recipe, plug-in and images are the user's, in a folder with a space; the command works elsewhere."""
    here, elsewhere = tmp_path / "my work", tmp_path / "elsewhere"
    elsewhere.mkdir()
    photographs(here / "pets", {"cat": 5, "dog": 5}, size=(8, 8))
    for name, text in (("mine.py", PLUGIN), ("s.yaml", STUDY), ("r.yaml", RECIPE)):
        (here / name).write_text(text)
    request.addfinalizer(lambda: POSITION.pop("mine", None))
    monkeypatch.chdir(here)
    words = ["run", "s.yaml", "data=imagefolder:pets", "lr=1e-3", "--recipe", "r.yaml", "--plugin", "mine.py"]
    for command in ([*words, "--seeds", "1"], ["report"]):
        status, _, errors = called_serially(monkeypatch, *command)
        assert status == 0, errors
    page = (here / "runs" / "report.html").read_text()
    (found,) = re.findall(r"Make it again</dt><dd><code>(.*?)</code>", page)
    first, *again = shlex.split(html.unescape(found))
    assert first == "ablate"
    before = sorted((here / "runs").rglob("result.json"))
    monkeypatch.chdir(elsewhere)
    assert called_serially(monkeypatch, *again, "--runs", str(here / "runs"))[0] == 0
    assert sorted((here / "runs").rglob("result.json")) == before
    assert len(list((here / "runs" / "studies").iterdir())) == 1
    assert not list(elsewhere.iterdir())


def test_a_plan_of_before_has_its_command_by_name() -> None:
    plan = {
        "name": "pooling@digits,lr=0.001",
        "study": "pooling",
        "recipe": "digits",
        "seeds": [0, 1],
        "overrides": {"compile": True, "lr": 1e-3},
    }
    again = report.rerun_command(Plan.model_construct(**plan))
    assert again == "ablate run pooling compile=true lr=0.001 --recipe digits --seeds 2"
