"""Two runs under one name: neither overwrites the other's plan in silence, and each prints its own table."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_prepare import RECIPE, STUDY, design

from ablations.cli import running
from ablations.planning import jobs
from ablations.planning.prepare import prepare
from results import store
from results.study_results import of_plans
from results.tables import study_table

OTHER = {
    "baseline": ({"recipe": RECIPE.replace("steps: 4", "steps: 8")}, "another baseline .*steps 4 -> 8"),
    "arms": ({"study": STUDY.replace("none", "2d")}, "give the command again"),
    "seeds": ({"recipe": RECIPE.replace("seeds: 2", "seeds: 3")}, "give the command again"),
    "margin": ({"recipe": f"{RECIPE}margin: 0.1\n"}, "give the command again"),
}


@pytest.mark.parametrize(("changed", "why"), OTHER.values(), ids=OTHER)
def test_a_plan_that_changed_meanwhile_is_not_overwritten(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    """Of two plans made on top of the same one, the second is refused; made again, on top of the first, it may grow."""
    runs = tmp_path / "runs"
    if "again" in why:  # else planning on top of it is refused already
        jobs.write(runs, prepare(design(tmp_path, STUDY.replace("question: q", "question: which")), runs, 1))
    first = prepare(design(tmp_path), runs, None)
    second = prepare(design(tmp_path, **changed), runs, None)
    jobs.write(runs, first)
    kept = (runs / "studies" / "s@r" / "plan.json").read_bytes()
    with pytest.raises(ValueError, match=why):
        jobs.write(runs, second)
    assert (runs / "studies" / "s@r" / "plan.json").read_bytes() == kept
    if "again" in why:
        jobs.write(runs, prepare(design(tmp_path, **changed), runs, None))


def test_the_same_plan_at_once_is_no_conflict(tmp_path: Path) -> None:
    """Two runs of one study both go on."""
    runs = tmp_path / "runs"
    first, second = (prepare(design(tmp_path), runs, None) for _ in range(2))
    jobs.write(runs, first)
    jobs.write(runs, second)
    assert jobs.BASE not in store.read_json(runs / "studies" / "s@r" / "plan.json")


def test_a_command_prints_the_table_of_its_own_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where plan.json has become another one since."""
    runs = tmp_path / "runs"
    own = prepare(design(tmp_path), runs, None)
    over = running.publishing([own], "*", runs)
    expected = study_table.render(study_table.table(of_plans(runs, [own])[0]), "md")
    other = STUDY.replace("none", "2d")
    jobs.write(runs, prepare(design(tmp_path, other), runs, None))
    for job in jobs.jobs([own]):
        over(job)
    assert capsys.readouterr().out.strip() == expected.strip()


def test_of_two_runs_with_recipes_of_one_name_one_is_refused(tmp_path: Path) -> None:
    """Started at once in one run directory: one trains and prints its table, the other says how they differ."""
    (tmp_path / "s.yaml").write_text(STUDY)
    started = []
    for steps in (4, 8):
        (tmp_path / str(steps)).mkdir()
        recipe = tmp_path / str(steps) / "r.yaml"
        recipe.write_text(RECIPE.replace("steps: 4", f"steps: {steps}"))
        words = ("run", "s.yaml", "--recipe", str(recipe), "--runs", str(tmp_path / "runs"), "--seeds", "1")
        command = [sys.executable, "-m", "ablations.cli", *words]
        started.append(
            subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    ended = sorted((process.wait(), *process.communicate()) for process in started)
    assert [status for status, _, _ in ended] == [0, 2]
    assert "position=none" in ended[0][1]
    assert "planned with another baseline (steps" in ended[1][2]
    assert ended[1][1] == ""
