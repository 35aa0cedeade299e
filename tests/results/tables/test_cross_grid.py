"""The grid of a cross of two factors: which arm stands where, and what its cell says."""

import json
from datetime import UTC, datetime
from typing import Any

import latex
import pytest
import synthetic

from results import report
from results.records import Table
from results.style import Style, use_style
from results.tables.layout import render
from results.tables.study_table import table

BASELINE = {"position": "1d", "pool": "cls"}
CROSS = {"position": ["none", "1d", "2d"], "pool": ["cls", "gap"]}
LOW = {"position=none", "position=none,pool=gap"}


def crossed(factors: dict[str, Any] = CROSS, baseline: dict[str, str] = BASELINE, **given: Any) -> dict[str, Any]:
    """Return a plan of a cross without the arm position=2d,pool=gap, at every point of its curves."""
    plan = synthetic.make_plan("cross", factors, baseline, crosses=[CROSS], margin=None, **given)
    for arm in [arm for arm in plan["arms"] if arm["name"].startswith("position=none")]:
        point = arm["name"].removeprefix("position=none")
        both = {"values": arm["values"] | {"pool": "gap"}, "baseline": arm["baseline"]}
        synthetic.add_arm(plan, f"position=none,pool=gap{point}", arm["config"] | {"pool": "gap"}, **both)
    return plan


def made(plan: dict[str, Any], **holes: Any) -> Table:
    accuracies = {}
    for number, arm in enumerate(plan["arms"]):
        level = 0.5 if arm["name"] in LOW else 0.9
        accuracies[arm["name"]] = [level + 0.001 * ((seed * number) % 5) for seed in plan["seeds"]]
    return table(synthetic.results(plan, synthetic.from_accuracies(plan, accuracies) | holes))


def grids(of: Table) -> list[dict[str, Any]]:
    return json.loads(render(of, "json")).get("grids", [])


def test_each_arm_stands_at_its_two_values() -> None:
    """The longer factor goes down, whichever is named first; an arm that the study leaves out is null."""
    (grid,) = grids(made(crossed()))
    assert (grid["rows"], grid["columns"], grid["at"]) == ("position", "pool", {})
    assert grid["row_values"] == CROSS["position"]
    assert grid["cells"] == [
        ["position=none", "position=none,pool=gap"],
        ["position=1d,pool=cls", "pool=gap"],
        ["position=2d", None],
    ]
    turned = crossed() | {"crosses": [{"pool": CROSS["pool"], "position": CROSS["position"]}]}
    assert grids(made(turned)) == [grid]


def test_every_point_of_a_curve_has_a_grid() -> None:
    first, second = grids(made(crossed(curves={"lr": [0.001, 0.002]})))
    assert [first["at"], second["at"]] == [{"lr": 0.001}, {"lr": 0.002}]
    assert second["cells"][0] == ["position=none,lr=0.002", "position=none,pool=gap,lr=0.002"]
    assert second["cells"][1] == ["position=1d,pool=cls,lr=0.002", "pool=gap,lr=0.002"]


def test_a_named_arm_and_a_third_factor_stay_outside() -> None:
    plan = crossed({**CROSS, "stem": ["patch", "conv"]}, BASELINE | {"stem": "patch"})
    synthetic.add_arm(plan, "ours", plan["arms"][0]["config"] | {"lr": 0.1}, values=plan["arms"][0]["values"])
    (grid,) = grids(made(plan))
    assert grid["cells"] == [
        ["position=none", "position=none,pool=gap"],
        ["position=1d,pool=cls,stem=patch", "pool=gap"],
        ["position=2d", None],
    ]


def test_three_crossed_factors_and_named_columns_give_no_grid() -> None:
    three = crossed() | {"crosses": [{**CROSS, "stem": ["patch"]}]}
    assert grids(made(three)) == []
    assert "position × pool" not in render(made(crossed()), "md", ["arm", "mean"])
    assert "position × pool" not in render(made(crossed()), "csv")


@pytest.mark.parametrize("format", ["md", "latex", "html"])
def test_cells_have_means_verdicts_and_what_is_absent(format: str) -> None:
    plan = crossed()
    lost = {synthetic.trial_id(plan, "pool=gap", 4): synthetic.hole("diverged")}
    text = render(made(plan, **lost), format).partition("position × pool" if format != "latex" else r"$\times$")[2]
    pm = r"$\pm$" if format == "latex" else "±"
    assert f"50.20 {pm} 0.20 (worse)" in text
    assert "(baseline)" in text
    assert "1 of 5 diverged)" in text
    assert "not resolved)" not in text


def test_latex_is_whole_and_has_its_own_label() -> None:
    _, grid = render(made(crossed()), "latex").split("\n\n")
    assert r"\label{tab:cross-digits-position-pool}" in grid
    heading, header, *rows = latex.check(grid)
    assert heading == [r"\multicolumn{1}{c}{}", r"\multicolumn{2}{c}{pool}"]
    assert header == ["position", "cls", "gap"]
    assert [row[0] for row in rows] == ["none", "1d", "2d"]
    assert rows[2][2] == "--"


def test_a_style_names_factors_and_values() -> None:
    with use_style(Style(labels={"position=none": "no position", "pool": "pooling"})):
        text = render(made(crossed()), "md")
    assert "| position    | pooling: cls " in text
    assert "| no position | 50." in text


def test_an_unfinished_study_has_no_verdicts_in_its_grid() -> None:
    plan = crossed()
    lost = {synthetic.trial_id(plan, "pool=gap", 4): synthetic.hole("missing", "not started")}
    text = render(made(plan, **lost), "md").partition("position × pool")[2]
    assert "no verdict yet" in text
    assert "worse" not in text
    assert "1 of 5 missing)" in text


def test_the_report_has_the_grid() -> None:
    plan = crossed()
    values = {arm["name"]: [0.9, 0.91, 0.92, 0.91, 0.9] for arm in plan["arms"]}
    study = synthetic.results(plan, synthetic.from_accuracies(plan, values))
    page = report.render([study], datetime(2026, 1, 2, tzinfo=UTC))
    assert page.startswith("<!DOCTYPE html>")
    assert "<h3>position × pool</h3>" in page
    assert '<th colspan="2" scope="colgroup">pool</th>' in page
