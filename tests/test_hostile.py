"""Hostile text in studies, recipes, names, paths: no command runs, nothing leaves its place, all is escaped."""

import csv
import html.parser
import io
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hostile import TEXTS

from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan
from ablations.status import slurm_answers
from ablations.status import view as status_view
from ablations.status.study_status import study_status
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study
from results import export, report, store
from results.comparison import compare, summary
from results.figures import study_figure
from results.tables import layout, study_table

RECIPE: dict[str, Any] = {
    "description": "Small.",
    "config": {"data": "digits", "width": 16, "depth": 1, "heads": 2, "patch": 2, "pool": "gap", "steps": 2},
    "seeds": 1,
}
STUDY: dict[str, Any] = {"question": "Which?", "baseline": {"position": "1d"}, "arms": {"narrow": {"width": 8}}}
SHORT = [text for text in TEXTS if len(text) < 1000]  # a figure cannot show a label of 100,000 characters


def folder_paths(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


STUDIES = {
    "texts": lambda text: {"question": text, "source": text, "found": text},
    "baseline": lambda text: {"baseline": {"position": text}},
    "baseline key": lambda text: {"baseline": {text: 1}},
    "factor": lambda text: {"factors": {"position": ["1d", text]}},
    "factor key": lambda text: {"factors": {text: ["1d", "none"]}},
    "option": lambda text: {"factors": {f"position.{text}": [1, 2]}},
    "data": lambda text: {"baseline": {"data": f"imagefolder:{text}"}},
    "arm": lambda text: {"arms": {text: {"width": 8}}, "published": {text: 0.5}},
    "arm key": lambda text: {"arms": {"other": {text: 8}}},
    "metric": lambda text: {"metric": text},
    "figure": lambda text: {"figure": text},
    "claim": lambda text: {"claims": [text]},
    "key": lambda text: {text: text},
}
RECIPES = {
    "texts": lambda text: {"description": text, "caveats": [text]},
    "recipe key": lambda text: {"config": {**RECIPE["config"], text: 1}},
}


@pytest.mark.parametrize("field", [*STUDIES, "recipe key"])
def test_a_field_of_a_study_is_text_or_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """A text is planned as it stands or refused; only the plan's folder and the ledger are written."""
    monkeypatch.chdir(tmp_path)
    taken, no_change = 0, lambda text: {}
    for text in TEXTS:
        for name, plain, changes in (("s", STUDY, STUDIES), ("r", RECIPE, RECIPES)):
            (tmp_path / f"{name}.yaml").write_text(json.dumps(plain | changes.get(field, no_change)(text)))
        try:
            design = Design(read_study("s.yaml"), read_recipe("r.yaml"), {})
            plan = prepare(design, tmp_path / "runs", None, prune=True)
        except (ValueError, OSError):  # what the command prints in one line
            continue
        save_plan(tmp_path / "runs", plan)
        taken += 1
        shown = status_view.render([study_status(plan, tmp_path / "runs", slurm_answers.SlurmAnswers())]).plain
        assert {"\n"} >= set(re.findall(r"[^\S ]|\x1b", shown))
    declarations = {f"runs/ledger/{path.name}" for path in (tmp_path / "runs/ledger").glob("*.json")}
    assert folder_paths(tmp_path) - {"s.yaml", "r.yaml", "runs"} <= declarations | {
        "runs/ledger", "runs/studies", "runs/studies/s@r", "runs/studies/s@r/plan.json", "runs/studies/s@r/turns",
        *(f"runs/studies/s@r/turns/{number:04d}{rest}" for number in range(200) for rest in ("", "/released.json")),
    }  # fmt: skip
    assert taken >= (50 if field in ("texts", "arm") else 0)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["x'; touch CANARY; '", "$(touch CANARY)", "-o %j {touch,CANARY}"])
