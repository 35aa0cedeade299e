"""Margins of equivalence: what the baseline's error supports, shares of the error, and the smallest margin met."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import synthetic
from statsmodels.stats.multitest import multipletests

from results.comparison.compare import compare
from results.records import Table
from results.store.schemas.metrics import checked_margin
from results.store.schemas.plans import Plan, Split
from results.study_results import StudyResults
from results.tables import layout
from results.tables.study_table import table

OFFICIAL = {"kind": "official", "folds": None, "images": 100}
MANY = Split(kind="official", images=10**9)  # so many that half of one is no spread
BASELINE = np.array([0.978, 0.981, 0.974, 0.979, 0.977])  # errs in 2.2%
NEARLY = BASELINE + np.array([0.0004, -0.0006, 0.0002, -0.0004, 0.0001])


def made(*arms: Sequence[float] | np.ndarray, **given: Any) -> Table:
    """Return the table of a study with these accuracies by seed, the baseline's first."""
    return table(study(*arms, **given))


def study(*arms: Sequence[float] | np.ndarray, **given: Any) -> StudyResults:
    stems = [f"v{i}" for i in range(len(arms))]
    plan = synthetic.make_plan("s", {"stem": stems}, {"stem": "v0"}, split=OFFICIAL, **given)
    for arm in plan["arms"]:
        arm["config"]["classes"] = 10
    values = {f"stem={name}": list(map(float, arm)) for name, arm in zip(stems, arms, strict=True)}
    return on_many_images(plan, values)


def on_many_images(plan: dict[str, Any], values: Mapping[str, Sequence[float | None]]) -> StudyResults:
    found = synthetic.results(plan, synthetic.from_accuracies(plan, values))
    return replace(found, plan=found.plan.model_copy(update={"split": MANY}))


@pytest.mark.parametrize(
    ("baseline", "margin", "reason"),
    [
        (BASELINE, 0.03, "the margin of 3.00 points exceeds half of the baseline's error of 2.22 points"),
        (BASELINE, 0.012, "the margin of 1.20 points exceeds half of the baseline's error of 2.22 points"),
        (BASELINE, 0.01, ""),
        (BASELINE, "50%", ""),
        (BASELINE - 0.838, 0.03, "half of the baseline's accuracy above chance (10.00%) of 3.98 points"),
        (BASELINE - 0.838, 0.015, ""),
    ],
)
def test_no_arm_is_equivalent_within_a_margin_that_the_baseline_does_not_support(
    baseline: np.ndarray, margin: float | str, reason: str
) -> None:
    """The reason stands in the row's notes and in the table's, and the claim of a tie has it too."""
    found = made(baseline, baseline + (NEARLY - BASELINE), margin=margin, claims=["stem=v1 ~ stem=v0"])
    row = found.rows[1]
    assert row.verdict == ("not-resolved" if reason else "equivalent")
    assert found.claims[0].verdict == ("not-resolved" if reason else "agree")
    for notes in (row.notes, found.notes, [found.claims[0].note]):
        assert any("called equivalent" in note and reason in note for note in notes) == bool(reason)


def test_each_baseline_of_a_curve_supports_its_own_margin() -> None:
    """At 2.2% errors 3 points are too much; at 15% they are not."""
    plan = synthetic.make_plan("s", {"stem": ["a", "b"]}, {"stem": "a"}, curves={"lr": [0.1, 0.2]}, split=OFFICIAL)
    values = {"stem=a,lr=0.1": BASELINE, "stem=b,lr=0.1": NEARLY}
    values |= {"stem=a,lr=0.2": BASELINE - 0.13, "stem=b,lr=0.2": NEARLY - 0.13}
    found = table(on_many_images(plan, {name: list(map(float, arm)) for name, arm in values.items()}))
    verdicts = {row.arm: row.verdict for row in found.rows if row.delta is not None}
    assert verdicts == {"stem=b,lr=0.1": "not-resolved", "stem=b,lr=0.2": "equivalent"}
    (note,) = [note for note in found.notes if "called equivalent" in note]
    assert note.startswith("no arm is called equivalent to stem=a,lr=0.1: the margin")


def share_p(arm: np.ndarray, baseline: np.ndarray, share: float) -> float:
    """Return the p value of equivalence within a share of the baseline's error, by t tests of per-seed contrasts."""
    more = scipy.stats.ttest_1samp((1 - arm) - (1 + share) * (1 - baseline), 0, alternative="less").pvalue
    fewer = scipy.stats.ttest_1samp((1 - arm) - (1 - share) * (1 - baseline), 0, alternative="greater").pvalue
    return float(max(more, fewer))


@pytest.mark.parametrize("share", [0.05, 0.1, 0.25, 0.5])
def test_a_share_is_tested_by_linear_contrasts_of_each_seeds_errors(share: float) -> None:
    rng = np.random.default_rng(int(100 * share))
    for _ in range(20):
        baseline = 0.9 + rng.normal(0, 0.01, 5)
        arms = [baseline + rng.normal(0, 0.006, 5) for _ in range(3)]
        rows = made(baseline, *arms, margin=f"{100 * share:g}%").rows[1:]
        p = multipletests([share_p(arm, baseline, share) for arm in arms], method="holm")[1]
        resolved = [row.verdict in ("better", "worse") for row in rows]
        assert [row.verdict == "equivalent" for row in rows] == [
            one < 0.05 and not other for one, other in zip(p, resolved, strict=True)
        ]


