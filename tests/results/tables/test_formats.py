"""How a table is written, of one recipe and of several: keys, columns, notes, Markdown, LaTeX, HTML and CSV."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import latex
import pytest
import scipy.stats
import synthetic
from in_process import Ablate, refusal
from synthetic import ACCURACIES, make_table, row_of_arm, table_with_hole, table_with_holes

from results import units
from results.records import Table
from results.statistics import verdict
from results.store.schemas.metrics import metric_by_name
from results.style import Style, use_style
from results.tables import cell_text, layout
from results.tables.layout import render
from results.tables.study_table import table

ROW = [
    *("arm", "n", "planned", "mean", "sd", "ci95", "delta", "delta_ci95", "p", "p_holm", "verdict", "margin_met"),
    *("published", "params", "flops", "baseline", "n_pairs", "delta_ci95_images", "delta_ci95_simultaneous"),
    *("error_ratio", "error_ratio_ci95", "images_share"),
    *("diverged", "collapsed", "failed", "missing", "notes", "first_declared"),
]


def test_keys_are_those_that_others_read() -> None:
    found = json.loads(render(make_table(), "json"))
    assert list(found)[:5] == ["study", "recipe", "metric", "baseline", "rows"]
    assert [list(row) for row in found["rows"]] == [ROW] * 4
    assert (found["study"], found["recipe"], found["baseline"]) == ("position-embedding", "digits", "position=1d")


def test_markdown_lines_up_in_a_terminal() -> None:
    text = render(make_table(), "md")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    assert re.search(r"\| position=none +\| +5 \| +76\.00 ± 1\.96 \| +-18\.40 ± \d\.\d\d \|", text)
    assert "published†" in lines[0]
    assert "61.38" in text
    assert "† arXiv 2010.11929, Table 8: another setting" in text


def test_claims_and_published_numbers_name_their_sources() -> None:
    text = render(make_table(synthetic.position(published_of="Table 9 (ViT-S)")), "md")
    assert "† Table 9 (ViT-S): another setting" in text
    assert "Claims of arXiv 2010.11929, Table 8: position=none < position=1d: agrees;" in text
    text = render(make_table(synthetic.position(source="")), "md")
    assert "Claims of the study: " in text
    assert "† the study: another setting" in text


def test_csv_has_raw_numbers() -> None:
    found = make_table()
    rows = list(csv.DictReader(io.StringIO(render(found, "csv"))))
    assert [row["arm"] for row in rows] == list(ACCURACIES)
    assert float(rows[0]["mean"]) == row_of_arm(found, "position=none").mean
    assert float(rows[0]["delta_ci95_low"]) == row_of_arm(found, "position=none").delta_ci95[0]
    assert rows[1]["verdict"] == ""


def test_other_numbers_can_be_columns() -> None:
    study = synthetic.results(synthetic.position(), synthetic.from_accuracies(synthetic.position(), ACCURACIES))
    names = ["arm", "val_accuracy", "train_seconds", "train_seconds_ci95"]
    found = table(study, layout.further_metrics(names))
    for arm, trials in study.trials.groupby("arm"):
        row = row_of_arm(found, str(arm))
        columns = {"test_accuracy": (row.mean, row.ci95)}
        columns |= {name: (row.value(name), row.value(f"{name}_ci95")) for name in ("val_accuracy", "train_seconds")}
        for name, (mean, interval) in columns.items():
            values = trials[name].to_numpy()
            assert mean == pytest.approx(values.mean())
            low, high = scipy.stats.t.interval(0.95, len(values) - 1, values.mean(), scipy.stats.sem(values))
            assert interval == pytest.approx([low, high])
    text = render(found, "md", names)
    header, _, first, *_ = markdown_cells(text)
    assert header == ["arm", "val accuracy", "train seconds", "95% CI of train seconds"]
    row = found.rows[0]
    half = 50 * (row.value("val_accuracy_ci95")[1] - row.value("val_accuracy_ci95")[0])
    assert first[1] == f"{100 * row.value('val_accuracy'):.2f} ± {half:.2f}"
    assert first[2].startswith(f"{row.value('train_seconds'):.1f} ± ")
    assert "val accuracy in %, train seconds, ±" in text
    flat = next(csv.DictReader(io.StringIO(render(found, "csv", names))))
    assert list(flat) == [*names[:3], "train_seconds_ci95_low", "train_seconds_ci95_high"]
    assert json.loads(render(found, "json", names))["rows"][0].keys() == set(names)
    assert layout.render_side_by_side([found, found], "md", names).count("val accuracy |") == 2
    with pytest.raises(ValueError, match=r"digits: columns=val_acc: one of arm, .*did you mean 'val_accuracy'"):
        table(study, ["val_acc"])


@pytest.mark.parametrize("columns", [None, list(layout.COLUMNS)], ids=["usual", "all"])
def test_a_strict_reader_of_latex_finds_every_cell(columns: list[str] | None) -> None:
    found = table_with_hole("failed", "ValueError: 50% of $x_1 & \\y{}#~^<b> −3 × 2")
    rows = latex.check(render(found, "latex", columns))
    lines = [line.split("|")[1:-1] for line in render(found, "md", columns).splitlines() if line.startswith("|")]
    assert [len(row) for row in rows] == [len(line) for line in lines[:1] + lines[2:]]
    assert [row[0].partition("\\")[0] for row in rows[1:]] == list(ACCURACIES)


def test_notes_are_as_long_as_asked_for() -> None:
    """ "short" keeps notes on the columns shown, "none" only warnings; LaTeX has short notes by default."""
    size, change = "parameters 51,010 against 51,000", "with lr 0.1 against 0.2, declared"
    plan = synthetic.position(notes={"position=2d": [size, change]})
    plan["arms"][2]["notes_about"] = {size: "params"}
    found = table_with_holes({("position=2d", 3): synthetic.hole("failed", "ValueError: boom")}, plan)
    hole, pairs = "seed 3 failed: ValueError: boom", "the difference is over seeds 0, 1, 2, 4, which both arms finished"
    every = [size, change, hole, pairs, "Answer: ", "Claims of ", "Not covered: "]

    def told(*columns: str, format: str = "md", notes: str | None = None) -> list[str]:
        text = render(found, format, list(columns) or None, notes)
        return [one for one in every if one in text]

    assert told() == every
    assert told(notes="short") == told(format="latex") == [size, change, hole, pairs]
    assert told("arm", "mean", notes="short") == [change, hole]
    assert told("arm", "mean", "verdict", notes="none") == [hole, pairs]
    assert told("arm", "mean", notes="none") == [hole]
    assert told(format="latex", notes="all") == every
    assert json.loads(render(found, "json", notes="none"))["rows"][2]["notes"] == [hole, pairs]


def test_html_and_markdown_escape_what_would_break_the_table() -> None:
    found = table_with_hole("failed", "a|b <img src=x> *c*\nd<script>")
    page = render(found, "html")
    assert "<script" not in page
    assert f'data-sort="{row_of_arm(found, "position=none").mean}"' in page
    assert page.count("<tr") == 5
    assert r"seed 3 failed: a\|b \<img src=x> \*c\* d\<script>" in render(found, "md")


def test_columns_are_chosen_by_key() -> None:
    columns = ["arm", "verdict", "sd"]
    assert markdown_cells(render(make_table(), "md", columns))[0] == columns
    assert render(make_table(), "csv", ["arm", "ci95"]).splitlines()[0] == "arm,ci95_low,ci95_high"
    assert json.loads(render(make_table(), "json", ["n"]))["rows"][0] == {"n": 5}
    for name in ROW:
        assert render(make_table(), "md", list(dict.fromkeys(["arm", name])))


@pytest.mark.parametrize(
    ("format", "columns", "message"),
    [
        ("md", ["arm", "n", "arm"], r"columns=arm,n,arm: arm occurs twice"),
        ("csv", [""], r"columns=: one of arm, n"),
        ("md", ["means"], r"columns=means: one of arm, n, .*; did you mean 'mean'\?"),
        ("markdown", None, r"format=markdown: one of md, latex, csv, json, html"),
    ],
)
def test_a_wrong_column_or_format_is_one_line(format: str, columns: list[str] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render(make_table(), format, columns)


def plan_on_recipe(recipe: str, seeds: int = 5, **given: Any) -> dict[str, Any]:
    """Return the plan on a recipe of this name, whose trials no other recipe shares."""
    name, widths = f"position-embedding@{recipe}", {"width": len(recipe) * 8}
    return synthetic.position(recipe=recipe, name=name, seeds=seeds, overrides=widths) | {"overrides": {}} | given


def two_tables() -> list[Table]:
    """Return two tables; the second lacks an arm, and one of its arms was never started."""
    other = plan_on_recipe("cifar10")
    other["arms"] = [arm for arm in other["arms"] if arm["name"] != "position=2d"]
    ids = [trial["id"] for trial in other["arms"][0]["trials"]]
    holes = dict.fromkeys(ids, synthetic.hole("missing", "not started"))
    return [
        table(synthetic.results(plan_on_recipe("digits"))),
        table(synthetic.results(other, holes)),
    ]


def markdown_cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def unmarked(cell: str) -> str:
    return re.sub(r" ?\[[\d,]+\]$", "", cell)


def test_each_recipe_has_its_own_numbers_beside_the_arm() -> None:
    found = two_tables()
    head, _, *rows = markdown_cells(layout.render_side_by_side(found, "md", ["mean", "verdict"]))
    assert head == ["arm", *(f"{on}: {what}" for on in ("digits", "cifar10") for what in ("test accuracy", "verdict"))]
    for k, one in enumerate(found):
        alone = {unmarked(row[0]): row for row in markdown_cells(render(one, "md", ["arm", "mean", "verdict"]))}
        for row in rows:
            own = alone.get(row[0], [row[0], "–", "–"])[1:]
            assert [unmarked(cell) for cell in row[1 + 2 * k : 3 + 2 * k]] == own


def test_a_footnote_stands_beside_the_recipe_that_it_is_about() -> None:
    """The arm has no mark, as nothing is missing on the other recipe."""
    rows = markdown_cells(layout.render_side_by_side(two_tables(), "md", ["mean", "verdict"]))
    none = next(row for row in rows if row[0] == "position=none")
    note = re.search(
        r"\[(\d+)\] seeds 0, 1, 2, 3, 4 missing: not started", layout.render_side_by_side(two_tables(), "md")
    )
    assert note[1] in re.findall(r"\d+", none[3])
    assert note[1] not in re.findall(r"\d+", none[1].partition("[")[2])


def test_latex_has_a_group_over_its_columns_and_html_a_cell() -> None:
    text = layout.render_side_by_side(two_tables(), "latex")
    groups, head, *rows = latex.check(text)
    assert groups == [r"\multicolumn{1}{c}{}", r"\multicolumn{4}{c}{digits}", r"\multicolumn{4}{c}{cifar10}"]
    assert r"\cmidrule(lr){2-5}\cmidrule(lr){6-9}" in text
    assert (len(head), len(rows)) == (9, 4)
    assert '<th colspan="4" scope="colgroup">cifar10</th>' in layout.render_side_by_side(two_tables(), "html")


def test_what_was_set_on_the_command_line_names_the_column() -> None:
    """The settings stand there instead of the hash in the folder's name."""
    changed = {"name": "position-embedding@digits+6c3b0f", "overrides": {"steps": 100, "batch": 16}}
    found = [table(synthetic.results(plan_on_recipe("digits", **given))) for given in ({}, changed)]
    text = layout.render_side_by_side(found, "md", ["mean"])
    assert markdown_cells(text)[0] == ["arm", "digits: test accuracy", "digits with steps=100, batch=16: test accuracy"]
    rows = csv.DictReader(io.StringIO(layout.render_side_by_side(found, "csv")))
    assert list(dict.fromkeys(row["recipe"] for row in rows)) == ["digits", "digits with steps=100, batch=16"]
    for format in ("md", "latex", "html", "csv"):
        assert "6c3b0f" not in layout.render_side_by_side(found, format)


