"""The report's "Make it again": the command that it prints can be run as it stands, from anywhere."""

import html
import re
import shlex
import subprocess
import sys
from pathlib import Path

from photographs import photographs

from results import report
from results.store.schemas import Plan

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


def ablate(words: list[str], folder: Path) -> str:
    """What the command prints, on standard output and error."""
    command = [sys.executable, "-m", "ablations.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_command_of_a_report_runs_as_printed(tmp_path: Path) -> None:
    """Own study, recipe, plugin and images, in a folder with a space: from elsewhere nothing is left to train."""
    here, elsewhere = tmp_path / "my work", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    photographs(here / "pets", {"cat": 5, "dog": 5}, size=(8, 8))
    for name, text in (("mine.py", PLUGIN), ("s.yaml", STUDY), ("r.yaml", RECIPE)):
        (here / name).write_text(text)
    words = ["run", "s.yaml", "data=imagefolder:pets", "lr=1e-3", "--recipe", "r.yaml", "--plugin", "mine.py"]
    ablate([*words, "--seeds", "1", "--jobs", "1"], here)
    ablate(["report"], here)
    page = (here / "runs" / "report.html").read_text()
    (found,) = re.findall(r"Make it again</dt><dd><code>(.*?)</code>", page)
    first, *again = shlex.split(html.unescape(found))
    assert first == "ablate"
    before = sorted((here / "runs").rglob("result.json"))
    ablate([*again, "--runs", str(here / "runs")], elsewhere)
    assert sorted((here / "runs").rglob("result.json")) == before
    assert len(list((here / "runs" / "studies").iterdir())) == 1
    assert not list(elsewhere.iterdir())


def test_a_plan_of_before_has_its_command_by_name() -> None:
    """Where it was not written down which files were asked for; values are spelt as YAML reads them."""
    plan = {"study": "pooling", "recipe": "digits", "seeds": [0, 1], "overrides": {"compile": True, "lr": 1e-3}}
    again = report.rerun_command(Plan.model_construct(**plan))
    assert again == "ablate run pooling compile=true lr=0.001 --recipe digits --seeds 2"
