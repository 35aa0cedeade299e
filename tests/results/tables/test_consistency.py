"""Sentences, captions and footnotes agree with the numbers beside them."""

import re
from dataclasses import replace
from typing import Any

import pytest
import synthetic
from synthetic import row_of_arm

from results import report
from results.comparison import published
from results.study_results import StudyResults
from results.tables import layout, sentences
from results.tables.study_table import table


def position(**given: Any) -> StudyResults:
    plan = synthetic.position(**given)
    return synthetic.results(plan, synthetic.from_accuracies(plan, synthetic.ACCURACIES))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {},
            "worse than position=1d at an earlier look; over all seeds the difference is -0.05 points (95% CI -0.42",
        ),
        ({"collapsed": 2}, "worse than position=1d as 2 of 5 trials collapsed; over all seeds the difference is -0.05"),
        ({"n": 3, "diverged": 2}, "worse than position=1d as 2 of 5 trials diverged; over all seeds the difference is"),
    ],
)
def test_a_verdict_whose_interval_contains_0_has_its_reason_in_the_sentence(
    changed: dict[str, int], expected: str
) -> None:
    """No sentence says "worse by 0.05 (95% CI -0.32 to 0.42)"."""
    found = table(position())
    row = replace(row_of_arm(found, "position=none"), verdict="worse", delta=-0.0005, delta_ci95=(-0.0042, 0.0032))
    text = sentences.sentence(replace(row, **changed), found)
    assert text.startswith(expected)
    assert "by 0.05" not in text


def test_an_interval_over_images_that_contains_0_is_no_contradiction_either() -> None:
    found = table(position())
    row = replace(row_of_arm(found, "position=none"), delta_ci95_images=(-0.4, 0.1))
    assert "at an earlier look; over all seeds the difference is" in sentences.sentence(row, found)
    assert "(95% CI -40.00 to +10.00)" in sentences.sentence(row, found)


@pytest.mark.parametrize(
    ("verdict", "first", "differs"),
    [("worse", None, False), ("worse", "worse", False), ("worse", "not-resolved", True), ("worse", "no verdict", True),
     (None, "no verdict", False), (None, "worse", True)],
)  # fmt: skip
def test_only_another_verdict_is_said_to_differ_from_the_first_declared(
    verdict: str | None, first: str | None, differs: bool
) -> None:
    """Before there are verdicts, none differs, in a table, its answer and a report's contents alike."""
    found = table(position())
    row = replace(row_of_arm(found, "position=none"), verdict=verdict, first_declared=first)
    text = layout.render(replace(found, rows=[row]), "md", ["arm", "verdict"])
    assert ("(first declared: " in text) == (differs and verdict is not None)
    assert ("As first declared: " in sentences.first_declared_text([row])) == differs
    assert ("otherwise as first declared" in report.verdict_summary(replace(found, rows=[row]))) == differs


def test_captions_name_looks() -> None:
    found = table(position())
    assert "after Holm over 3 planned contrasts; " in layout.render(found, "md")
    text = layout.render(replace(found, looks=2), "md")
    assert "p after Holm over 3 planned contrasts and 2 looks; " in text
    assert "equivalent: within 2.50 points, after Holm and 2 looks too" in text
    assert "the arm is equivalent, after Holm and 2 looks too" in text


@pytest.mark.parametrize("given", [{}, {"margin": 0.001}, {"claims": ["position=none < position=2d"]}])
def test_a_caption_is_short(given: dict[str, Any]) -> None:
    found = table(position(**given))
    assert len(layout.captions(replace(found, looks=2), layout.shown_columns(found, roomy=True))[0].split()) <= 65
    assert len(layout.captions(found, layout.shown_columns(found, roomy=True))[0].split()) <= 60


def test_a_margin_that_is_too_wide_is_not_in_the_caption() -> None:
    """A note says why no arm is called equivalent; the caption does not say within what."""
    wide, narrow = (layout.render(table(position(margin=margin)), "md") for margin in (0.2, 0.001))
    assert "no arm is called equivalent" in wide
    assert "equivalent: within" not in wide
    assert "equivalent: within 0.10 points" in narrow


def test_a_claim_has_the_sign_of_the_tables_row() -> None:
    """Whichever arm a claim names first, the same difference has the same sign; other pairs are first minus second."""
    claims = ["position=none < position=1d", "position=1d < position=2d", "position=none < position=2d"]
    found = position(claims=claims)
    made = table(found)
    none, other = (row_of_arm(made, f"position={name}") for name in ("none", "2d"))
    assert [claim.delta for claim in made.claims[:2]] == [none.delta, other.delta]
    for claim, row in zip(made.claims, (none, other), strict=False):
        assert claim.delta_ci95 == pytest.approx(row.delta_ci95)
    assert [claim.of for claim in made.claims] == [
        "position=none - position=1d",
        "position=2d - position=1d",
        "position=none - position=2d",
    ]
    assert (made.claims[2].delta or 0) < 0
    _, second, _ = published.compare_published([found]).claims
    assert second.published_delta == pytest.approx(0.64001 - 0.64206)


def test_the_caption_names_the_families_of_a_study_with_interactions_and_claims() -> None:
    """A table of contrasts with a margin has no such line."""
    assert "families" not in layout.render(table(position()), "md")
    text = layout.render(table(position(claims=["position=none < position=2d"])), "md")
    names = "contrasts, equivalence, claims about other pairs"
    assert f"each of 3 families ({names}) errs in at most 5% of null studies, all together in at most 15%" in text


NOTES = [["parameters 3 against 2", "x of its initial weights are the baseline's"], ["a", "FLOPs 3 against 2"], ["b"]]


@pytest.mark.parametrize("notes", ["all", "short", "none"])
def test_footnotes_are_numbered_without_gaps(notes: str) -> None:
    """Minor notes come last, because a report shows them apart; every number in a cell has its footnote."""
    made = table(position())
    rows = [replace(row, notes=own) for row, own in zip(made.rows, [*NOTES, []], strict=True)]
    for form, mark in {
        "md": r"\[([\d,]+)\] +\|",
        "html": r"<sup>([\d,]+)</sup>",
        "latex": r"script\{([\d,]+)\}",
    }.items():
        text = layout.render(replace(made, rows=rows), form, notes=notes)
        cited = {int(number) for found in re.findall(mark, text) for number in found.split(",")}
        assert cited == set(range(1, len(cited) + 1))


def test_minor_footnotes_are_the_last_in_the_order_of_numbers() -> None:
    made = table(position())
    rows = [replace(row, notes=own) for row, own in zip(made.rows, [*NOTES, []], strict=True)]
    footnotes = layout.as_grid(replace(made, rows=rows), ["arm"]).footnotes
    assert footnotes == ["parameters 3 against 2", "a", "FLOPs 3 against 2", "b", NOTES[0][1]]
