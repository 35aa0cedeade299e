"""Accuracies are counts of test images: what is a spread of them, and what is none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import synthetic

from results.comparison.compare import compare
from results.statistics import intervals
from results.study_results import StudyResults
from results.tables.study_table import table

FOLDS = np.array([360, 360, 359, 359, 359])
STEMS = [f"v{i}" for i in range(8)]


def study(right: np.ndarray, **given: Any) -> StudyResults:
    """Return a study whose arms classify `right` (arms, seeds) images correctly; the baseline comes first."""
    arms, seeds = right.shape
    plan = synthetic.make_plan("s", {"stem": STEMS[:arms]}, {"stem": "v0"}, seeds=seeds, **given)
    accuracies = (right / FOLDS[:seeds]).tolist()
    names = [arm["name"] for arm in plan["arms"]]
    return synthetic.results(plan, synthetic.from_accuracies(plan, dict(zip(names, accuracies, strict=True))))


def test_equal_counts_in_folds_of_two_sizes_are_no_spread() -> None:
    """One more image right in each of five folds is one difference, although 1/360 is not 1/359."""
    base = np.array([340, 341, 338, 339, 337])
    row = table(study(np.array([base, base + 1]))).rows[1]
    assert row.delta == pytest.approx(0.00278, abs=1e-5)
    assert [getattr(row, name) for name in ("delta_ci95", "p", "verdict")] == [None] * 3
    assert "no interval, p or verdict of the difference: all 5 are identical" in row.notes


@pytest.mark.parametrize("low", [0, 1, 4, 100, 170])
def test_counts_that_differ_by_one_image_are_a_spread(low: int) -> None:
    for counts in ([low + 1, low, low, low, low], [low, low, low, low, low + 1]):
        assert not intervals.are_identical(np.array(counts) / FOLDS, 5 / 1797)
        assert intervals.are_identical(np.full(5, low) / FOLDS, 5 / 1797)


def test_other_metrics_have_no_images() -> None:
    right = np.array([[340, 341, 338, 339, 337]] * 2)
    made = study(right, metric="test_loss", margin=None)
    losses = [0.2, 0.21, 0.22, 0.2, 0.19, 0.2001, 0.2102, 0.2201, 0.2002, 0.1901]
    row = table(replace(made, columns=made.columns | {"test_loss": losses})).rows[1]
    assert row.delta_ci95 is not None


def test_an_interaction_of_equal_counts_has_no_verdict() -> None:
    plan = synthetic.make_plan("s", {"stem": STEMS[:4]}, {"stem": "v0"})
    roles = dict(zip(("ab", "a", "b", "baseline"), ("stem=v3", "stem=v1", "stem=v2", "stem=v0"), strict=True))
    plan["interactions"] = [{"name": "both", **roles}]
    base = np.array([340, 341, 338, 339, 337])
    accuracies = {f"stem=v{i}": ((base + 2 * i) / FOLDS).tolist() for i in range(3)}
    accuracies["stem=v3"] = ((base + 7) / FOLDS).tolist()
    found = table(synthetic.results(plan, synthetic.from_accuracies(plan, accuracies))).interactions[0]
    assert (found.p, found.verdict) == (None, None)


def test_a_rerun_counts_every_pair() -> None:
    right = np.array([[340, 341, 338, 339, 337]] * 2)
    again = right + np.array([[0, 1, 0, 1, 0]] * 2)
    row = compare([study(right)], [study(again)]).rows[1]
    assert row.n_pairs == 5
    assert row.delta == pytest.approx(row.b.mean - row.a.mean)
    assert row.identical == []
