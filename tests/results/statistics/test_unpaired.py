"""Studies whose seeds pair nothing: Welch's tests throughout, as SciPy and plain formulas have them."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic
from scipy.stats import ttest_ind
from statsmodels.stats.multitest import multipletests

from ablations.planning.resolution import differences, pooled_spread
from results import report
from results.comparison import summary
from results.comparison.compare import compare
from results.records import Table
from results.statistics.contrast import Sample, difference
from results.statistics.power import PlannedTest
from results.store import ledger
from results.store.schemas.plans import Plan
from results.study_results import StudyResults
from results.tables import layout
from results.tables.study_table import table

OFFICIAL = {"kind": "official", "folds": None, "images": 10000}
RNG = np.random.default_rng(5)
BASELINE = 0.90 + RNG.normal(0, 0.004, 6)
CONV = 0.91 + RNG.normal(0, 0.010, 6)
RESNET = 0.90 + RNG.normal(0, 0.003, 6)
SEEDS = {"patch": BASELINE, "conv": CONV, "resnet": RESNET}


def study(accuracies: dict[str, Any], **given: Any) -> StudyResults:
    """Return an unpaired study of stems with these accuracies; None is a missing trial."""
    seeds = len(next(iter(accuracies.values())))
    given = {"margin": 0.02, "paired": "no", "split": OFFICIAL} | given
    plan = synthetic.make_plan("s", {"stem": [*accuracies]}, {"stem": "patch"}, seeds=seeds, **given)
    by_arm = {f"stem={name}": list(values) for name, values in accuracies.items()}
    return synthetic.results(plan, synthetic.from_accuracies(plan, by_arm))


def welch(a: Any, b: Any) -> Any:
    return ttest_ind(a, b, equal_var=False)


def test_differences_intervals_and_p_are_scipys_welch_test() -> None:
    shown = table(study(SEEDS))
    tests = [welch(CONV, BASELINE), welch(RESNET, BASELINE)]
    adjusted = multipletests([test.pvalue for test in tests], method="holm")[1]
    for row, test, p in zip(shown.rows[1:], tests, adjusted, strict=True):
        assert row.delta_ci95 == pytest.approx(list(test.confidence_interval()))
        assert (row.p, row.p_holm) == pytest.approx((test.pvalue, p))
        assert row.n_pairs is None
    text = layout.render(shown, "md")
    assert "unpaired (Welch)" in text
    assert "paired by seed" not in text
    assert json.loads(layout.render(shown, "json"))["paired"] == "no"
    assert "Differences are unpaired (Welch); " in report.render([study(SEEDS)], datetime.now(UTC))


def test_the_margin_met_is_where_both_one_sided_welch_tests_reject() -> None:
    row = table(study({"patch": BASELINE, "conv": CONV})).rows[1]
    below = ttest_ind(CONV - row.margin_met, BASELINE, equal_var=False, alternative="less")
    above = ttest_ind(CONV + row.margin_met, BASELINE, equal_var=False, alternative="greater")
    assert max(below.pvalue, above.pvalue) == pytest.approx(0.05)


def test_a_share_of_the_baselines_error_is_a_contrast_of_independent_means() -> None:
    """The difference is within a share t of the error if (1 + t) e_0 - e_1 is above 0, and so on the other side."""
    row = table(study({"patch": BASELINE, "conv": CONV}, margin="50%")).rows[1]
    share = float(row.margin_met.removesuffix("%")) / 100
    freedom = welch(CONV, BASELINE).df

    def p_beyond(factor: float, sign: int) -> float:
        size = sign * (factor * (1 - BASELINE).mean() - (1 - CONV).mean())
        se = math.sqrt(factor**2 * BASELINE.var(ddof=1) / 6 + CONV.var(ddof=1) / 6)
        return float(scipy.stats.t.sf(size / se, freedom))

    def p_value(share: float) -> float:
        return max(p_beyond(1 + share, 1), p_beyond(1 - share, -1))

    assert p_value(share) <= 0.05 < p_value(share - 0.001)  # a tenth of a percent, to which the share is rounded up


def test_every_finished_trial_counts_where_arms_have_different_seeds() -> None:
    conv = [*CONV[:4], None, None]
    row = table(study({"patch": [None, *BASELINE[1:]], "conv": conv}), interim=True).rows[1]
    assert row.delta_ci95 == pytest.approx(list(welch(CONV[:4], BASELINE[1:]).confidence_interval()))
    assert not any("both arms finished" in note for note in row.notes)


def test_too_few_trials_have_no_test_and_a_reason() -> None:
    shown = table(study({"patch": BASELINE, "conv": [0.9, *[None] * 5]}), interim=True)
    assert (shown.rows[1].verdict, shown.rows[1].delta_ci95) == (None, None)
    assert "too few seeds finished" in layout.render(shown, "md")
    alike = table(study({"patch": [0.9] * 3, "conv": [0.91] * 3})).rows[1]
    assert any("all are identical on either side" in note for note in alike.notes)


def test_claims_about_other_arms_are_unpaired() -> None:
    (claim,) = table(study(SEEDS, claims=["stem=resnet < stem=conv"])).claims
    assert claim.delta_ci95 == pytest.approx(list(welch(RESNET, CONV).confidence_interval()))
    assert claim.p_holm == pytest.approx(welch(RESNET, CONV).pvalue)


def test_an_interaction_is_a_sum_of_four_independent_means() -> None:
    """Its degrees of freedom are Satterthwaite's."""
    rng = np.random.default_rng(3)
    four = [0.9 + rng.normal(0, sd, 5) for sd in (0.01, 0.002, 0.004, 0.003)]
    baseline = {"stem": "patch", "pool": "cls"}
    names = ["stem=conv,pool=gap", "stem=conv", "pool=gap", "stem=patch,pool=cls"]
    given = {"split": OFFICIAL, "paired": "no"}
    plan = synthetic.make_plan("cross", {"stem": ["patch", "conv"], "pool": ["cls", "gap"]}, baseline, **given)
    synthetic.add_arm(plan, names[0], plan["arms"][0]["config"] | {"stem": "conv", "pool": "gap"})
    plan |= {"interactions": [dict(zip(("ab", "a", "b", "baseline"), names, strict=True)) | {"name": names[0]}]}
    by_arm = dict(zip(names, map(list, four), strict=True))
    shown = table(synthetic.results(plan, synthetic.from_accuracies(plan, by_arm)))
    parts = np.array([values.var(ddof=1) / 5 for values in four])
    freedom = parts.sum() ** 2 / (parts**2 / 4).sum()
    means = [values.mean() for values in four]
    value = means[0] - means[1] - means[2] + means[3]
    expected = scipy.stats.t.interval(0.95, freedom, value, math.sqrt(parts.sum()))
    assert shown.interactions[0].ci95 == pytest.approx(expected)
    assert "baseline, unpaired (Welch)" in layout.render(shown, "md")


