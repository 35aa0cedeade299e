"""Planned looks: a study whose seeds were raised after a table keeps its error below 5%, and says what it did."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic

from results.records import Row, Table
from results.statistics import interim
from results.store.schemas import Plan
from results.tables.layout import render
from results.tables.sentences import sentence
from results.tables.study_table import table

OFFICIAL = {"kind": "official", "folds": None, "images": 10000}
STEADY = [0.9 + 0.001 * (seed % 3) for seed in range(40)]  # a baseline


def looked(changes: Mapping[str, list[float]], asked: list[int] | None = None, **given: Any) -> Table:
    """Return the table of stems whose accuracies are STEADY + these changes; `asked` are the looks."""
    seeds = len(next(iter(changes.values())))
    stems, more = {"stem": ["patch", *changes]}, {} if asked is None else {"looks": asked}
    plan = synthetic.make_plan("s", stems, {"stem": "patch"}, seeds=seeds, split=OFFICIAL, **given, **more)
    made = {"patch": [0.0] * seeds, **changes}
    accuracies = {f"stem={name}": [b + d for b, d in zip(STEADY, own, strict=False)] for name, own in made.items()}
    return table(synthetic.results(plan, synthetic.from_accuracies(plan, accuracies)))


def row(made: list[float], asked: list[int] | None = None, **given: Any) -> Row:
    return looked({"conv": made}, asked, **given).rows[1]


def p_of(values: list[float]) -> float:
    return float(scipy.stats.ttest_1samp(values, 0).pvalue)


EARLY = [0.010, 0.011, 0.009, 0.010, 0.012]  # five seeds alike
LATE = [0.004, -0.006, 0.011, -0.009, 0.008]


def test_p_is_four_times_the_smallest_over_the_looks() -> None:
    whole = EARLY + LATE
    assert p_of(EARLY) < p_of(whole)
    found = row(whole, [5, 10])
    assert found.p == found.p_holm == pytest.approx(4 * p_of(EARLY))
    assert found.delta == pytest.approx(float(np.mean(whole)))
    assert found.verdict == "better"
    assert row(LATE + EARLY, [5, 10]).p == pytest.approx(4 * p_of(LATE + EARLY))
    assert row(LATE, [5, 10]).p == 1.0


@pytest.mark.parametrize(
    ("seeds", "asked", "counts"),
    [
        *((10, asked, []) for asked in (None, [], [10], [40])),  # one number of seeds is one look
        *((10, [3, 10], [10]), (8, [5, 8], [5]), (10, [5, 8, 10], [5, 10]), (8, [3, 8], [])),
    ],
)
def test_only_planned_looks_count(seeds: int, asked: list[int] | None, counts: list[int]) -> None:
    """Without a planned look (5, 10, 20, 40), or with one look, p is over all seeds and not corrected."""
    values = (EARLY + LATE)[:seeds]
    expected = 4 * min(p_of(values[:k]) for k in counts) if counts else p_of(values)
    assert row(values, asked).p == pytest.approx(min(1.0, expected))


def test_looks_with_seeds_that_were_pruned_since_still_count() -> None:
    """Back at five seeds p stays corrected, and the table states the looks."""
    assert row(EARLY, [5, 10]).p == pytest.approx(4 * p_of(EARLY))
    assert row(EARLY + LATE[:2], [7, 10]).p == pytest.approx(p_of(EARLY + LATE[:2]))
    found = table(synthetic.results(synthetic.position(seeds=5, looks=[5, 10])))
    looked = "tables were looked at with 5, 10 seeds, of which 5 are left"
    corrected = "p is 4 times the smallest over the first 5 seeds (planned looks: 5, 10, 20, 40)"
    assert found.notes == [f"{looked}: {corrected}"]


def test_a_look_that_said_the_opposite_counts_as_one() -> None:
    values = [-v / 10 for v in EARLY] + [0.006 + v for v in LATE + LATE + LATE]
    assert p_of(values[:5]) < p_of(values)
    assert row(values, [5, 20]).p == pytest.approx(4 * p_of(values))


def test_correction_for_looks_comes_before_that_for_the_family() -> None:
    _, conv, resnet = looked({"conv": EARLY + LATE, "resnet-small": LATE + EARLY}, [5, 10]).rows
    assert (conv.p_holm, resnet.p_holm) == pytest.approx((2 * conv.p, max(2 * conv.p, resnet.p)))


def test_an_early_verdict_whose_interval_reaches_zero_later_is_footnoted() -> None:
    """The verdict stays, and the sentence shows the signs of the interval's ends."""
    values = [*EARLY, -0.02, 0.015, -0.013, 0.01, -0.01]
    found = row(values, [5, 10])
    assert found.verdict == "better"
    assert found.delta_ci95[0] < 0 < found.delta_ci95[1]
    assert "resolved at an earlier look; the 95% interval over all seeds contains 0" in found.notes
    about = table(synthetic.results(synthetic.position(margin=None)))
    low, high = (f"{100 * end:.2f}" for end in found.delta_ci95)
    assert f"(95% CI {low} to {high})" in sentence(found, about)
    below = row([-value for value in values], [5, 10])
    assert f"(95% CI {low} to {high})" in sentence(below, about)


