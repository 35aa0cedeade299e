"""Claims of a study's source, judged by our own trials; counts of test images that are a spread, or none."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic
from statsmodels.stats.multitest import multipletests

from results.comparison.compare import compare
from results.records import Claim
from results.statistics import intervals
from results.study_results import StudyResults
from results.tables.study_table import table

SEEDS = synthetic.ACCURACIES | {"position=relative": [0.90, 0.99, 0.91, 0.99, 0.90]}


def judged_claims(*claims: str, **given: Any) -> Sequence[Claim]:
    plan = synthetic.position(**{"claims": list(claims), **given})
    return table(synthetic.results(plan, synthetic.from_accuracies(plan, SEEDS))).claims


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("position=none < position=1d", "agree"),
        ("position=1d < position=none", "disagree"),
        ("position=2d < position=1d", "not-resolved"),  # equivalent
        ("position=relative < position=1d", "not-resolved"),
        ("position=2d ~ position=1d", "agree"),
        ("position=1d ~ position=2d", "agree"),
        ("position=none ~ position=1d", "disagree"),
        ("position=relative ~ position=1d", "not-resolved"),
        ("position=none < position=2d", "agree"),  # no contrast of the table
        ("position=1d ~ position=1d", None),
    ],
)
def test_a_claim_agrees_disagrees_or_is_not_resolved(claim: str, expected: str | None) -> None:
    assert judged_claims(claim)[0].verdict == expected


def test_a_contrast_of_the_table_keeps_its_p_and_other_pairs_are_a_family_of_their_own() -> None:
    pairs = [("position=none", "position=2d"), ("position=2d", "position=relative")]
    claims = [*(f"{a} < {b}" for a, b in pairs), "position=none < position=1d", "position=1d < position=relative"]
    plan = synthetic.position(claims=claims)
    found = table(synthetic.results(plan, synthetic.from_accuracies(plan, SEEDS)))
    p = [scipy.stats.ttest_rel(SEEDS[a], SEEDS[b]).pvalue for a, b in pairs]
    own = [synthetic.row_of_arm(found, arm).p_holm for arm in ("position=none", "position=relative")]
    assert [claim.p_holm for claim in found.claims] == pytest.approx([*multipletests(p, method="holm")[1], *own])


def test_a_tie_needs_a_margin() -> None:
    """Without a margin no tie is shown; a resolved difference disagrees, unless it lies within the margin."""
    tie, gap = judged_claims("position=2d ~ position=1d", "position=none ~ position=1d", margin=None)
    assert (tie.verdict, tie.note) == ("not-resolved", "no margin declared within which arms tie")
    assert gap.verdict == "disagree"
    assert "a smaller difference is not excluded" in judged_claims("position=2d < position=1d")[0].note  # equivalent
    assert judged_claims("position=none ~ position=1d", margin=0.5, metric="test_loss")[0].verdict == "agree"


def test_a_claim_about_the_whole_curve_is_judged_at_each_point() -> None:
    plan = synthetic.pooling(claims=["pool=gap ~ pool=cls", "pool=gap,lr=0.001 < pool=cls,lr=0.004"])
    found = table(synthetic.results(plan)).claims
    assert [claim.claim for claim in found] == [
        *(f"pool=gap,lr={lr} ~ pool=cls,lr={lr}" for lr in (0.001, 0.002, 0.004)),
        "pool=gap,lr=0.001 < pool=cls,lr=0.004",
    ]
    assert all(claim.verdict for claim in found)


def test_a_claim_that_divergence_decides_is_tested() -> None:
    """The differences are identical, so that only Fisher's test on divergence can judge."""
    plan = synthetic.position(seeds=10, claims=["position=none < position=1d"])
    arms = {arm["name"]: [0.8 if arm["name"] == "position=none" else 0.9] * 10 for arm in plan["arms"]}
    lost = {synthetic.trial_id(plan, "position=none", seed): synthetic.hole("diverged") for seed in range(7)}
    (claim,) = table(synthetic.results(plan, synthetic.from_accuracies(plan, arms) | lost)).claims
    assert claim.verdict == "agree"
    assert "untested" not in claim.note


def test_a_claim_about_an_absent_arm_or_without_pairs_is_untested() -> None:
    (claim,) = judged_claims("position=rope2d < position=1d")
    assert (claim.verdict, claim.note) == (None, "no arm position=rope2d in the plan")
    with pytest.raises(ValueError, match="position-embedding@digits: claim 'rope2d' is neither 'arm < arm'"):
        judged_claims("rope2d")
    plan = synthetic.position(claims=["position=none < position=1d"])
    missing = synthetic.from_accuracies(plan, {**SEEDS, "position=none": [0.7, None, None, None, None]})
    (claim,) = table(synthetic.results(plan, missing)).claims
    assert (claim.verdict, claim.note) == (None, "untested: n = 1")


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