def test_simultaneous_intervals_are_bonferronis() -> None:
    rows = table(study(SEEDS), simultaneous=True).rows
    expected = welch(CONV, BASELINE).confidence_interval(1 - 0.05 / 2)
    assert rows[1].delta_ci95_simultaneous == pytest.approx(list(expected))


def test_earlier_looks_are_tested_unpaired_too() -> None:
    """p of the second look is multiplied by 6; that of the first, over the first three seeds, by 1."""
    made = study({"patch": BASELINE, "conv": CONV}, looks=[3, 6])
    plan = ledger.with_declarations(made.plan, ledger.declarations_of_plan(made.plan))
    row = table(replace(made, plan=plan)).rows[1]
    looks = welch(CONV[:3], BASELINE[:3]).pvalue, 6 * welch(CONV, BASELINE).pvalue
    assert row.p == pytest.approx(min(looks))


def test_an_outlier_is_one_of_its_arm() -> None:
    far = [0.90, 0.901, 0.899, 0.9005, 0.9, 0.7]
    row = table(study({"patch": BASELINE, "conv": far})).rows[1]
    assert any(note.startswith("seed 5 is an outlier: 70.00, the median is 90.00% in stem=conv") for note in row.notes)


def drawn_answers(rng: np.random.Generator, n: int, images: int, skill: np.ndarray) -> Sample:
    """Return a sample whose seeds answer each image right with its probability `skill`."""
    index = np.arange(images)
    correct = {seed: (index, rng.random(images) < skill) for seed in range(n)}
    values = {seed: float(right.mean()) for seed, (_, right) in correct.items()}
    return Sample(values, correct, {seed: f"{skill.sum()}{seed}" for seed in range(n)}, None)


