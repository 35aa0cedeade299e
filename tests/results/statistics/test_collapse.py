"""Trials that collapsed are an outcome: counted, named, and part of every verdict."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic

from results import export
from results.comparison.compare import compare
from results.records import Table
from results.store.schemas.plans import Plan
from results.study_results import StudyResults, collapsed_seeds
from results.tables import layout, sentences
from results.tables.study_table import table

BASELINE = [0.94, 0.95, 0.93, 0.94, 0.96]
BETTER = [0.955, 0.966, 0.944, 0.956, 0.974]  # by 1.5 points
WORSE = [0.76, 0.75, 0.77, 0.74, 0.78]


def study(*arms: Sequence[float | None], **given: Any) -> StudyResults:
    stems = [f"v{i}" for i in range(len(arms))]
    plan = synthetic.make_plan("s", {"stem": stems}, {"stem": "v0"}, seeds=len(arms[0]), **given)
    for arm in plan["arms"]:
        arm["config"]["classes"] = 10
    values = dict(zip((f"stem={name}" for name in stems), arms, strict=True))
    return synthetic.results(plan, synthetic.from_accuracies(plan, values))


def made(*arms: Sequence[float | None], **given: Any) -> Table:
    return table(study(*arms, **given))


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([0.94, 0.95, 0.11, 0.94, 0.96], [2]),  # chance is 10%; of 359 images, 12.6% is not yet more
        ([0.94, 0.95, 0.125, 0.94, 0.46], [2, 4]),
        ([0.94, 0.95, 0.48, 0.94, 0.96], []),  # half of what the others reach, and more
        ([0.1, 0.09, 0.11, 0.1, 0.12], [0, 1, 2, 3, 4]),
        ([0.2, 0.19, 0.21, 0.2, 0.22], []),  # poor, but learned
        ([0.2, 0.5], [0]),
        ([0.3], []),
    ],
)
def test_a_trial_collapsed_at_chance_or_below_half_of_the_others(accuracies: list[float], expected: list[int]) -> None:
    plan = study([0.9] * 5).plan
    assert collapsed_seeds(dict(enumerate(accuracies)), plan, plan.arms[0]) == expected


def test_a_loss_does_not_collapse_and_unknown_chance_is_not_assumed() -> None:
    losses = study([0.9] * 5, metric="test_loss", margin=None).plan
    assert collapsed_seeds({0: 2.0, 1: 0.1}, losses, losses.arms[0]) == []
    pretext = Plan.model_validate(synthetic.position())
    pixels = [arm.model_copy(update={"config": arm.config | {"objective": "mae"}}) for arm in pretext.arms]
    assert collapsed_seeds({0: 0.05, 1: 0.06}, pretext.model_copy(update={"arms": pixels}), pixels[0]) == []


def test_a_collapsed_trial_is_counted_named_and_exported(tmp_path: Path) -> None:
    found = study(BASELINE, [*BETTER[:3], 0.1003, BETTER[4]])
    row = table(found).rows[1]
    assert (row.n, row.diverged, row.collapsed) == (5, 0, 1)
    assert "seed 3 collapsed: 10.03%" in row.notes
    assert "1 of 5 collapsed (95% interval 1% to 72%)" in row.notes
    assert json.loads(layout.render(table(found), "json"))["rows"][1]["collapsed"] == 1
    assert "collapsed" in layout.render(table(found), "csv").splitlines()[0].split(",")
    assert "1 of 5 trials collapsed" in sentences.answer(table(found))
    lines = export.csv_text([found]).splitlines()
    at = lines[0].split(",").index("collapsed")
    assert [line.split(",")[at] for line in lines[1:]] == ["False"] * 8 + ["True", "False"]
    assert compare([found], [found]).rows[1].b.collapsed == 1


def test_an_arm_that_collapses_more_often_is_neither_better_nor_equivalent() -> None:
    """At 40 seeds the differences alone favor the arm or tie, although three trials collapsed."""
    rng = np.random.default_rng(4)
    base = (0.5 + rng.normal(0, 0.01, 40)).tolist()
    for gain in (0.1, 0.0182):
        arm = (np.array(base) + gain + rng.normal(0, 0.001, 40)).tolist()
        assert made(base, arm, margin=0.2).rows[1].verdict == "better"
        row = made(base, [0.24, *arm[1:]], margin=0.2).rows[1]
        assert (row.collapsed, row.verdict) == (1, "not-resolved")


def test_an_arm_whose_trials_all_collapse_is_worse() -> None:
    assert made(BASELINE, [0.1, 0.09, 0.11, 0.1, 0.12]).rows[1].verdict == "worse"
    assert made([0.1, 0.09, 0.11, 0.1, 0.12], BASELINE).rows[1].verdict == "better"


def test_a_comparison_counts_collapsed_trials() -> None:
    rng = np.random.default_rng(4)
    base = (0.5 + rng.normal(0, 0.01, 40)).tolist()
    arm = (np.array(base) + 0.1 + rng.normal(0, 0.001, 40)).tolist()
    assert compare([study(base)], [study(arm)]).rows[0].verdict == "better"
    assert compare([study(base)], [study([0.24, *arm[1:]])]).rows[0].verdict == "not-resolved"


@pytest.mark.parametrize(("seeds", "expected"), [(5, "51%"), (9, "30%"), (2, "77%"), (10, None), (1, None)])
def test_few_seeds_are_said_to_miss_rare_failures(seeds: int, expected: str | None) -> None:
    found = made([*BASELINE, *BASELINE][:seeds], [*WORSE, *WORSE][:seeds])
    said = f"An arm that fails in 1 of 8 trials shows no failure in {expected} of studies with {seeds} seeds."
    for form in ("md", "latex", "html"):
        text = layout.render(found, form, notes="none").replace("\\%", "%")
        assert ("shows no failure" in text, said in text) == (expected is not None, expected is not None)
