"""Secondary metrics: the procedure beside Bretz's graphs, what a table tests, and what it remembers of them."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic
from latex import check

from results.records import SecondaryResult, Table
from results.statistics.verdict import gated_holm, holm
from results.store import ledger
from results.store.schemas.declarations import Declaration
from results.study_results import StudyResults
from results.tables import secondary_table
from results.tables.layout import render, render_side_by_side
from results.tables.study_table import table

TINY = Fraction(1, 10**15)  # of an edge that matters only where no other is left


def graph(arms: int, tests: int) -> tuple[list[Fraction], list[list[Fraction]]]:
    """Return the levels and the edges of a graph: first tests by arm, then the further tests of each arm in turn."""
    size = arms * (1 + tests)
    edges = [[Fraction(0)] * size for _ in range(size)]
    for arm in range(arms):
        own = [arms + arm * tests + number for number in range(tests)]
        others = [other for other in range(arms) if other != arm]
        for node in own:
            edges[arm][node] = Fraction(1, tests)
            to_others = TINY if tests > 1 else Fraction(1)
            for other in others:
                edges[node][other] = to_others / len(others)
            for further in own:
                if further != node:
                    edges[node][further] = (1 - TINY) / (tests - 1)
    return [Fraction(int(node < arms), arms) for node in range(size)], edges


def graphical(p: list[float], levels: list[Fraction], edges: list[list[Fraction]]) -> list[float]:
    """Return adjusted p values by algorithm 2 of Bretz, Maurer, Brannath and Posch (2009)."""
    left, largest, adjusted = set(range(len(p))), 0.0, [0.0] * len(p)
    while left:
        ratio = {node: p[node] / float(levels[node]) if levels[node] else np.inf for node in left}
        node = min(left, key=lambda node: ratio[node])
        largest = max(largest, min(1.0, ratio[node]))
        adjusted[node] = largest
        left.discard(node)
        updated = [list(row) for row in edges]
        for a in left:
            levels[a] += levels[node] * edges[node][a]
            for b in left - {a}:
                rest = 1 - edges[a][node] * edges[node][a]
                updated[a][b] = (edges[a][b] + edges[a][node] * edges[node][b]) / rest if rest else Fraction(0)
        edges = updated
    return adjusted


@pytest.mark.parametrize(("arms", "tests"), [(1, 1), (1, 3), (2, 1), (3, 2), (4, 2)])
def test_adjusted_p_values_are_those_of_the_graph(arms: int, tests: int) -> None:
    rng = np.random.default_rng(arms + 10 * tests)
    for _ in range(20):
        p = (rng.random(arms * (1 + tests)) ** 4).tolist()
        further = [p[arms + arm * tests : arms + (arm + 1) * tests] for arm in range(arms)]
        found_first, found_further = gated_holm(p[:arms], further, [True] * arms)
        expected = graphical(p, *graph(arms, tests))
        assert [*found_first, *np.ravel(found_further)] == pytest.approx(expected, rel=1e-6)


def test_an_arm_releases_its_level_once_all_of_its_metrics_are_resolved() -> None:
    """Planned arms without a test, closed gates and untested metrics keep theirs."""
    p = [0.001, 0.02, 0.03]
    whole = gated_holm(p, [[0.001], [0.001], [0.9]], [True] * 3)
    assert whole[0] == pytest.approx(holm(p))
    assert gated_holm(p, [[0.9], [0.9], [0.9]], [True] * 3)[0] == pytest.approx([0.003, 0.06, 0.09])
    closed = gated_holm(p, [[0.001], [0.001], [0.9]], [False, True, True])
    assert closed[0] == pytest.approx([0.003, 0.06, 0.06])
    assert closed[1][0] == [None]
    assert gated_holm(p, [[None], [None], [None]], [True] * 3)[0] == pytest.approx([0.003, 0.06, 0.09])
    assert gated_holm([None, 0.01], [[0.01], [0.01]], [True] * 2, family=4) == ([None, 0.04], [[None], [0.04]])


NAMES = ["test_loss", "fewshot5_accuracy", "flops"]
RNG = np.random.default_rng(3)
NOISE = RNG.normal(0, 0.004, (3, 4, 5))


def study(levels: dict[str, tuple[float, float, float]] | None = None, **given: Any) -> StudyResults:
    """Return a study with five seeds. levels: arm -> mean accuracy, loss and 5-shot accuracy; others are alike."""
    plan = synthetic.position(**{"secondary_metrics": NAMES, "claims": [], "margin": None} | given)
    made = synthetic.results(plan)
    columns = dict(made.columns)
    by_arm = [(levels or {}).get(arm["name"], (0.9, 0.4, 0.6)) for arm in plan["arms"]]
    for number, name in enumerate(("test_accuracy", "test_loss", "fewshot5_accuracy")):
        mean = np.array([level[number] for level in by_arm])[:, None]
        columns[name] = (mean + NOISE[number]).ravel().tolist()
    return replace(made, columns=columns, correct={})


WORSE = {"position=none": (0.7, 0.9, 0.6)}


def of(made: Table, arm: str, metric: str) -> SecondaryResult:
    return made.rows_by_arm[arm].secondary[metric]


def test_numbers_are_those_of_scipy() -> None:
    made = study(WORSE)
    found = of(table(made), "position=none", "test_loss")
    values = made.trials.pivot(index="seed", columns="arm", values="test_loss")
    test = scipy.stats.ttest_rel(values["position=none"], values["position=1d"])
    assert found.mean == pytest.approx(values["position=none"].mean())
    assert found.p == pytest.approx(test.pvalue)
    assert found.delta_ci95 == pytest.approx(tuple(test.confidence_interval()))
    first = table(made).rows_by_arm["position=none"]
    assert found.p_adjusted == pytest.approx(max(first.p_holm, 3 * 2 * test.pvalue))


@pytest.mark.parametrize(("paired", "expected"), [("by-seed", 5), ("no", None)])
def test_pairs_are_counted_in_paired_studies_alone(paired: str, expected: int | None) -> None:
    row = table(study(WORSE, paired=paired)).rows_by_arm["position=none"]
    assert (row.n_pairs, row.secondary["test_loss"].n_pairs) == (expected, expected)


def test_only_a_resolved_arm_is_tested_in_the_direction_of_each_metric() -> None:
    made = table(study(WORSE))
    assert made.rows_by_arm["position=none"].verdict == "worse"
    assert of(made, "position=none", "test_loss").verdict == "worse"  # although the loss is higher
    assert of(made, "position=none", "fewshot5_accuracy").verdict == "not-resolved"
    unresolved = table(study({"position=none": (0.9, 0.9, 0.6)}))
    closed = of(unresolved, "position=none", "test_loss")
    assert unresolved.rows_by_arm["position=none"].verdict == "not-resolved"
    assert (closed.p, closed.p_adjusted, closed.verdict) == (None, None, None)
    assert closed.untested == "the difference in test_accuracy is not resolved"
    assert closed.delta == pytest.approx(0.5, abs=0.02)


def test_parameters_and_flops_are_shown_and_not_tested() -> None:
    """They take nothing of the level: without others, p values are Holm's."""
    plain, sizes = (table(study(WORSE, secondary_metrics=names)) for names in ([], ["flops"]))
    assert [row.p_holm for row in sizes.rows] == [row.p_holm for row in plain.rows]
    found = of(sizes, "position=none", "flops")
    assert (found.mean, found.delta, found.ci95, found.verdict) == (1600000, 0, None, None)


