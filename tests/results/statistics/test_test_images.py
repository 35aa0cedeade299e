"""Verdicts on data with one test set for all seeds: they hold for other test images too, or are not given."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic

from results.comparison.compare import compare
from results.statistics.contrast import Sample
from results.statistics.power import PlannedTest
from results.store.schemas.plans import Plan
from results.store.schemas.trials import EvalSummary
from results.study_results import StudyResults
from results.tables.layout import render
from results.tables.study_table import table

IMAGES = 360
SPLIT = {"kind": "official", "folds": None, "images": IMAGES}
Wrong = Sequence[Sequence[int]]  # seed -> images that it misclassifies


def study(wrong: Mapping[str, Wrong], **given: Any) -> StudyResults:
    """Return a study of the arms stem=<name>, whose trials misclassify these images. The first arm is the baseline."""
    names, seeds = list(wrong), len(next(iter(wrong.values())))
    plan = synthetic.make_plan("s", {"stem": names}, {"stem": names[0]}, seeds=seeds, split=SPLIT, **given)
    made = synthetic.results(plan, synthetic.from_accuracies(plan, accuracies(wrong)))
    return replace(made, correct=answers(plan, wrong))


def accuracies(wrong: Mapping[str, Wrong]) -> dict[str, list[float | None]]:
    return {f"stem={name}": [1 - len(images) / IMAGES for images in seeds] for name, seeds in wrong.items()}


def answers(plan: dict[str, Any], wrong: Mapping[str, Wrong]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = {}
    for name, seeds in wrong.items():
        for seed, images in enumerate(seeds):
            right = ~np.isin(np.arange(IMAGES), images)
            found[synthetic.trial_id(plan, f"stem={name}", seed)] = np.arange(IMAGES), right.astype(np.uint8)
    return found


def wrong_images(first: int, count: int, seeds: int) -> list[list[int]]:
    """Return seed -> `count` images in a row from `first`; every second seed classifies one of them correctly."""
    return [list(range(first + seed % 2, first + count)) for seed in range(seeds)]


# Both arms misclassify the same images with every seed. They disagree on 24 and on 36 images of 360.
BASELINE, FEWER = wrong_images(0, 36, 5), [[*range(100, 124 + (seed == 2))] for seed in range(5)]


def test_a_difference_on_these_test_images_only_is_not_resolved_and_a_note_says_so() -> None:
    """The seeds agree that 12 images more are right, but 24 against 36 errors on other images may be chance."""
    found = study({"a": BASELINE, "b": FEWER}, margin=None)
    row = table(found).rows[1]
    seeds_alone = scipy.stats.ttest_rel(*(found.columns["test_accuracy"][5 * i : 5 * i + 5] for i in (1, 0))).pvalue
    assert seeds_alone < 1e-4
    assert row.verdict == "not-resolved"
    assert row.p is not None
    assert row.p > 0.05
    (note,) = [note for note in row.notes if "test images" in note]
    assert note == "the 95% interval excludes 0 on these test images only; over seeds and images it contains 0"


def test_the_p_value_of_a_difference_is_that_of_seeds_and_images() -> None:
    """It is the two-sided t test with the standard error of a two-way analysis of variance."""
    found = study({"a": BASELINE, "b": FEWER}, margin=None)
    right = np.array([found.correct[trial][1].astype(float) for trial in found.columns["id"]])
    pairs = right[5:] - right[:5]
    n, m = pairs.shape
    rows, columns = pairs.mean(axis=1, keepdims=True), pairs.mean(axis=0, keepdims=True)
    mse = ((pairs - rows - columns + pairs.mean()) ** 2).sum() / ((n - 1) * (m - 1))
    variance = rows.var(ddof=1) / n + columns.var(ddof=1) / m - mse / (n * m)
    expected = 2 * scipy.stats.t.sf(abs(pairs.mean()) / np.sqrt(variance), n - 1)
    assert np.isclose(float(table(found).rows[1].p or 0), expected)


def test_arms_that_tie_on_these_test_images_only_are_not_equivalent() -> None:
    """Both arms misclassify 36 images, but others: on other images the difference may exceed the margin."""
    other = [[*range(100, 136 + seed % 2)] for seed in range(5)]
    row = table(study({"a": BASELINE, "b": other}, margin=0.03)).rows[1]
    assert row.verdict == "not-resolved"
    assert row.margin_met is not None
    assert row.margin_met > 0.03
    assert any("the 90% interval is within the margin on these test images only" in note for note in row.notes)


def test_equal_answers_for_each_image_are_equivalent() -> None:
    nearly = [[*images[1:]] if seed == 3 else images for seed, images in enumerate(BASELINE)]
    assert table(study({"a": BASELINE, "b": nearly}, margin=0.03)).rows[1].verdict == "equivalent"


def test_claims_and_interactions_hold_for_other_test_images_too() -> None:
    """The four arms err on disjoint sets of images, so that seeds resolve every pair and images none."""
    counts = {"a": 36, "b": 24, "c": 30, "d": 9}
    wrong = {name: wrong_images(80 * i, count, 5) for i, (name, count) in enumerate(counts.items())}
    for seed, arm in enumerate("abcd"):
        wrong[arm][seed].pop()
    claims = ["stem=b < stem=c", "stem=a < stem=b"]
    both = {"name": "both", "ab": "stem=d", "a": "stem=b", "b": "stem=c", "baseline": "stem=a"}
    made = study(wrong, claims=claims)
    made = replace(made, plan=Plan.model_validate(made.plan.content() | {"interactions": [both]}))
    found = table(made)
    assert [claim.verdict for claim in found.claims] == ["not-resolved", "not-resolved"]
    assert all(claim.delta_ci95 and not claim.delta_ci95[0] <= 0 <= claim.delta_ci95[1] for claim in found.claims)
    assert all("on these test images only" in claim.note for claim in found.claims)
    assert found.interactions[0].verdict == "not-resolved"
    assert any("on these test images only" in note for note in found.interactions[0].notes)


def test_a_comparison_holds_for_other_test_images_too() -> None:
    """B errs on other images than A: paired, overlapping and unpaired seeds all have the images' standard error."""
    a = study({"a": BASELINE, "b": FEWER}, margin=0.03)
    for seeds in ([0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [5, 6, 7, 8, 9]):
        plan = synthetic.make_plan("s", {"stem": ["a", "b"]}, {"stem": "a"}, seeds=seeds, split=SPLIT)
        made = synthetic.results(plan, synthetic.from_accuracies(plan, accuracies({"a": FEWER, "b": FEWER})))
        trials = {trial.seed: trial.id for trial in made.plan.arms[0].trials}
        index = np.arange(IMAGES)
        correct = {trials[s]: (index, (~np.isin(index, FEWER[i])).astype(np.uint8)) for i, s in enumerate(seeds)}
        row = compare([a], [replace(made, correct=correct)]).rows[0]
        assert row.method == {0: "paired", 2: "overlapping", 5: "welch"}[seeds[0]]
        assert row.delta_ci95 is not None
        assert row.delta_ci95[0] > 0
        assert row.verdict == "not-resolved"
        assert any("on these test images only" in note for note in row.notes)


def test_images_count_where_the_answers_of_a_seed_are_missing() -> None:
    """Lost answers of one seed do not turn "not resolved" into a verdict."""
    found = study({"a": BASELINE, "b": FEWER}, margin=None)
    lost = found.columns["id"][-1]
    kept = {trial: answer for trial, answer in found.correct.items() if trial != lost}
    assert table(replace(found, correct=kept)).rows[1].verdict == "not-resolved"
    assert table(replace(found, correct={})).rows[1].verdict == "better"


def test_folds_have_no_second_standard_error() -> None:
    """Where every seed tests other images, the differences between seeds contain the noise of the images."""
    index = np.arange(4)
    one = Sample({0: 0.1, 1: 0.2}, {0: (index, index / 4), 1: (index, index / 5)}, {0: "a", 1: "b"}, folds=5)
    assert one.mean_over_images is None
    assert one.tested == one.mean


@pytest.mark.parametrize(("n", "images", "tests"), [(5, 0.3, 1), (3, 1.0, 3), (20, 0.05, 2)])
def test_planned_power_counts_the_noise_of_test_images(n: int, images: float, tests: int) -> None:
    """The power is that of t tests on simulated seeds and images; more seeds do not help against images."""
    rng, studies = np.random.default_rng(0), 20_000
    seeds = rng.normal(0, 1, (studies, n))
    mean = seeds.mean(axis=1) + rng.normal(0, np.sqrt(images), studies)
    size = np.sqrt(seeds.var(axis=1, ddof=1) / n + images)
    t = scipy.stats.t(n - 1)
    design = PlannedTest(1.0, tests, images=images)
    difference = design.resolvable_difference(n)
    assert (t.sf((mean + difference) / size) < 0.025 / tests).mean() == pytest.approx(0.8, abs=0.015)
    margin = design.smallest_margin(n)
    below, above = t.cdf((mean - margin) / size), t.sf((mean + margin) / size)
    tie = (np.maximum(below, above) < 0.05 / tests) & (t.sf(abs(mean) / size) > 0.025)
    assert tie.mean() == pytest.approx(0.8, abs=0.015)
    assert design.seeds_to_resolve(1.001 * difference) == n
    assert design.seeds_to_resolve(2 * np.sqrt(images)) is None


@pytest.mark.parametrize(("metric", "own"), [("test_accuracy@16", True), ("test_accuracy@imagenet-v2", False)])
def test_metrics_of_other_images_are_not_counted_in_the_trials_own(metric: str, own: bool) -> None:
    """Differences below half of one of 360 images are identical, but not where there are more images."""
    plan = synthetic.make_plan("s", {"stem": ["patch", "conv"]}, {"stem": "patch"}, seeds=3, split=SPLIT, metric=metric)
    records = synthetic.simulate(plan)
    for arm in plan["arms"]:
        for trial in arm["trials"]:
            value = 0.8 + (0.0002 * trial["seed"] if arm["name"] == "stem=conv" else 0.0)
            summary = EvalSummary(metrics={metric: value})
            records[trial["id"]] = replace(records[trial["id"]], evals={f"test@{metric.partition('@')[2]}": summary})
    made = table(synthetic.results(plan, records))
    assert (synthetic.row_of_arm(made, "stem=conv").delta_ci95 is None) == own
    assert ("all on the same 360 test images" in render(made, "md")) == own
