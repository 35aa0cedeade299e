"""Crosses and their interactions: which arms there are, and whether two changes add up."""

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic
from designs import design, names
from statsmodels.stats.multitest import multipletests

from ablations.planning import plan as planning
from results import report
from results.records import Table
from results.store.record import Record
from results.study_results import StudyResults
from results.tables import layout
from results.tables.layout import render
from results.tables.study_table import table

CROSS = """
    question: Which?
    baseline: {position: 1d, pool: cls}
    factors: {position: [none, 1d, 2d]}
    crosses: [{position: [1d, 2d], pool: [cls, gap]}]
"""
TABLE_8 = """
    question: Which?
    baseline: {position: 1d}
    factors: {position: [none, 1d, 2d, relative]}
    crosses: [{position: [1d, 2d], position_at: [input, every-layer, shared]}]
"""
ARMS = {"ab": "position=2d,pool=gap", "a": "position=2d", "b": "pool=gap", "baseline": "position=1d,pool=cls"}


def crossed_plan(**given: Any) -> dict[str, Any]:
    """Return a plan of four made-up arms and their interaction."""
    baseline = {"position": "1d", "pool": "cls"}
    plan = synthetic.make_plan("cross", {"position": ["1d", "2d"], "pool": ["cls", "gap"]}, baseline, **given)
    synthetic.add_arm(plan, ARMS["ab"], plan["arms"][0]["config"] | {"position": "2d", "pool": "gap"})
    return plan | {"interactions": [{"name": ARMS["ab"], **ARMS}]}


def study(accuracies: dict[str, Any], plan: dict[str, Any] | None = None, **records: Record) -> StudyResults:
    plan = plan or crossed_plan()
    by_name = {ARMS.get(role, role): values for role, values in accuracies.items()}
    return synthetic.results(plan, synthetic.from_accuracies(plan, by_name) | records)


def make_table(accuracies: dict[str, Any], plan: dict[str, Any] | None = None, **records: Record) -> Table:
    return table(study(accuracies, plan, **records), interim=True)


ADDITIVE = {
    "baseline": [0.80, 0.81, 0.79, 0.80, 0.82],
    "a": [0.84, 0.86, 0.83, 0.84, 0.85],
    "b": [0.75, 0.74, 0.75, 0.76, 0.77],
    "ab": [0.79, 0.80, 0.78, 0.81, 0.80],
}
TOGETHER = ADDITIVE | {"ab": [0.91, 0.92, 0.90, 0.92, 0.91]}


def test_table_8_is_eight_arms(tmp_path: Path) -> None:
    assert names(design(tmp_path, TABLE_8)) == [
        "position=none", "position=1d", "position=2d", "position=relative",
        "position_at=every-layer", "position_at=shared",
        "position=2d,position_at=every-layer", "position=2d,position_at=shared",
    ]  # fmt: skip


def test_a_cross_gets_the_baselines_own_value(tmp_path: Path) -> None:
    """Without the baseline's value no change would stand alone."""
    study = "{question: q, baseline: {position: 1d, pool: cls}, crosses: [{position: [2d], pool: [gap]}]}"
    made = design(tmp_path, study)
    assert names(made) == ["position=1d,pool=cls", "pool=gap", "position=2d", "position=2d,pool=gap"]
    assert {arm.baseline for arm in made.arms} == {"position=1d,pool=cls"}


THREE = """
    question: Which?
    baseline: {position: 1d, pool: cls, stem: patch}
    crosses: [{position: [1d, 2d], pool: [cls, gap], stem: [patch, conv]}]
"""


@pytest.mark.parametrize(
    ("study", "arms", "interactions"),
    [
        (CROSS, 5, ["position=2d,pool=gap"]),
        (CROSS + "    exclude: [{position: 2d, pool: gap}]", 4, []),
        (
            CROSS + "    curves: {data_fraction: axis}",
            10,
            [f"position=2d,pool=gap,data_fraction={part}" for part in (0.1, 1.0)],
        ),
        (THREE, 8, ["position=2d,pool=gap", "position=2d,stem=conv", "pool=gap,stem=conv"]),
    ],
)
def test_factors_interact_where_all_arms_are(tmp_path: Path, study: str, arms: int, interactions: list[str]) -> None:
    """Every point of a curve has an interaction. A third factor is at the baseline's value."""
    plan = planning.build(design(tmp_path, study), [0])
    assert len(plan.arms) == arms
    assert [entry.name for entry in plan.interactions] == interactions
    for entry in plan.interactions[:1]:
        first, second, *point = entry.name.split(",")
        both = ",".join([first, second, *point])
        alone = [",".join([one, *point]) for one in (first, second)]
        assert entry.arms[:3] == [both, *alone]
        assert entry.arms[3] in {arm.baseline for arm in plan.arms}


def test_numbers_are_those_of_scipy() -> None:
    """The t test is of ab - a - b + baseline, and of its empirical logit."""
    (found,) = make_table(TOGETHER).interactions
    images = 1797 / 5
    seeds = {role: np.array(values) for role, values in TOGETHER.items()}
    logits = {role: np.log((right * images + 0.5) / (images - right * images + 0.5)) for role, right in seeds.items()}
    for of, value, interval in ((seeds, found.interaction, found.ci95), (logits, found.logit, found.logit_ci95)):
        extra = of["ab"] - of["a"] - of["b"] + of["baseline"]
        assert value == pytest.approx(extra.mean())
        assert interval == pytest.approx(tuple(scipy.stats.ttest_1samp(extra, 0.0).confidence_interval()))
    extra = seeds["ab"] - seeds["a"] - seeds["b"] + seeds["baseline"]
    assert found.p == pytest.approx(scipy.stats.ttest_1samp(extra, 0.0).pvalue)
    assert (found.verdict, found.n) == ("positive", 5)


