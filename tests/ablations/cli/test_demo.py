"""`ablate demo`: announcement, growing table, figure and report; a second call trains nothing."""

import io
from pathlib import Path

import designs
import pytest
import synthetic
from in_process import Ablate
from rich.console import Console

from ablations.cli.getting_started import demo
from ablations.planning.jobs import Job, jobs
from ablations.reporting.progress import GrowingTable, Live
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study
from results import store


def test_the_demo_ends_in_a_table_a_figure_and_a_report(
    monkeypatch: pytest.MonkeyPatch, ablate: Ablate, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "RECIPE", designs.write(tmp_path, "small", designs.RECIPE))
    monkeypatch.setattr(demo, "SEEDS", 2)
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


def test_the_table_fills_in_as_trials_end(tmp_path: Path) -> None:
    synthetic.write(tmp_path, synthetic.position(seeds=2))
    (plan,) = store.read_plans(tmp_path)
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