def test_a_metric_that_trials_lack_is_not_tested_yet() -> None:
    made = study(WORSE)
    values = [*made.columns["fewshot5_accuracy"]]
    values[-1] = float("nan")
    found = table(replace(made, columns=made.columns | {"fewshot5_accuracy": values}))
    assert of(found, "position=none", "fewshot5_accuracy").untested == "1 finished trial without it"
    assert of(found, "position=none", "test_loss").verdict == "worse"
    assert "5-shot accuracy of some arms is not tested: 1 finished trial without it." in render(found, "md")


def test_an_unfinished_study_has_no_secondary_verdicts() -> None:
    made = study(WORSE)
    status = ["missing", *made.columns["status"][1:]]
    values = [float("nan"), *made.columns["test_accuracy"][1:]]
    made = replace(made, columns=made.columns | {"status": status, "test_accuracy": values})
    assert of(table(made), "position=none", "test_loss").verdict is None
    assert "verdict" not in secondary_table.as_grid(table(made)).header
    assert of(table(made, interim=True), "position=none", "test_loss").verdict == "worse"


def test_a_diverged_arm_is_not_called_better_in_another_metric() -> None:
    made = study({"position=none": (0.99, 0.1, 0.6)})
    row = made.columns["arm"].index("position=none")
    status = [*made.columns["status"]]
    values = [*made.columns["test_accuracy"]]
    status[row] = "diverged"
    values[row] = float("nan")
    found = table(replace(made, columns=made.columns | {"status": status, "test_accuracy": values}))
    assert found.rows_by_arm["position=none"].verdict == "not-resolved"
    assert of(found, "position=none", "test_loss").verdict is None