def test_the_choice_of_images_adds_the_variance_of_the_difference_that_they_make() -> None:
    """On average over draws it is that of the difference between the probabilities that an image is right."""
    rng = np.random.default_rng(0)
    images = 200
    skills = rng.uniform(0.3, 1.0, (2, images))
    found = []
    for _ in range(200):
        a, b = (drawn_answers(rng, 4, images, skill) for skill in skills)
        found.append(difference(a, b, is_paired=False).images_variance)
    assert np.mean(found) == pytest.approx((skills[0] - skills[1]).var(ddof=1) / images, rel=0.05)


def test_other_images_in_one_arm_leave_the_images_unknown() -> None:
    rng = np.random.default_rng(0)
    a, b = (drawn_answers(rng, 3, 50, np.full(50, skill)) for skill in (0.5, 0.6))
    moved = replace(b, correct={seed: (images + 1, right) for seed, (images, right) in b.correct.items()})
    assert difference(a, b, is_paired=False).images_variance is not None
    assert difference(a, moved, is_paired=False).images_variance is None


@pytest.mark.parametrize(("n", "family"), [(3, 1), (5, 1), (5, 7), (12, 3)])
def test_planned_power_is_that_of_welchs_test(n: int, family: int) -> None:
    design = PlannedTest(math.sqrt(2), family, is_paired=False)
    size = design.resolvable_difference(n)
    rng = np.random.default_rng(n)
    a, b = rng.normal(0, 1, (2, n, 20_000))
    found = ttest_ind(a + size, b, equal_var=False, alternative="greater").pvalue < 0.025 / family
    assert found.mean() == pytest.approx(0.8, abs=0.01)
    assert design.seeds_to_resolve(size) == n


def test_planned_equivalence_is_that_of_welchs_test() -> None:
    margin = PlannedTest(math.sqrt(2), is_paired=False).smallest_margin(6)
    a, b = np.random.default_rng(0).normal(0, 1, (2, 6, 20_000))
    below = ttest_ind(a - margin, b, equal_var=False, alternative="less").pvalue < 0.05
    above = ttest_ind(a + margin, b, equal_var=False, alternative="greater").pvalue < 0.05
    assert (below & above & (welch(a, b).pvalue >= 0.05)).mean() == pytest.approx(0.8, abs=0.01)


def test_results_of_unpaired_plans_are_compared_unpaired() -> None:
    """The seeds that both sides have pair nothing; neither do those of the change of a contrast."""
    rng = np.random.default_rng(2)
    again = {name: values + rng.normal(0, 0.003, 6) for name, values in SEEDS.items()}
    found = compare([study(SEEDS)], [study(again)])
    row = synthetic.row_of_arm(found, "stem=conv")
    expected = welch(again["conv"], CONV)
    assert (row.method, row.n_pairs, row.p) == ("welch", None, pytest.approx(expected.pvalue))
    parts = np.array([values.var(ddof=1) / 6 for values in (CONV, BASELINE, again["conv"], again["patch"])])
    freedom = parts.sum() ** 2 / (parts**2 / 5).sum()
    moved = (again["conv"].mean() - again["patch"].mean()) - (CONV.mean() - BASELINE.mean())
    interval = scipy.stats.t.interval(0.95, freedom, moved, math.sqrt(parts.sum()))
    assert row.contrast.delta_ci95 == pytest.approx(interval)
    assert any("not paired (Welch), as declared" in note for note in row.notes)
    assert "differences in points; unpaired (Welch)" in summary.render(found, "md")