def test_csv_has_a_row_for_each_recipe_and_arm_and_json_a_table_for_each_recipe() -> None:
    tables = two_tables()
    rows = list(csv.DictReader(io.StringIO(layout.render_side_by_side(tables, "csv"))))
    assert [(row["recipe"], row["arm"]) for row in rows] == [
        (one.plan.recipe, row.arm) for one in tables for row in one.rows
    ]
    alone = [json.loads(render(one, "json")) for one in tables]
    assert json.loads(layout.render_side_by_side(tables, "json")) == alone


def test_the_arm_alone_is_no_column_of_each_recipe() -> None:
    with pytest.raises(ValueError, match="name at least one column of each"):
        layout.render_side_by_side(two_tables(), "md", ["arm"])


def test_the_command_puts_recipes_side_by_side(tmp_path: Path, ablate: Ablate) -> None:
    for recipe in ("digits", "cifar10", "other"):
        synthetic.write(tmp_path, plan_on_recipe(recipe, seeds=2))
    recipes = ("--recipe", "cifar10", "--recipe", "digits", "--runs", str(tmp_path))
    status, named, errors = ablate("table", "position-embedding", *recipes)
    assert (status, errors) == (0, "")
    assert markdown_cells(named)[0][1:3] == ["cifar10: test accuracy", "cifar10: difference"]
    assert ablate("table", *recipes)[1] == named
    _, found, _ = ablate("table", *recipes, "--json", "--columns", "arm")
    assert [table["recipe"] for table in json.loads(found)] == ["cifar10", "digits"]
    assert json.loads(found)[0]["rows"][0] == {"arm": "position=none"}
    unknown = refusal(ablate, "table", "position-embedding", "--recipe", "mnist", *recipes)
    assert "position-embedding@mnist: was not run in" in unknown


