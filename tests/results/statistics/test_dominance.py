"""Dominated arms: what the intervals must show, beside numbers that no seed changes."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic

from results.records import Table
from results.study_results import StudyResults
from results.tables.layout import render
from results.tables.study_table import table

NOISE = np.random.default_rng(5).normal(0, 0.002, (3, 5))
COSTS = {"a": (0.9, 100), "b": (0.9, 100), "c": (0.9, 100)}


def study(arms: dict[str, tuple[float, int]], metrics: list[str] | None = None, **given: Any) -> StudyResults:
    """Return a study of three arms. arms: value -> mean accuracy and FLOPs."""
    named = {"stem": list(arms)}
    plan = synthetic.make_plan("s", named, {"stem": "a"}, secondary_metrics=metrics or ["flops"], margin=None, **given)
    for arm in plan["arms"]:
        arm["flops"] = arms[arm["values"]["stem"]][1]
    made = synthetic.results(plan, synthetic.from_accuracies(plan, {arm["name"]: [0.9] * 5 for arm in plan["arms"]}))
    levels = np.array([arms[arm["values"]["stem"]][0] for arm in plan["arms"]])[:, None]
    values = (levels + np.resize(NOISE, (len(levels), 5))).ravel().tolist()
    columns = made.columns | {"test_accuracy": values, "test_loss": [1 - value for value in values]}
    kept = [arm.model_copy(update={"flops": arms[arm.values["stem"]][1]}) for arm in made.plan.arms]
    return replace(made, plan=made.plan.model_copy(update={"arms": kept}), columns=columns, correct={})


def dominated(made: Table) -> dict[str, list[str]]:
    return {row.arm: list(row.dominated_by) for row in made.rows}


def test_an_arm_is_dominated_where_another_is_better_and_costs_no_more() -> None:
    found = dominated(table(study({"a": (0.9, 100), "b": (0.8, 100), "c": (0.8, 50)})))
    assert found == {"stem=a": [], "stem=b": ["stem=a"], "stem=c": []}  # c and b: no accuracy is resolved


def test_a_cheaper_arm_of_unresolved_accuracy_dominates_nothing() -> None:
    """Nothing shows that it is not worse."""
    assert dominated(table(study(COSTS | {"b": (0.9, 10)}))) == {"stem=a": [], "stem=b": [], "stem=c": []}


def test_every_metric_counts_in_its_direction() -> None:
    low = study(COSTS | {"b": (0.8, 100)}, ["test_loss", "flops"])
    assert dominated(table(low))["stem=b"] == ["stem=a", "stem=c"]
    turned = replace(low, columns=low.columns | {"test_loss": low.columns["test_accuracy"]})
    assert dominated(table(turned))["stem=b"] == []


@pytest.mark.parametrize("side", [0.999, 1.001])
def test_intervals_hold_for_all_pairs_and_metrics_at_once(side: float) -> None:
    """With three arms there are three pairs, each in one metric that varies by seed."""
    difference = NOISE[0] - NOISE[1]
    half = scipy.stats.t.ppf(1 - 0.05 / 3 / 2, 4) * difference.std(ddof=1) / np.sqrt(5)
    gap = side * half - difference.mean()
    found = dominated(table(study({"a": (0.9, 100), "b": (0.9 - gap, 100), "c": (0.5, 1)})))
    assert ("stem=a" in found["stem=b"]) == (side > 1)


def test_an_arm_that_breaks_down_dominates_nothing() -> None:
    made = study(COSTS | {"b": (0.8, 100)})
    status = ["diverged", *made.columns["status"][1:]]
    values = [float("nan"), *made.columns["test_accuracy"][1:]]
    broken = replace(made, columns=made.columns | {"status": status, "test_accuracy": values})
    assert dominated(table(broken))["stem=b"] == ["stem=c"]


def test_arms_are_compared_at_their_own_point_of_a_curve() -> None:
    made = study({"a": (0.9, 100), "b": (0.8, 100)}, curves={"data_fraction": [0.1, 1.0]})
    assert dominated(table(made))["stem=b,data_fraction=1.0"] == ["stem=a,data_fraction=1.0"]


def test_one_metric_and_unfinished_studies_say_nothing_of_dominance() -> None:
    made = study(COSTS | {"b": (0.8, 100)})
    one = table(replace(made, plan=made.plan.model_copy(update={"secondary_metrics": []})))
    assert {row.dominated_by for row in one.rows} == {None}
    assert "dominated_by" not in json.loads(render(one, "json"))["rows"][0]
    values = [float("nan"), *made.columns["test_accuracy"][1:]]
    missing = replace(made, columns=made.columns | {"status": ["missing"] * 15, "test_accuracy": values})
    assert "Pareto" not in render(table(missing), "md")


def test_the_second_table_names_who_dominates() -> None:
    found = table(study({"a": (0.9, 100), "b": (0.8, 100), "c": (0.9, 100)}))
    text = render(found, "md")
    assert "dominated by stem=a and 1 more |" in text
    assert text.count("not dominated ") == 2
    assert json.loads(render(found, "json"))["rows"][1]["dominated_by"] == ["stem=a", "stem=c"]
