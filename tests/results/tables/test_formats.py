"""How a table is written: keys, columns, notes, Markdown, LaTeX, HTML and CSV."""

import csv
import io
import json
import re

import latex
import pytest
import scipy.stats
import synthetic
from synthetic import ACCURACIES, make_table, row_of_arm, table_with_hole, table_with_holes

from results.tables import across_recipes, layout
from results.tables.layout import render
from results.tables.study_table import table

ROW = [
    *("arm", "n", "planned", "mean", "sd", "ci95", "delta", "delta_ci95", "p", "p_holm", "verdict", "margin_met"),
    *("published", "params", "flops", "baseline", "n_pairs", "delta_ci95_images", "delta_ci95_simultaneous"),
    *("diverged", "failed", "missing", "notes"),
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
    header, _, first, *_ = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"
    )
    assert header == ["arm", "val accuracy", "train seconds", "95% CI of train seconds"]
    row = found.rows[0]
    half = 50 * (row.value("val_accuracy_ci95")[1] - row.value("val_accuracy_ci95")[0])
    assert first[1] == f"{100 * row.value('val_accuracy'):.2f} ± {half:.2f}"
    assert first[2].startswith(f"{row.value('train_seconds'):.1f} ± ")
    assert "val accuracy in %, train seconds, ±" in text
    flat = next(csv.DictReader(io.StringIO(render(found, "csv", names))))
    assert list(flat) == [*names[:3], "train_seconds_ci95_low", "train_seconds_ci95_high"]
    assert json.loads(render(found, "json", names))["rows"][0].keys() == set(names)
    assert across_recipes.render([found, found], "md", names).count("val accuracy |") == 2
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
    header = next(
        line for line in render(make_table(), "md", ["arm", "verdict", "sd"]).splitlines() if line.startswith("|")
    )
    assert [cell.strip() for cell in header.strip("|").split("|")] == ["arm", "verdict", "sd"]
    assert render(make_table(), "csv", ["arm", "ci95"]).splitlines()[0] == "arm,ci95_low,ci95_high"
    assert json.loads(render(make_table(), "json", ["n"]))["rows"][0] == {"n": 5}
    for name in ROW:
        assert render(make_table(), "md", list(dict.fromkeys(["arm", name])))


@pytest.mark.parametrize(
    ("format", "columns", "message"),
    [
        ("md", ["arm", "n", "arm"], r"columns=arm,n,arm: arm is there twice"),
        ("csv", [""], r"columns=: one of arm, n"),
        ("md", ["means"], r"columns=means: one of arm, n, .* \(did you mean 'mean'\?\)"),
        ("markdown", None, r"format=markdown: one of md, latex, csv, json, html"),
    ],
)
def test_a_wrong_column_or_format_is_one_line(format: str, columns: list[str] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render(make_table(), format, columns)