def test_tuned_arms_are_tested_beside_the_grid_of_the_other() -> None:
    """Each family has gates of its own; a tuned arm's loss must beat every point of the baseline's grid."""
    made = synthetic.results(synthetic.tuned_pooling(secondary_metrics=["test_loss"]))
    rates = made.plan.tune["lr"]
    columns = dict(made.columns)
    level = {"cls": [0.5, 0.4, 0.41], "gap": [0.5, 0.3, 0.5]}
    for name, top in (("test_accuracy", 1.0), ("val_accuracy", 1.0), ("test_loss", 0.0)):
        columns[name] = []
        for row, arm in enumerate(columns["arm"]):
            pool, rate = (part.partition("=")[2] for part in arm.split(","))
            columns[name].append(abs(top - level[pool][rates.index(float(rate))] - 0.001 * (row * row % 11)))
    found = table(replace(made, columns=columns, correct={})).rows_by_arm["pool=gap,lr=tuned"]
    losses = {arm: np.array(columns["test_loss"])[[a == arm for a in columns["arm"]]] for arm in columns["arm"]}
    of_grid = [losses[f"pool=cls,lr={rate}"] for rate in rates]
    largest = max(scipy.stats.ttest_rel(losses["pool=gap,lr=0.002"], other).pvalue for other in of_grid)
    assert (found.verdict, found.secondary["test_loss"].verdict) == ("better", "better")
    assert found.secondary["test_loss"].p == pytest.approx(largest)


# -- how it is shown ---------------------------------------------------------------------------------------------------


def test_the_second_table_says_in_words_what_is_not_tested() -> None:
    made = table(study(WORSE))
    text = render(made, "md").partition(": Secondary metrics")[2]
    row = next(line for line in text.splitlines() if line.startswith("| position=2d"))
    assert row.count("–") == 2
    assert "An arm is tested where its test accuracy is resolved." in text
    assert "–: not tested." in text
    assert "p after Holm over 3 planned contrasts, which share 5% with 2 secondary metrics" in render(made, "md")
    header, *rows = check(render(made, "latex").split("\n\n")[1])
    further = ["test loss", "difference", "verdict", "5-shot accuracy", "difference", "verdict"]
    assert header == ["arm", *further, "FLOPs", "Pareto"]
    assert rows[0][-2] == "1.6M"
    assert 'class="number" data-sort="1600000">1.6M</td>' in render(made, "html")


def test_files_have_secondary_metrics_only_where_a_study_has_them() -> None:
    made, plain = table(study(WORSE)), table(study(WORSE, secondary_metrics=[]))
    found = json.loads(render(made, "json"))
    assert found["secondary_metrics"] == NAMES
    assert found["rows"][0]["secondary"]["test_loss"]["verdict"] == "worse"
    bare = json.loads(render(plain, "json"))
    assert "secondary_metrics" not in bare
    assert "secondary" not in bare["rows"][0]
    header, first, *_ = render(made, "csv").splitlines()
    cells = dict(zip(header.split(","), first.split(","), strict=False))
    assert (cells["test_loss_verdict"], cells["fewshot5_accuracy_verdict"]) == ("worse", "not-resolved")
    both = render_side_by_side([plain, made], "csv").splitlines()
    assert {line.count(",") for line in both[1:2]} == {both[0].count(",") + both[1].count('", "')}
    assert "test_loss" not in render(plain, "csv")
    assert render(made, "csv", ["arm", "mean"]).splitlines()[0] == "arm,mean"


# -- what is remembered ------------------------------------------------------------------------------------------------


def redeclared(made: StudyResults, before: list[str]) -> Table:
    """Return the table of a study whose plan had other secondary metrics before its results."""
    plan = made.plan
    first = ledger.declaration(plan.model_copy(update={"secondary_metrics": before}), "2026-01-01T00:00:00Z")
    now = ledger.declaration(plan, "2026-01-02T00:00:00Z", sorted(plan.arm_trials))
    return table(replace(made, plan=plan.model_copy(update={"declarations": [first, now]})))


@pytest.mark.parametrize("before", [[], ["test_loss"], [*NAMES, "val_loss"], [*NAMES, "knn_accuracy"]])
def test_a_metric_that_was_added_or_dropped_after_results_is_named(before: list[str]) -> None:
    """A study that shares the trials may have declared an eval, such as k-NN, that was not computed yet."""
    made = redeclared(study(WORSE), before)
    then = ", ".join(["test_accuracy", *before])
    assert made.warnings[0].startswith(
        f"changed after there were results: metrics from {then} to test_accuracy, test_loss, fewshot5_accuracy, flops"
    )
    found = of(made, "position=none", "test_loss")
    assert found.verdict == "worse"
    assert found.first_declared == ("worse" if "test_loss" in before else "no verdict")
    assert ("worse (first declared: no verdict)" in render(made, "md")) == ("test_loss" not in before)
    assert ("position=none in test_loss no verdict" in made.warnings[0]) == ("test_loss" not in before)


def test_the_order_of_secondary_metrics_is_no_change() -> None:
    assert redeclared(study(WORSE), NAMES[::-1]).warnings == []


def test_declarations_without_secondary_metrics_stay_as_they_were() -> None:
    plan = study(secondary_metrics=[]).plan
    assert "secondary_metrics" not in ledger.declaration(plan).content()
    content = ledger.declaration(study().plan).content()
    assert Declaration.model_validate(content).secondary_metrics == NAMES
