"""Looks: a study whose seeds were raised after a table corrects p for it, at any numbers of seeds, and says so."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic

from results.records import Row, Table
from results.statistics import looks
from results.statistics.contrast import Sample
from results.statistics.power import PlannedTest
from results.store import ledger
from results.store.schemas.plans import Plan
from results.tables import layout
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


def corrected(values: list[float], numbers: list[int], first: int = 1) -> float:
    """Return min_i i(i + 1) p_i by a loop, with the factor `first` for the first look."""
    products = [1.0]
    for number, seeds in enumerate(numbers, 1):
        factor = first if number == 1 else number * (number + 1)
        if np.mean(values[:seeds]) * np.mean(values) > 0:
            products.append(factor * paired_p(values[:seeds]))
    return min(products)


@pytest.mark.parametrize("numbers", [[5, 6], [5, 10], [5, 26], [6, 8, 12], [2, 3, 4, 5, 6, 7], [3, 40]])
@pytest.mark.parametrize("order", [1, -1])
def test_every_number_of_seeds_is_a_look_and_the_smallest_product_counts(numbers: list[int], order: int) -> None:
    """The first five seeds differ more than the others, or less."""
    values = ((EARLY + LATE * 7)[: numbers[-1]])[::order]
    found = contrast_row(values, numbers)
    assert found.p == found.p_holm == pytest.approx(corrected(values, numbers))
    assert found.delta == pytest.approx(float(np.mean(values)))


@pytest.mark.parametrize(("family", "effect"), [(1, 0.8), (3, 1.2), (7, 0.5)])
def test_the_seeds_that_a_plan_asks_for_after_five_have_the_promised_power(family: int, effect: float) -> None:
    """The effect, in standard deviations of the differences, is resolved in 80% of 400 studies, up to chance."""
    seeds = PlannedTest(1.0, 6 * family).seeds_to_resolve(effect)
    plan = Plan(
        **synthetic.make_plan("s", {"stem": ["patch", "conv"]}, {"stem": "patch"}, seeds=seeds, looks=[5, seeds])
    )
    plan = ledger.with_declarations(plan, ledger.declarations_of_plan(plan))
    baseline, arm = (arm.ids for arm in plan.arms)
    ids = {seed: f"{arm[seed]}-{baseline[seed]}" for seed in range(seeds)}
    drawn = effect + np.random.default_rng(family).standard_normal((400, seeds))
    p = [looks.p_value(Sample(dict(enumerate(values.tolist())), {}, ids, None), plan) for values in drawn]
    assert 0.8 - 3 * 0.02 < np.mean([family * one < 0.05 for one in p]) < 0.9


@pytest.mark.parametrize("asked", [None, [], [10], [40, 10]])
def test_one_look_is_not_corrected(asked: list[int] | None) -> None:
    values = EARLY + LATE
    factor = 6 if asked and len(asked) > 1 else 1
    assert contrast_row(values, asked).p == pytest.approx(factor * paired_p(values))


def test_a_look_whose_seeds_are_pruned_counts_as_one_and_stays_a_look() -> None:
    """With 5, 10 and 5 seeds, the table of 5 is the first look again. With 10 and then 5, it is the second."""
    assert contrast_row(EARLY, [5, 10]).p == pytest.approx(paired_p(EARLY))
    assert contrast_row(EARLY, [10, 5]).p == pytest.approx(6 * paired_p(EARLY))


def test_a_study_that_declares_growth_has_its_first_table_corrected() -> None:
    values = EARLY + LATE
    assert contrast_row(values[:5], [5], grows=True).p == pytest.approx(2 * paired_p(values[:5]))
    assert contrast_row(values, [5, 10], grows=True).p == pytest.approx(corrected(values, [5, 10], first=2))


def test_a_look_that_said_the_opposite_counts_as_one() -> None:
    values = [-v / 10 for v in EARLY] + [0.006 + v for v in LATE + LATE + LATE]
    assert paired_p(values[:5]) < paired_p(values)
    assert contrast_row(values, [5, 20]).p == pytest.approx(6 * paired_p(values))


def test_correction_for_looks_comes_before_that_for_the_family() -> None:
    _, conv, resnet = table_with_looks({"conv": EARLY + LATE, "resnet-small": LATE + EARLY}, [5, 10]).rows
    assert (conv.p_holm, resnet.p_holm) == pytest.approx((2 * conv.p, max(2 * conv.p, resnet.p)))


def test_an_early_verdict_whose_interval_reaches_zero_later_is_footnoted() -> None:
    values = [*EARLY, -0.02, 0.015, -0.013, 0.01, -0.01]
    found = contrast_row(values, [5, 10])
    assert found.verdict == "better"
    assert found.delta_ci95[0] < 0 < found.delta_ci95[1]
    assert "resolved at an earlier look; the 95% interval over all seeds contains 0" in found.notes
    text = layout.render(table_with_looks({"conv": values}, [5, 10]), "md")
    assert "better‡" in text
    assert "‡ resolved at an earlier look; over all seeds the 95% interval contains 0." in text
    assert "‡" not in layout.render(table_with_looks({"conv": values[:5]}, [5]), "md")
    about = table(synthetic.results(synthetic.position(margin=None)))
    for one in (found, contrast_row([-value for value in values], [5, 10])):
        low, high = (f"{100 * end:+.2f}" for end in one.delta_ci95)
        assert f"at an earlier look; over all seeds the difference is {100 * one.delta:+.2f} points" in sentence(
            one, about
        )
        assert f"(95% CI {low} to {high})" in sentence(one, about)


def test_an_early_verdict_is_not_ascribed_to_a_baseline_that_diverged() -> None:
    values = [*EARLY, -0.02, 0.015, -0.013, 0.01, -0.01]
    plan = synthetic.make_plan("s", {"stem": ["patch", "conv"]}, {"stem": "patch"}, seeds=10, looks=[5, 10])
    made = {"stem=patch": STEADY[:10], "stem=conv": [a + b for a, b in zip(STEADY, values, strict=False)]}
    lost = {synthetic.trial_id(plan, "stem=patch", 9): synthetic.hole("diverged")}
    found = table(synthetic.results(plan, synthetic.from_accuracies(plan, made) | lost)).rows[1]
    assert found.verdict == "better"
    assert "resolved at an earlier look; the 95% interval over all seeds contains 0" in found.notes


def test_verdicts_that_looks_prevent_are_footnoted() -> None:
    values = [0.010, 0.011, -0.004, 0.002, 0.006, 0.009, -0.003, 0.004, 0.008, -0.002]
    found = contrast_row(values, [5, 10], margin=None)
    assert 0.05 / 6 < paired_p(values) < 0.05
    assert found.verdict == "not-resolved"
    assert any("excludes 0, but not after correction for 1 contrast and 2 looks" in note for note in found.notes)


@pytest.mark.parametrize("numbers", [[5, 10], [4, 6, 10]])
def test_equivalence_is_corrected_as_differences_are(numbers: list[int]) -> None:
    """The margin met is the smallest over the looks of the upper ends of t intervals at 5% / i(i + 1)."""
    values = [0.001 * (-1) ** seed for seed in range(10)]
    values[:4] = [0.004, -0.004, 0.004, -0.004]
    ends = []
    for number, seeds in enumerate(numbers, 1):
        some, factor = np.array(values[:seeds]), 1 if number == 1 else number * (number + 1)
        half = scipy.stats.t.ppf(1 - 0.05 / factor, seeds - 1) * some.std(ddof=1) / np.sqrt(seeds)
        ends.append(abs(some.mean()) + half)
    smallest = min(ends)
    assert contrast_row(values, numbers, margin=1.01 * smallest).verdict == "equivalent"
    missed = contrast_row(values, numbers, margin=0.99 * smallest)
    assert missed.verdict == "not-resolved"
    assert missed.margin_met == pytest.approx(smallest)


def test_divergence_is_corrected_as_differences_are() -> None:
    """5 of 5 against 0 of 5 at the first look is a result that five more seeds without divergence do not undo."""
    plan = synthetic.make_plan("s", {"stem": ["patch", "conv"]}, {"stem": "patch"}, seeds=10, looks=[5, 10])
    good = {"stem=patch": STEADY[:10], "stem=conv": STEADY[:10]}
    gone = {synthetic.trial_id(plan, "stem=conv", seed): synthetic.hole("diverged") for seed in range(5)}
    records = synthetic.from_accuracies(plan, good)
    row = table(synthetic.results(plan, records | gone)).rows[1]
    at_first = scipy.stats.fisher_exact([[5, 0], [0, 5]], "greater").pvalue
    assert row.p == pytest.approx(min(at_first, 6 * scipy.stats.fisher_exact([[5, 5], [0, 10]], "greater").pvalue))


def test_claims_between_other_arms_are_corrected_too() -> None:
    changes = {"conv": EARLY + LATE, "resnet-small": [0.0] * 10}
    (claim,) = table_with_looks(changes, [5, 10], claims=["stem=resnet-small < stem=conv"]).claims
    assert claim.p_holm == pytest.approx(paired_p(EARLY))
    assert claim.verdict == "agree"


def test_the_first_table_of_a_growing_study_says_that_p_is_doubled() -> None:
    found = table(synthetic.results(synthetic.position(seeds=10, looks=[10], grows=True))).notes
    assert "p is 2 x that of its test, because the study declares that it grows" in found


def test_a_table_says_how_p_is_corrected_and_how_often_all_looks_err() -> None:
    def notes(**given: Any) -> str:
        found = table(synthetic.results(synthetic.position(seeds=10, **given))).notes
        return "; ".join(note for note in found if "tables" in note)

    assert notes() == notes(looks=[10]) == ""
    plain, declared = notes(looks=[5, 10]), notes(looks=[5, 10], grows=True)
    assert "p is corrected for 2 tables" in plain
    assert "the smallest of 1 x p with 5 seeds, 6 x p with 10 seeds" in plain
    assert "in 5.1 to 6.1%, at most 7.5%, of null studies" in plain
    assert "2 x p with 5 seeds" in declared
    assert "in 2.7 to 3.6%, at most 5%, of null studies" in declared