def smallest_by_search(row: int, p_of: Any, high: float, precision: float) -> float:
    """Return the smallest margin at which Holm's method rejects hypothesis `row`, by bisection."""

    def excess(margin: float) -> float:
        return float(multipletests(p_of(margin), method="holm")[1][row]) - 0.05

    return float(scipy.optimize.brentq(excess, 1e-9, high, xtol=precision))


def test_the_smallest_margin_met_is_that_of_holms_method() -> None:
    """A margin chosen afterwards is held to the correction of the verdict: statsmodels finds the same by search."""
    rng = np.random.default_rng(5)
    baseline = 0.8 + rng.normal(0, 0.02, 6)
    arms = [baseline + rng.normal(shift, 0.01, 6) for shift in (0.0, 0.001, 0.02, -0.03, 0.0)]
    rows = made(baseline, *arms, margin=0.05, seeds=6).rows[1:]

    def p_of(margin: float) -> list[float]:
        found = []
        for arm in arms:
            below = scipy.stats.ttest_1samp(arm - baseline, margin, alternative="less").pvalue
            above = scipy.stats.ttest_1samp(arm - baseline, -margin, alternative="greater").pvalue
            found.append(max(below, above))
        return found

    assert [row.margin_met for row in rows] == pytest.approx([smallest_by_search(i, p_of, 0.5, 1e-9) for i in range(5)])
    shares = made(baseline, *arms, margin="25%", seeds=6).rows[1:]
    for i, row in enumerate(shares):
        exact = smallest_by_search(i, lambda share: [share_p(arm, baseline, share) for arm in arms], 5.0, 1e-4)
        assert float(str(row.margin_met).removesuffix("%")) == pytest.approx(100 * exact, abs=0.1)


@pytest.mark.parametrize("gain", [0.0, 0.03])
@pytest.mark.parametrize("margin", [0.02, "25%"])
def test_identical_differences_meet_no_margin(margin: float | str, gain: float) -> None:
    """They have no test, although the errors of which a margin is a share vary, and they lend no level to others."""
    other = BASELINE - 0.1 + np.array([0.003, -0.002, 0.001, -0.003, 0.002])
    found = made(BASELINE - 0.1, BASELINE - 0.1 + gain, other, margin=margin)
    _, same, tested = found.rows
    assert (same.delta_ci95, same.verdict, same.margin_met) == (None, None, None)
    missing = made(BASELINE - 0.1, other, margin=margin, family=2)
    assert tested.margin_met == missing.rows[1].margin_met


def test_missing_contrasts_count_for_the_smallest_margin() -> None:
    plan = synthetic.make_plan("s", {"stem": ["a", "b", "c"]}, {"stem": "a"}, split=OFFICIAL)
    values = {"stem=a": list(BASELINE), "stem=b": list(NEARLY), "stem=c": [None] * 5}
    row = table(on_many_images(plan, values), interim=True).rows[1]
    alone = made(BASELINE, NEARLY, margin=0.03).rows[1]
    assert float(row.margin_met or 0) > float(alone.margin_met or 1)


def test_an_unfinished_table_tells_no_margin() -> None:
    """It would be a verdict: an arm is equivalent where the margin met is below the declared one."""
    plan = synthetic.make_plan("s", {"stem": ["a", "b", "c"]}, {"stem": "a"}, split=OFFICIAL)
    values = {"stem=a": list(BASELINE), "stem=b": list(NEARLY), "stem=c": [None] * 5}
    found = table(on_many_images(plan, values))
    assert found.rows[1].margin_met is None
    assert "margin met" not in layout.render(found, "md")


def test_tables_name_a_share_and_what_it_is_of() -> None:
    found = made(BASELINE, NEARLY, margin="25%")
    text = layout.render(found, "md")
    assert "equivalent: within 25% of the baseline's error, after Holm too" in text
    assert "stem=v1 is equivalent to stem=v0 within 25% of the baseline's error" in text
    assert str(found.rows[1].margin_met) in text
    assert str(found.rows[1].margin_met).endswith("%")


def test_a_comparison_tests_a_share_of_as_errors() -> None:
    rng = np.random.default_rng(6)
    for _ in range(10):
        again = [arm + rng.normal(0, 0.002, 5) for arm in (BASELINE, NEARLY)]
        rows = compare([study(BASELINE, NEARLY, margin="20%")], [study(*again, margin="20%")]).rows
        p = [share_p(b, a, 0.2) for a, b in zip((BASELINE, NEARLY), again, strict=True)]
        resolved = [row.verdict in ("better", "worse") for row in rows]
        expected = [
            one < 0.05 and not other for one, other in zip(multipletests(p, method="holm")[1], resolved, strict=True)
        ]
        assert [row.verdict == "equivalent" for row in rows] == expected
    wide = [study(BASELINE, NEARLY, margin=0.03), study(NEARLY, BASELINE, margin=0.03)]
    row = compare(wide[:1], wide[1:]).rows[0]
    assert row.verdict == "not-resolved"
    assert any("not called equivalent: the margin of 3.00 points exceeds half of" in note for note in row.notes)


@pytest.mark.parametrize(
    "margin", ["80%", "0%", "25", "25 %", "a%", True, -0.1, 0, float("nan"), float("inf"), 10**400, [0.1]]
)
def test_a_margin_is_a_number_above_0_or_a_share_up_to_half(margin: object) -> None:
    with pytest.raises(ValueError, match=r"margin=.*: a number above 0, in the metric .* or a share of the baseline"):
        checked_margin(margin)


def test_plans_keep_margins_as_they_were_declared() -> None:
    for margin in (0.03, "12.5%", None):
        plan = Plan.model_validate(synthetic.position(margin=margin))
        assert plan.margin == margin
        assert plan.content()["margin"] == margin
