"""Planned looks: a study whose seeds were raised after a table keeps its error below 5%, and says what it did."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic

from results.records import Row, Table
from results.tables.sentences import sentence
from results.tables.study_table import table

OFFICIAL = {"kind": "official", "folds": None, "images": 10000}
STEADY = [0.9 + 0.001 * (seed % 3) for seed in range(40)]  # a baseline


def table_with_looks(changes: Mapping[str, list[float]], asked: list[int] | None = None, **given: Any) -> Table:
    """Return the table of stems whose accuracies are STEADY + these changes; `asked` are the looks."""
    seeds = len(next(iter(changes.values())))
    stems, more = {"stem": ["patch", *changes]}, {} if asked is None else {"looks": asked}
    plan = synthetic.make_plan("s", stems, {"stem": "patch"}, seeds=seeds, split=OFFICIAL, **given, **more)
    made = {"patch": [0.0] * seeds, **changes}
    accuracies = {f"stem={name}": [b + d for b, d in zip(STEADY, own, strict=False)] for name, own in made.items()}
    return table(synthetic.results(plan, synthetic.from_accuracies(plan, accuracies)))


def contrast_row(made: list[float], asked: list[int] | None = None, **given: Any) -> Row:
    return table_with_looks({"conv": made}, asked, **given).rows[1]


def paired_p(values: list[float]) -> float:
    return float(scipy.stats.ttest_1samp(values, 0).pvalue)


EARLY = [0.010, 0.011, 0.009, 0.010, 0.012]  # five seeds alike
LATE = [0.004, -0.006, 0.011, -0.009, 0.008]


def test_p_is_four_times_the_smallest_over_the_looks() -> None:
    whole = EARLY + LATE
    assert paired_p(EARLY) < paired_p(whole)
    found = contrast_row(whole, [5, 10])
    assert found.p == found.p_holm == pytest.approx(4 * paired_p(EARLY))
    assert found.delta == pytest.approx(float(np.mean(whole)))
    assert found.verdict == "better"
    assert contrast_row(LATE + EARLY, [5, 10]).p == pytest.approx(4 * paired_p(LATE + EARLY))
    assert contrast_row(LATE, [5, 10]).p == 1.0


@pytest.mark.parametrize(
    ("seeds", "asked", "counts"),
    [
        *((10, asked, []) for asked in (None, [], [10], [40])),  # one number of seeds is one look
        *((10, [3, 10], [10]), (8, [5, 8], [5]), (10, [5, 8, 10], [5, 10]), (8, [3, 8], [])),
        *((5, [5, 10], [5]), (7, [7, 10], [])),  # seeds were pruned since
    ],
)
def test_only_planned_looks_count(seeds: int, asked: list[int] | None, counts: list[int]) -> None:
    """Without a planned look (5, 10, 20, 40), or with one look, p is over all seeds and not corrected."""
    values = (EARLY + LATE)[:seeds]
    expected = 4 * min(paired_p(values[:k]) for k in counts) if counts else paired_p(values)
    assert contrast_row(values, asked).p == pytest.approx(min(1.0, expected))


def test_a_look_that_said_the_opposite_counts_as_one() -> None:
    values = [-v / 10 for v in EARLY] + [0.006 + v for v in LATE + LATE + LATE]
    assert paired_p(values[:5]) < paired_p(values)
    assert contrast_row(values, [5, 20]).p == pytest.approx(4 * paired_p(values))


def test_correction_for_looks_comes_before_that_for_the_family() -> None:
    _, conv, resnet = table_with_looks({"conv": EARLY + LATE, "resnet-small": LATE + EARLY}, [5, 10]).rows
    assert (conv.p_holm, resnet.p_holm) == pytest.approx((2 * conv.p, max(2 * conv.p, resnet.p)))


def test_an_early_verdict_whose_interval_reaches_zero_later_is_footnoted() -> None:
    values = [*EARLY, -0.02, 0.015, -0.013, 0.01, -0.01]
    found = contrast_row(values, [5, 10])
    assert found.verdict == "better"
    assert found.delta_ci95[0] < 0 < found.delta_ci95[1]
    assert "resolved at an earlier look; the 95% interval over all seeds contains 0" in found.notes
    about = table(synthetic.results(synthetic.position(margin=None)))
    low, high = (f"{100 * end:.2f}" for end in found.delta_ci95)
    for one in (found, contrast_row([-value for value in values], [5, 10])):
        assert f"(95% CI {low} to {high})" in sentence(one, about)


def test_verdicts_that_looks_prevent_are_footnoted() -> None:
    values = [0.010, 0.011, -0.004, 0.002, 0.006, 0.009, -0.003, 0.004, 0.008, -0.002]
    found = contrast_row(values, [5, 10], margin=None)
    assert 0.05 / 4 < paired_p(values) < 0.05
    assert found.verdict == "not-resolved"
    assert any("excludes 0, but not after correction for 1 contrast and 4 looks" in note for note in found.notes)
    flat = [0.001 * (-1) ** seed for seed in range(10)]
    test = scipy.stats.ttest_1samp(flat, 0)
    low, high = test.confidence_interval(0.90), test.confidence_interval(0.975)
    margin = (low.high + high.high) / 2
    within = contrast_row(flat, [5, 10], margin=margin)
    assert within.verdict == "not-resolved"
    assert any("within the margin, but not after correction" in note for note in within.notes)
    assert contrast_row(flat, [10], margin=margin).verdict == "equivalent"
    assert contrast_row(flat, [5, 10], margin=1.01 * high.high).verdict == "equivalent"


@pytest.mark.parametrize(
    ("seeds", "asked", "fact"),
    [
        (10, [5, 10], "raised from 5 to 10 after a table: p is 4 times the smallest over the first 5, 10 seeds"),
        (10, [3, 5, 10], "; stopping at 3 seeds, no planned look, is not covered"),
        (10, [3, 8], "raised from 3 to 8 after a table: looking repeatedly inflates error; the p values are not"),
        (5, [5, 10], "made with 5, 10 seeds, and 5 are left: p is 4 times the smallest over the first 5 seeds"),
        (10, [10], ""),
        (10, None, ""),  # a plan older than the field
    ],
)
def test_seeds_that_were_raised_after_a_table_are_noted(seeds: int, asked: list[int] | None, fact: str) -> None:
    plan = synthetic.position(seeds=seeds, **({} if asked is None else {"looks": asked}))
    assert [fact in note for note in table(synthetic.results(plan)).notes] == [True] * bool(fact)


def test_claims_between_other_arms_are_corrected_too() -> None:
    changes = {"conv": EARLY + LATE, "resnet-small": [0.0] * 10}
    (claim,) = table_with_looks(changes, [5, 10], claims=["stem=resnet-small < stem=conv"]).claims
    assert claim.p_holm == pytest.approx(4 * paired_p(EARLY))
    assert claim.verdict == "agree"