def test_verdicts_that_looks_prevent_are_footnoted() -> None:
    """The correction leaves an interval without 0, and one within the margin, unresolved."""
    values = [0.010, 0.011, -0.004, 0.002, 0.006, 0.009, -0.003, 0.004, 0.008, -0.002]
    found = row(values, [5, 10], margin=None)
    assert 0.05 / 4 < p_of(values) < 0.05
    assert found.verdict == "not-resolved"
    assert "the 95% interval excludes 0, but not after correction for 1 contrasts and 4 looks" in found.notes
    flat = [0.001 * (-1) ** seed for seed in range(10)]
    test = scipy.stats.ttest_1samp(flat, 0)
    low, high = test.confidence_interval(0.90), test.confidence_interval(0.975)
    margin = (low.high + high.high) / 2
    within = row(flat, [5, 10], margin=margin)
    assert within.verdict == "not-resolved"
    assert "the 90% interval is within the margin, but not after correction for 1 contrasts and 4 looks" in within.notes
    assert row(flat, [10], margin=margin).verdict == "equivalent"
    assert row(flat, [5, 10], margin=1.01 * high.high).verdict == "equivalent"


CORRECTED = "p is 4 times the smallest over the first 5, 10 seeds (planned looks: 5, 10, 20, 40)"
UNCORRECTED = "looking repeatedly inflates error; the p values are not corrected for it (planned looks: 5, 10, 20, 40)"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([5, 10], f"5 to 10 after a table: {CORRECTED}"),
        ([3, 5, 10], f"3 to 5 to 10 after a table: {CORRECTED}; stopping at 3 seeds, no planned look, is not covered"),
        ([3, 8], f"3 to 8 after a table: {UNCORRECTED}"),
    ],
)
def test_seeds_that_were_raised_after_a_table_are_noted(asked: list[int], said: str) -> None:
    found = table(synthetic.results(synthetic.position(seeds=10, looks=asked)))
    assert found.notes == [f"seeds were raised from {said}"]
    assert f"Note: seeds were raised from {said}." in render(found, "md")


@pytest.mark.parametrize("looks", [{"looks": [10]}, {}])
def test_a_study_that_looked_once_has_nothing_to_note(looks: dict[str, list[int]]) -> None:
    """A plan older than the field has looked once."""
    plan = Plan.model_validate(synthetic.position(**looks))
    assert (interim.notes(plan), interim.correction_factor(plan)) == ([], 1)


def test_claims_between_other_arms_are_corrected_too() -> None:
    """A pair that the table does not test has a p over the looks."""
    changes = {"conv": EARLY + LATE, "resnet-small": [0.0] * 10}
    (claim,) = looked(changes, [5, 10], claims=["stem=resnet-small < stem=conv"]).claims
    assert claim.p_holm == pytest.approx(4 * p_of(EARLY))
    assert claim.verdict == "agree"