def test_changes_that_add_up_have_no_interaction_and_a_loss_has_no_logit() -> None:
    (found,) = make_table(ADDITIVE).interactions
    assert found.verdict == "not-resolved"
    (found,) = make_table(TOGETHER, crossed_plan(metric="test_loss")).interactions
    assert (found.logit, found.logit_ci95) == (None, None)


def test_an_interaction_of_the_scale_alone_is_not_claimed() -> None:
    """Near 100% two gains cannot add up, but their odds can: the signs differ."""
    noise = np.array([0.0, 0.001, -0.001, 0.002, -0.002])
    near = {"baseline": 0.80, "a": 0.94, "b": 0.94, "ab": 0.99}
    seeds = {role: (value + np.roll(noise, i)).tolist() for i, (role, value) in enumerate(near.items())}
    (found,) = make_table(seeds).interactions
    assert found.interaction < 0 < found.logit
    assert found.p_holm < 0.05
    assert found.verdict == "not-resolved"
    assert found.notes == ["its logit has the opposite sign: an interaction of the scale"]


def test_interactions_are_a_family_of_their_own() -> None:
    """Holm counts a planned interaction without a number as p = 1."""
    plan = crossed_plan()
    missing = {"name": "other", **ARMS, "ab": "never"}
    never = plan["arms"][1] | {"name": "never", "trials": [{"seed": s, "id": f"{s:012x}"} for s in plan["seeds"]]}
    two = plan | {"arms": [*plan["arms"], never], "interactions": [*plan["interactions"], missing]}
    first, second = make_table(TOGETHER | {"never": [None] * 5}, two).interactions
    assert first.p_holm == pytest.approx(multipletests([first.p, 1.0], method="holm")[1][0])
    assert (second.verdict, second.notes) == (None, ["untested: n = 0"])


def test_a_diverged_trial_leaves_an_interaction_unresolved() -> None:
    lost = {synthetic.trial_id(crossed_plan(), "pool=gap", 4): synthetic.hole("diverged")}
    (found,) = make_table(TOGETHER, **lost).interactions
    assert (found.verdict, found.n) == ("not-resolved", 4)
    assert found.notes == ["trials of pool=gap diverged"]


def test_interactions_are_described_below_the_table_and_in_the_report() -> None:
    found = make_table(TOGETHER)
    told = "position=2d,pool=gap: +11.80 points (95% CI +10.76 to +12.84; logit +0.93): positive"
    assert f"{told}." in render(found, "md")
    assert "Holm over 1" in render(found, "latex")
    page = report.render([study(TOGETHER)], datetime(2026, 1, 2, tzinfo=UTC))
    assert "corrected as a family of 1 (Holm)" in page
    assert f"<li>{told}</li>" in page


def test_files_have_interactions_too() -> None:
    """JSON has a list; CSV has columns beside the arm with both changes, only where there are interactions."""
    found = make_table(TOGETHER)
    (one,) = json.loads(render(found, "json"))["interactions"]
    *others, both = csv.DictReader(io.StringIO(render(found, "csv")))
    assert both["arm"] == one["name"] == ARMS["ab"]
    assert [float(both["interaction"]), float(both["interaction_n"])] == pytest.approx([one["interaction"], one["n"]])
    assert [float(both[f"interaction_ci95_{end}"]) for end in ("low", "high")] == pytest.approx(one["ci95"])
    assert both["interaction_verdict"] == one["verdict"] == "positive"
    assert {row[name] for row in others for name in row if name.startswith("interaction")} == {""}
    plain = table(synthetic.results(synthetic.position()))
    assert "interaction" not in render(plain, "csv")
    assert render(found, "csv", ["arm", "mean"]).splitlines()[0] == "arm,mean"
    both_recipes = list(csv.DictReader(io.StringIO(layout.render_side_by_side([plain, found], "csv"))))
    assert [row["interaction_verdict"] for row in both_recipes if row["interaction_verdict"]] == ["positive"]


def test_where_something_is_tuned_arms_interact_at_their_own_values(tmp_path: Path) -> None:
    """The four arms are the tuned ones; a best value at the edge of the grid prevents a verdict."""
    plan = planning.build(design(tmp_path, CROSS + "    tune: {lr: [1e-3, 2e-3, 4e-3]}\n"), range(3))
    (entry,) = plan.interactions
    assert entry.ab == "position=2d,pool=gap,lr=tuned"
    assert set(entry.arms) <= {one.name for one in plan.tuned}
    best = {"0.001": 0.5, "0.002": 0.9, "0.004": 0.6}
    rng = np.random.default_rng(0)
    inside = {a.name: (best[a.name.partition("lr=")[2]] + rng.normal(0, 0.01, 3)).tolist() for a in plan.arms}
    (found,) = make_table(inside, plan).interactions
    assert (found.n, found.verdict) == (3, "not-resolved")
    edge = {name: [0.95] * 3 if name == "pool=gap,lr=0.004" else values for name, values in inside.items()}
    (found,) = make_table(edge, plan).interactions
    assert (found.p_holm, found.verdict) == (None, None)
    assert found.notes == ["untested: the best value of an arm lies at the edge of its grid"]