def test_a_run_under_hostile_names_stays_in_its_run_directory(tmp_path: Path, text: str) -> None:
    study = STUDY | {"question": text, "arms": {text: {"width": 8}}, "published": {text: 0.5}}
    for name, content in ((f"{text}.yaml", study), (f"{text}-r.yaml", RECIPE), (f"{text}.py", {})):
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / text).mkdir()
    before = folder_paths(tmp_path)
    runs = ("--runs", f"./{text}/runs")
    place = (f"./{text}.yaml", "--recipe", f"./{text}-r.yaml", *runs)
    more = ("--plugin", f"./{text}.py", "--data-dir", f"./{text}")
    for words in (("run", *place, *more), ("table", *runs), ("plot", *runs), ("report", *runs), ("status", *runs)):
        command = [sys.executable, "-m", "ablations.cli", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert all(path.startswith(f"{text}/runs") for path in folder_paths(tmp_path) - before)
    assert store.trial(tmp_path / text / "runs", os.listdir(tmp_path / text / "runs/trials")[0]).state().is_over


def study_of(names: list[str]) -> dict[str, Any]:
    """Return a plan whose texts and arms are these names, and which does not differ otherwise."""
    plan = synthetic.make_plan("s", {"position": ["1d", *map(str, range(len(names)))]}, {"position": "1d"}, seeds=2)
    for arm, name in zip(plan["arms"][1:], names, strict=True):
        arm["name"] = name
        arm["notes"] = [name]
        arm["published"] = 0.5
    own = {"question": names[0], "source": names[1], "found": names[2], "description": names[3], "caveats": names[4:9]}
    return plan | own | {"claims": [f"{names[0]} < position=1d", f"{names[1]} ~ position=1d"]}


MARKUP = [
    *("=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "a | b", "a,b\nc", "\t=2", "\r\n=3", '"><b>', "${7*7}"),
    *("[x](javascript:y)", "<script>alert(1)</script>", "</td></tr></table><img src=x onerror=y>", "{{ 7 * 7 }}"),
    *("{% raw %}", "\\input{/etc/passwd}", "a & b \\\\ c"),
]
HOSTILE = [text for text in SHORT if text.isascii() and text.isprintable() and text.strip()] + MARKUP  # as YAML lets in
HARMLESS = [f"word{number}" for number in range(len(HOSTILE))]


class Tags(html.parser.HTMLParser):
    """The tags of a page with the names of their attributes, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *(name for name, _ in attrs)))


@pytest.fixture(scope="module")
def both() -> tuple[Any, Any]:
    """Return the hostile study and a harmless one with equal numbers."""
    return synthetic.results(study_of(HOSTILE)), synthetic.results(study_of(HARMLESS))


def render_table(study: Any, format: str) -> str:
    return layout.render(study_table.table(study), format)


@pytest.mark.slow
def test_a_report_has_the_tags_of_a_harmless_study(both: tuple[Any, Any], tmp_path: Path) -> None:
    """No text becomes a tag or an attribute. Tags of drawings are left out: they depend on the glyphs of a name."""
    of_drawings = {"path", "use", "g", "defs", "clippath", "wbr"}
    found = []
    for study in both:
        report.write([study], tmp_path / "report.html")
        tags = Tags((tmp_path / "report.html").read_text()).found
        found.append({tag for tag in tags if tag[0] not in of_drawings})
    assert found[0] == found[1]


def test_tables_have_the_cells_and_tags_of_a_harmless_study(both: tuple[Any, Any]) -> None:
    """Rows and cell borders are equally many, and LaTeX has only commands that we write."""
    for format, border in (("md", r"(?<!\\)\|"), ("latex", r"(?<!\\)&")):
        hostile, harmless = (
            [len(re.findall(border, line)) for line in render_table(study, format).splitlines()] for study in both
        )
        assert hostile == harmless
    commands = [set(re.findall(r"\\[a-z]+", render_table(study, "latex"))) for study in both]
    signs = ("backslash", "asciitilde", "asciicircum", "bar", "less", "greater")
    assert commands[0] - commands[1] <= {rf"\text{sign}" for sign in signs}
    assert len({tuple(Tags(render_table(study, "html")).found) for study in both}) == 1


CSV: dict[str, Callable[[Any], str]] = {
    "table": lambda study: render_table(study, "csv"),
    "export": lambda study: export.csv_text([study]),
    "compare": lambda study: summary.render(compare.compare([study], [study]), "csv"),
}


@pytest.mark.parametrize("write", CSV)
def test_no_cell_of_a_csv_is_a_formula(both: tuple[Any, Any], write: str) -> None:
    """Rows are equally many, and only what reads as a number starts as a formula does."""
    hostile, harmless = (list(csv.reader(io.StringIO(CSV[write](study)))) for study in both)
    assert [len(row) for row in hostile] == [len(row) for row in harmless]
    for cell in itertools.chain(*hostile):
        if cell.startswith(tuple("=+-@\t\r")):
            float(cell)


def test_figures_are_drawn_of_any_text(both: tuple[Any, Any], tmp_path: Path) -> None:
    """No markup of the plotting library runs, and the file has the study's name."""
    study_figure.draw(both[0], tmp_path / study_figure.file_name(both[0], "svg"))
    assert folder_paths(tmp_path) == {"s@digits.svg"}
