"""`ablate demo`: announcement, growing table, figure and report; a second call trains nothing."""

from pathlib import Path

import designs
import pytest
from in_process import Ablate

from ablations.cli import run
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study


def test_demo_ends_in_table_figure_and_report(monkeypatch: pytest.MonkeyPatch, ablate: Ablate, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "DEMO_RECIPE", designs.write(tmp_path, "small", designs.RECIPE))
    monkeypatch.setattr(run, "DEMO_SEEDS", 2)
    status, output, errors = ablate("demo")
    assert status == 0, errors
    before, _, after = output.partition("| arm")
    assert all(text in before for text in ("6 of 6 trials", "torch", "GB"))
    assert "position=2d" in after
    for kind in ("figure", "report"):
        (line,) = (line for line in after.splitlines() if line.startswith(kind))
        assert Path(line.split()[1]).stat().st_size > 10_000
    status, output, _ = ablate("demo")
    assert (status, "0 of 6 trials" in output) == (0, True)


def test_the_demo_is_a_part_of_the_papers_study() -> None:
    recipe = read_recipe("digits")
    small, whole = (Design(read_study(name), recipe, {}) for name in ("demo", "position-embedding"))
    assert {arm.key for arm in small.arms} < {arm.key for arm in whole.arms}
    assert small.study.published.items() < whole.study.published.items()
