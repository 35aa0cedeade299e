"""Several recipes in one table: a row an arm, a group of columns a recipe."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import latex
import pytest
import synthetic
from in_process import Ablate, refusal

from results.records import Table
from results.tables import across_recipes, layout, study_table


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
        study_table.table(synthetic.results(plan_on_recipe("digits"))),
        study_table.table(synthetic.results(other, holes)),
    ]


def markdown_cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def unmarked(cell: str) -> str:
    return re.sub(r" ?\[[\d,]+\]$", "", cell)


def test_each_recipe_has_its_own_numbers_beside_the_arm() -> None:
    found = two_tables()
    head, _, *rows = markdown_cells(across_recipes.render(found, "md", ["mean", "verdict"]))
    assert head == ["arm", *(f"{on}: {what}" for on in ("digits", "cifar10") for what in ("test accuracy", "verdict"))]
    for k, table in enumerate(found):
        alone = {
            unmarked(row[0]): row for row in markdown_cells(layout.render(table, "md", ["arm", "mean", "verdict"]))
        }
        for row in rows:
            own = alone.get(row[0], [row[0], "–", "–"])[1:]
            assert [unmarked(cell) for cell in row[1 + 2 * k : 3 + 2 * k]] == own


def test_a_footnote_stands_beside_the_recipe_that_it_is_about() -> None:
    """The arm has no mark, as nothing is missing on the other recipe."""
    rows = markdown_cells(across_recipes.render(two_tables(), "md", ["mean", "verdict"]))
    none = next(row for row in rows if row[0] == "position=none")
    note = re.search(r"\[(\d+)\] seeds 0, 1, 2, 3, 4 missing: not started", across_recipes.render(two_tables(), "md"))
    assert note[1] in re.findall(r"\d+", none[3])
    assert note[1] not in re.findall(r"\d+", none[1].partition("[")[2])


def test_latex_has_a_group_over_its_columns_and_html_a_cell() -> None:
    text = across_recipes.render(two_tables(), "latex")
    groups, head, *rows = latex.check(text)
    assert groups == [r"\multicolumn{1}{c}{}", r"\multicolumn{4}{c}{digits}", r"\multicolumn{4}{c}{cifar10}"]
    assert r"\cmidrule(lr){2-5}\cmidrule(lr){6-9}" in text
    assert (len(head), len(rows)) == (9, 4)
    assert '<th colspan="4" scope="colgroup">cifar10</th>' in across_recipes.render(two_tables(), "html")


def test_what_was_set_on_the_command_line_names_the_column() -> None:
    """The settings stand there instead of the hash in the folder's name."""
    changed = {"name": "position-embedding@digits+6c3b0f", "overrides": {"steps": 100, "batch": 16}}
    found = [study_table.table(synthetic.results(plan_on_recipe("digits", **given))) for given in ({}, changed)]
    text = across_recipes.render(found, "md", ["mean"])
    assert markdown_cells(text)[0] == ["arm", "digits: test accuracy", "digits with steps=100, batch=16: test accuracy"]
    rows = csv.DictReader(io.StringIO(across_recipes.render(found, "csv")))
    assert list(dict.fromkeys(row["recipe"] for row in rows)) == ["digits", "digits with steps=100, batch=16"]
    for format in ("md", "latex", "html", "csv"):
        assert "6c3b0f" not in across_recipes.render(found, format)


def test_csv_has_a_row_for_each_recipe_and_arm_and_json_a_table_for_each_recipe() -> None:
    tables = two_tables()
    rows = list(csv.DictReader(io.StringIO(across_recipes.render(tables, "csv"))))
    assert [(row["recipe"], row["arm"]) for row in rows] == [
        (one.recipe, row.arm) for one in tables for row in one.rows
    ]
    alone = [json.loads(layout.render(one, "json")) for one in tables]
    assert json.loads(across_recipes.render(tables, "json")) == alone


def test_an_unknown_column_is_one_line() -> None:
    for column, message in {"means": "columns=means: one of arm, ", "arm": "name at least one column of each"}.items():
        with pytest.raises(ValueError, match=message):
            across_recipes.render(two_tables(), "md", [column])


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
