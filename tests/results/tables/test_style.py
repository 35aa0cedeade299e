"""--style: how tables, plots and the report look, and nothing of what they say."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic
from figure_studies import texts
from in_process import Ablate, refusal
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from ablations.cli.inputs.sources import unknown_names_warning
from ablations.study import strict_yaml
from results import style as styles
from results.figures import study_figure
from results.figures.page import apply_style as drawing
from results.store.schemas.plans import Plan
from results.study_results import StudyResults
from results.tables import layout, sentences, study_table

PAPER = """
size: {width: column, column: 3.25, dpi: 300}
fonts: {family: STIXGeneral, text: 8, small: 7, title: 10}
colours: {baseline: '#222222', worse: '#aa3377', pool=gap: '#117733', palette: ['#4477aa', '#ee6677']}
order: [position=2d, position=1d]
labels: {position=none: no position, position: embedding, pool=gap: average, lr: step size, test_accuracy: top-1}
digits: {accuracy: 0, loss: 2, p: 2}
title: false
"""


def paper() -> styles.Style:
    return styles.parse(strict_yaml.parse(PAPER, "paper.yaml"))


def draw_styled(study: StudyResults, style: styles.Style) -> Figure:
    with styles.use_style(style), drawing():
        figure = study_figure.figure(study, style.width)
        figure.draw_without_rendering()
    return figure


def position() -> StudyResults:
    return synthetic.results(synthetic.position())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    synthetic.write(folder, synthetic.pooling())
    return synthetic.write(folder, synthetic.position())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("small"), synthetic.position(seeds=1))


WRONG = [
    ("sizes: {width: 3}", "unknown key sizes: one of size, fonts, colours, order, labels, digits, title, notes; did"),
    ("size: {widht: 3}", "unknown key size.widht: one of width, full, column, dpi; did you mean 'width'?"),
    ("size: {width: half}", "size.width=half: allowed is full, column, or inches"),
    ("size: {width: 0}", "size.width=0: allowed is a number from 1 to 50"),
    ("size: {dpi: true}", "size.dpi=True: allowed is a number from 1 to 1200"),
    ("size: 3", "size=3: allowed is a mapping of names to values"),
    ("fonts: {family: ''}", "fonts.family=: allowed is text"),
    ("colours: {baseline: black}", "colours.baseline=black: allowed is a color as '#0072B2', in quotation marks"),
    ("colours: {palette: []}", "colours.palette=[]: allowed is at least one color"),
    ("colours: {palette: ['#12']}", "colours.palette=#12: allowed is a color"),
    ("order: position=1d", "order=position=1d: allowed is a list"),
    ("labels: {lr: 3}", "labels.lr=3: allowed is text"),
    ("digits: {accuracy: -1}", "digits.accuracy=-1: allowed is a whole number from 0 to 10"),
    ("digits: {accuracy: 1.5}", "digits.accuracy=1.5: allowed is a whole number from 0 to 10"),
    ("title: no", "title=no: allowed is true or false"),
    ("notes: 0", "notes=0: allowed is true or false"),
    ("fonts: {family: Nowhere Sans}", "fonts.family=Nowhere Sans: not on this machine (everywhere: DejaVu Sans"),
]


@pytest.mark.parametrize(("content", "message"), WRONG)
def test_what_is_wrong_in_a_file_is_one_line(
    content: str, message: str, small: Path, tmp_path: Path, ablate: Ablate
) -> None:
    file, out = tmp_path / "s.yaml", tmp_path / "out"
    file.write_text(content)
    assert message in refusal(ablate, "plot", "--runs", str(small), "--style", str(file), "--out", str(out))
    assert not out.exists()


def test_the_table_and_its_sentences_have_the_style_s_order_labels_and_digits() -> None:
    with styles.use_style(paper()):
        table = study_table.table(position())
        text = layout.render(table, "md")
        answer = sentences.answer(table)
    rows = [line.split("|")[1:] for line in text.splitlines() if line.startswith("|")]
    arms = ["position=2d", "position=1d", "no position", "position=relative"]
    assert [row[0].strip() for row in rows[2:]] == arms
    assert "top-1" in rows[0][2]
    assert re.fullmatch(r"\d\d ± \d", rows[2][2].strip())
    assert rows[4][4].strip() == "<0.01"
    assert "worse than position=1d: no position by 22 points" in answer
    assert "no position < position=1d: agrees" in text


def test_a_style_changes_no_number_and_ends_where_its_use_ends() -> None:
    before = {row.arm: replace(row, notes=[]) for row in study_table.table(position()).rows}
    with styles.use_style(paper()):
        styled = study_table.table(position())
        csv = layout.render(styled, "csv")
    with pytest.raises(RuntimeError), styles.use_style(paper()):
        raise RuntimeError
    assert {row.arm: replace(row, notes=[]) for row in styled.rows} == before
    assert "position=none" in csv
    assert "no position" not in csv
    assert styles.current_style() == styles.Style() == styles.parse({})


def test_a_figure_has_the_style_s_size_fonts_labels_and_no_title() -> None:
    study = position()
    figure = draw_styled(study, paper())
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert figure.get_figwidth() == 3.25
    assert {text.get_fontsize() for text in shown} <= {7.0, 8.0}
    assert {text.get_fontfamily()[0] for text in shown} == {"STIXGeneral"}
    written = " ".join(texts(figure))
    assert all(label in written for label in ("no position", "top-1"))
    assert study.plan.question not in written


def test_without_notes_a_figure_has_its_data_alone_and_plot_prints_the_rest(
    runs: Path, tmp_path: Path, ablate: Ablate
) -> None:
    explained = "mean and 95% CI over 5 seeds", "Color, filled marks: resolved"
    bare, usual = (
        " ".join(texts(draw_styled(position(), styles.parse({"notes": notes})))).replace("\n", " ")
        for notes in (False, True)
    )
    assert all(words in usual and words not in bare for words in explained)
    assert position().plan.question in bare
    file = tmp_path / "caption.yaml"
    file.write_text("notes: false")
    words = ("plot", "position-embedding", "--runs", str(runs), "--style", str(file), "--out", str(tmp_path))
    status, printed, told = ablate(*words)
    assert (status, printed.count("\n")) == (0, 1)
    assert all(words in told for words in explained)
    assert json.loads(ablate(*words, "--format", "svg", "--json")[1])["caption"] == told.splitlines()


def test_a_pdf_embeds_the_chosen_font_and_a_png_has_the_dots_per_inch() -> None:
    with styles.use_style(paper()):
        pdf, png = (study_figure.picture(position(), format) for format in ("pdf", "png"))
    assert b"/FontFile2" in pdf
    assert b"STIXGeneral" in pdf
    assert b"/Type3" not in pdf
    assert int.from_bytes(png[16:20], "big") == 975


def test_colours_go_by_name_and_the_rest_takes_the_palette() -> None:
    study = synthetic.results(synthetic.pooling())
    figure = draw_styled(study, paper())
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert [to_hex(line.get_color()) for line in lines] == ["#222222", "#117733"]
    assert {"average", "step size, log scale"} <= set(texts(figure))
    kinds = {"stem": ["patch", "conv", "resnet-small"]}
    plan = synthetic.make_plan("s", kinds, {"stem": "patch"}, curves={"lr": [0.001, 0.002, 0.004]}, figure="scale")
    figure = draw_styled(synthetic.results(plan), paper())
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert [to_hex(line.get_color()) for line in lines] == ["#222222", "#4477aa", "#ee6677"]


def test_table_plot_and_report_take_the_same_file(runs: Path, tmp_path: Path, ablate: Ablate) -> None:
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    file = tmp_path / "paper.yaml"
    file.write_text(PAPER)
    given = ("position-embedding", "--runs", str(runs), "--style", str(file))
    assert "no position" in ablate("table", *given)[1]
    assert ablate("plot", *given, "--out", str(tmp_path), "--format", "svg")[0] == 0
    with styles.use_style(paper()):
        assert (tmp_path / "position-embedding@digits.svg").read_bytes() == study_figure.picture(position(), "svg")
    assert ablate("report", *given, "--out", str(tmp_path / "r.html"))[0] == 0
    page = (tmp_path / "r.html").read_text()
    assert "no position" in page
    assert "top-1" in page
    assert {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()} == before


TYPOS = """
labels: {position=nnoe: no position, positon: embedding, lr: step size, pool=gap: average, stem=conv: hybrid}
colours: {pool=gpa: '#117733'}
order: [large-batch, 'position=none']
"""
WARNED = [
    "labels: position=nnoe is in no study here (there: position=none, position=1d, position=2d, position=relative)",
    "labels: positon is in no study here",
    "did you mean 'position'?",
    "colours: pool=gpa is in no study here (there: pool=cls, pool=gap)",
    "order: large-batch is in no study here (there: ",
]


@pytest.mark.parametrize("exported", [False, True])
def test_a_name_that_no_study_has_is_one_line(exported: bool, runs: Path, tmp_path: Path, ablate: Ablate) -> None:
    if exported:
        ablate("export", "--runs", str(runs), "--out", str(tmp_path / "a.parquet"))
        runs = tmp_path / "a.parquet"
    (tmp_path / "s.yaml").write_text(TYPOS)
    words = ("table", "position-embedding", "--runs", str(runs), "--style", str(tmp_path / "s.yaml"))
    status, printed, errors = ablate(*words)
    assert (status, printed.count("| position=")) == (0, 4)
    assert errors.startswith(f"ablate: {tmp_path / 's.yaml'}: ")
    told = errors.rstrip("\n").partition(".yaml: ")[2].split("; ")
    assert [line.startswith(start) for line, start in zip(told, WARNED, strict=True)] == [True] * 5
    assert errors.count("\n") == 1


@pytest.mark.parametrize("make", [synthetic.position, synthetic.pooling, synthetic.tuned_pooling])
def test_names_of_a_study_give_no_warning(make: Any) -> None:
    plan = make()
    names = [arm["name"] for arm in plan["arms"]] + list(plan["factors"]) + list(plan["curves"])
    names += [part for name in names for part in name.split(",")] + ["test_accuracy", "val_loss", "patch", "stem=conv"]
    style = styles.Style(labels=dict.fromkeys(names, "x"), order=tuple(names))
    assert unknown_names_warning(style, [Plan.model_validate(plan)]) == ""


def test_plot_names_its_files_for_programs(runs: Path, tmp_path: Path, ablate: Ablate) -> None:
    given = ("plot", "position-embedding", "--runs", str(runs), "--out", str(tmp_path), "--format", "svg", "--json")
    figure = json.loads(ablate(*given)[1])
    curves = json.loads(ablate(*given, "--x", "epoch")[1])
    named = {"study": "position-embedding", "recipe": "digits"}
    assert figure == named | {"figure": str(tmp_path / "position-embedding@digits.svg")}
    assert curves == named | {"figure": str(tmp_path / "position-embedding@digits-epoch.svg")}
    assert Path(figure["figure"]).read_bytes() != Path(curves["figure"]).read_bytes()


def test_an_order_names_arms_or_settings_and_leaves_the_others_behind() -> None:
    order = styles.Style(order=("b=2", "a=3,b=1"))
    names = ["a=1,b=1", "a=2,b=2", "a=3,b=1", "a=1,b=2"]
    assert sorted(names, key=order.rank) == ["a=2,b=2", "a=1,b=2", "a=3,b=1", "a=1,b=1"]
