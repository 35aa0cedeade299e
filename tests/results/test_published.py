"""Studies compared with published numbers and claims."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
import scipy.stats
import synthetic
from synthetic import ACCURACIES

from results.comparison.published import compare_published, render
from results.study_results import StudyResults


def position(relative: Sequence[float] = ACCURACIES["position=relative"], **given: Any) -> StudyResults:
    plan = synthetic.position(**given)
    return synthetic.results(plan, synthetic.from_accuracies(plan, ACCURACIES | {"position=relative": relative}))


def test_claims_are_judged_and_numbers_shown() -> None:
    study = position()
    found = compare_published([study, synthetic.results(synthetic.pooling())])
    assert {claim.claim: claim.verdict for claim in found.claims} == dict.fromkeys(study.plan.claims, "agree")
    ours = scipy.stats.ttest_rel(ACCURACIES["position=none"], ACCURACIES["position=1d"])
    assert found.claims[0].delta_ci95 == pytest.approx(list(ours.confidence_interval()))
    assert found.claims[0].published_delta == pytest.approx(0.61382 - 0.64206)
    assert [row.b.mean for row in found.rows] == [0.61382, 0.64206, 0.64001, 0.64032]
    assert {(row.verdict, row.delta) for row in found.rows} == {(None, None)}
    assert found.verdicts == {"agrees": 2}
    assert found.b.studies == ["position-embedding@digits: arXiv 2010.11929, Table 8"]


def test_an_unresolved_claim_says_how_large_a_difference_may_be() -> None:
    """The note never says "no difference"; a claim about an unplanned arm says so."""
    claims = ["position=relative < position=1d", "position=x < position=1d"]
    unresolved, untested = compare_published([position([0.90, 0.99, 0.91, 0.99, 0.90], claims=claims)]).claims
    largest = f"{100 * max(map(abs, unresolved.delta_ci95)):.2f} points"
    assert (unresolved.verdict, largest in unresolved.notes[0]) == ("not-resolved", True)
    assert (untested.verdict, untested.notes) == (None, ["no arm position=x in the plan"])


def test_every_format_has_claims_and_numbers() -> None:
    """Notes name another metric. A study without claims and numbers is an error; one without claims has no CSV."""
    found = compare_published([position(), position(metric="val_accuracy", name="other@digits")])
    assert [claim.notes for claim in found.claims] == [[], [], ["val accuracy"], ["val accuracy"]]
    assert all("val accuracy" in " ".join(row.notes) for row in found.rows[len(found.rows) // 2 :])
    texts = {form: render(found, form) for form in ("md", "json", "csv", "html", "latex")}
    assert all(said in texts["md"] for said in ("Of 4 claims: agrees 4.", "position=none [1]", "[1] val accuracy"))
    assert texts["md"].count("another setting, shown beside ours, not compared") == 1
    assert [row["b"]["mean"] for row in json.loads(texts["json"])["rows"]] == [row.b.mean for row in found.rows]
    assert [row["verdict"] for row in csv.DictReader(io.StringIO(texts["csv"]))] == ["agree"] * 4
    assert (texts["html"].count("<table>"), texts["latex"].count(r"\begin{tabular}")) == (2, 2)
    with pytest.raises(ValueError, match="no claim and no published number in pooling@digits"):
        compare_published([synthetic.results(synthetic.pooling())])
    with pytest.raises(ValueError, match="format=csv: no claim to write"):
        render(compare_published([position(claims=[])]), "csv")