def staggered(accuracies: dict[str, Any]) -> dict[str, list[float | None]]:
    """Return the accuracies of arms without common seeds."""
    last = len(accuracies) - 1
    by_arm = {}
    for number, (name, values) in enumerate(accuracies.items()):
        by_arm[name] = [*[None] * 6 * number, *values, *[None] * 6 * (last - number)]
    return by_arm


def test_changed_contrasts_of_arms_without_common_seeds_are_adjusted_by_holm() -> None:
    """Each p is SciPy's t with Satterthwaite's degrees of freedom; statsmodels adjusts them."""
    rng = np.random.default_rng(2)
    again = {name: values + rng.normal(0, 0.003, 6) for name, values in SEEDS.items()}
    expected = []
    for name in ("conv", "resnet"):
        four = (again[name], again["patch"], SEEDS[name], SEEDS["patch"])
        parts = np.array([values.var(ddof=1) / 6 for values in four])
        freedom = parts.sum() ** 2 / (parts**2 / 5).sum()
        moved = (four[0].mean() - four[1].mean()) - (four[2].mean() - four[3].mean())
        expected.append(2 * scipy.stats.t.sf(abs(moved) / math.sqrt(parts.sum()), freedom))
    found = compare([study(staggered(SEEDS))], [study(staggered(again))], interim=True)
    p_holm = [synthetic.row_of_arm(found, f"stem={name}").contrast.p_holm for name in ("conv", "resnet")]
    assert p_holm == pytest.approx(multipletests(expected, method="holm")[1])


def test_tuned_arms_are_tested_unpaired_against_each_point() -> None:
    plan = synthetic.tuned_pooling(split=OFFICIAL, paired="no")
    made = table(synthetic.results(plan))
    row = made.rows_by_arm["pool=gap,lr=tuned"]
    assert row.n_pairs is None
    assert row.delta_ci95 is not None


def planned_anew(first: dict[str, Any], then: dict[str, Any]) -> Table:
    """Return the table of a study that was declared once before its results, and once after them."""
    made = study({"patch": BASELINE, "conv": CONV}, **then)
    before = study({"patch": BASELINE, "conv": CONV}, **first).plan
    declared = [ledger.declaration(before, "2026-01-01T00:00:00Z")]
    declared.append(ledger.declaration(made.plan, "2026-01-02T00:00:00Z", sorted(made.plan.arm_trials)))
    return table(replace(made, plan=ledger.with_declarations(made.plan, declared)))


def test_pairing_that_is_given_up_after_results_is_told() -> None:
    warned = planned_anew({"paired": "by-seed"}, {"paired": "no"})
    assert any("pairing from by seed to none" in warning for warning in warned.warnings)
    assert warned.rows[1].first_declared is not None
    assert not planned_anew({"paired": "no"}, {"paired": "no"}).warnings


def test_plans_of_before_are_paired_and_declare_nothing_new() -> None:
    plan = Plan.model_validate(synthetic.make_plan("s", {"stem": ["patch", "conv"]}, {"stem": "patch"}))
    assert plan.is_paired
    assert "paired" not in json.dumps([plan.content(), ledger.declaration(plan).content()])


def test_all_of_a_family_share_its_baseline_once_in_the_spread() -> None:
    """The pooled spread of unpaired arms counts each trial once."""
    sd, freedom = pooled_spread(differences(study(SEEDS), is_paired=False), is_paired=False)
    variances = [values.var(ddof=1) for values in SEEDS.values()]
    assert (sd, freedom) == (pytest.approx(math.sqrt(2 * np.mean(variances))), 15)