def test_several_studies_are_one_csv(tmp_path: Path, ablate: Ablate) -> None:
    for plan in (synthetic.position(seeds=2), synthetic.patch_size(seeds=2)):
        synthetic.write(tmp_path, plan)
    words = ("table", "position-embedding", "patch-size", "--format", "csv", "--runs", str(tmp_path))
    rows = list(csv.DictReader(io.StringIO(ablate(*words)[1])))
    assert {(row["study"], row["recipe"]) for row in rows[:4]} == {("position-embedding", "digits")}
    assert {(row["study"], row["recipe"]) for row in rows[4:]} == {("patch-size", "digits")}
    assert [row["arm"] for row in rows[4:]] == ["patch=1", "patch=2", "patch=4"]


def test_a_p_value_below_the_level_does_not_read_as_the_level() -> None:
    texts = {0.04996: "<0.0500", 0.04994: "0.0499", 0.05: "0.0500", 0.00006: "<0.0001", 0.00002: "<0.0001"}
    assert {p: units.probability_text(p) for p in texts} == texts
    with use_style(Style(digits={"p": 2})):
        assert units.probability_text(0.046) == "<0.05"
    assert units.LEVEL == verdict.ALPHA


def test_rounding_does_not_move_an_interval_onto_zero() -> None:
    """A difference of 0.604 ± 0.596 points and its interval from 0.00004 get the decimals that tell."""
    percent = metric_by_name("test_accuracy")
    assert cell_text.difference_text(0.00604, (0.00008, 0.012), percent) == "+0.604 ± 0.596"
    assert cell_text.difference_interval((0.00004, 0.012), percent) == "[+0.004, +1.200]"
    assert cell_text.difference_interval((-0.012, -0.0000004), percent) == "[-1.20000, -0.00004]"
    assert cell_text.difference_interval((-0.00004, 0.012), percent) == "[+0.00, +1.20]"  # it contains 0
    assert cell_text.difference_text(0.006, (-0.0001, 0.0121), percent) == "+0.60 ± 0.61"
