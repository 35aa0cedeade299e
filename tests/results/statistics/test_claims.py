"""Claims of a study's source, judged by our own trials."""

from collections.abc import Sequence
from typing import Any

import pytest
import scipy.stats
import synthetic
from statsmodels.stats.multitest import multipletests

from results.records import Claim
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
    assert judged_claims("position=none ~ position=1d", margin=0.5)[0].verdict == "agree"


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
    with pytest.raises(ValueError, match="position-embedding@digits: claim 'rope2d' is not 'arm < arm' or 'arm ~ arm'"):
        judged_claims("rope2d")
    plan = synthetic.position(claims=["position=none < position=1d"])
    missing = synthetic.from_accuracies(plan, {**SEEDS, "position=none": [0.7, None, None, None, None]})
    (claim,) = table(synthetic.results(plan, missing)).claims
    assert (claim.verdict, claim.note) == (None, "untested: n = 1")
