"""The table of a study: its numbers, its verdicts, and the trials that it lacks."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import synthetic
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from synthetic import ACCURACIES, make_table, row_of_arm, table_with_divergence, table_with_hole, table_with_holes

from results import store
from results.load import load_studies
from results.store.schemas.metrics import metric_by_name
from results.tables import sentences
from results.tables.formats import TABLE_FORMATS
from results.tables.layout import render
from results.tables.study_table import table


def test_verdicts_follow_the_data() -> None:
    found = make_table()
    assert [row.verdict for row in found.rows] == ["worse", None, "equivalent", "worse"]
    row = row_of_arm(found, "position=1d")
    compared = ("delta", "delta_ci95", "delta_ci95_images", "p", "p_holm", "n_pairs")
    assert [getattr(row, name) for name in compared] == [None] * 6
    loss = row_of_arm(make_table(synthetic.position(metric="test_loss", margin=None, claims=[])), "position=none")
    assert (loss.delta > 0, loss.verdict) == (True, "worse")


def test_every_point_of_a_curve_has_its_own_baseline_and_confounds_are_footnotes() -> None:
    found = table(synthetic.results(synthetic.pooling()))
    assert found.plan.family == 3
    for row in found.rows:
        assert row.baseline == f"pool=cls,{row.arm.partition(',')[2]}"
        assert (row.delta is None) == row.arm.startswith("pool=cls")
    text = render(found, "md")
    assert "| pool=gap,lr=0.002 [1]" in text
    assert "[1] one token fewer (no class token)" in text


def test_a_table_shows_the_parameters_and_flops_that_trials_recorded() -> None:
    """The plan may be of other code than the trials; where trials of an arm differ, the table says so."""
    plan = synthetic.position()
    ids = {arm["name"]: [trial["id"] for trial in arm["trials"]] for arm in plan["arms"]}
    records = synthetic.simulate(plan)
    changes = {key: {"params": 40_000, "flops": 1_000_000} for key in ids["position=none"]}
    changes[ids["position=2d"][0]] = {"params": 60_000}
    study = synthetic.results(plan, {key: synthetic.changed(records[key], **new) for key, new in changes.items()})
    found = table(study)
    none, mixed, same = (row_of_arm(found, f"position={name}") for name in ("none", "2d", "1d"))
    planned = {arm["name"]: arm for arm in plan["arms"]}
    assert (none.params, none.flops) == (40_000, 1_000_000)
    assert (same.params, same.flops) == (planned["position=1d"]["params"], planned["position=1d"]["flops"])
    assert (mixed.params, mixed.flops) == (None, planned["position=2d"]["flops"])
    before = planned["position=none"]["params"], planned["position=none"]["flops"]
    assert none.notes == [
        f"trained with 40,000 parameters, not the {before[0]:,} of the plan: the code has changed since",
        f"trained with 1,000,000 FLOPs an image, not the {before[1]:,} of the plan: the code has changed since",
    ]
    own = f"{planned['position=2d']['params']:,}"
    assert f"trained with {own} or 60,000 parameters, not the {own} of the plan" in mixed.notes[-1]
    assert not [note for note in same.notes if "of the plan" in note]
    assert {arm.name: arm.params for arm in study.plan.arms}["position=none"] == 40_000  # of figures too


def test_official_test_sets_have_a_second_interval() -> None:
    """Where all seeds test the same images, there is an interval over seeds and images too."""
    found = table(synthetic.results(synthetic.position(split={"kind": "official", "images": 500})))
    for row in found.rows:
        if row.delta is not None:
            outer, inner = row.delta_ci95_images, row.delta_ci95
            assert outer[0] <= inner[0] <= inner[1] <= outer[1]
    both = "over seeds on these test images"
    assert all(both in render(found, format) for format in ("md", "html"))
    assert both not in render(found, "md", columns=["arm", "delta"])


def test_the_metric_of_a_study_is_named_once_where_it_is_a_column_too() -> None:
    text = render(table(synthetic.results(synthetic.position()), ["test_accuracy"]), "md", ["arm", "test_accuracy"])
    assert text.count("test accuracy") == 2  # in the caption and the heading


@pytest.mark.parametrize("repetitions", [1, 2, 3])
def test_repetitions_of_folds_widen_the_interval(repetitions: int) -> None:
    """r repetitions add (1 - 1/r) t^2 / 1797 to SE^2, where t^2 is the mean covariance between them; one adds none."""
    n = 5 * repetitions
    study = synthetic.results(synthetic.position(seeds=n))
    row = row_of_arm(table(study), "position=none")
    differences, whole = np.zeros(n), np.zeros((repetitions, 1797))
    for arm, sign in (("position=none", 1), ("position=1d", -1)):
        mine = study.trials[study.trials["arm"] == arm]
        differences += sign * mine["test_accuracy"].to_numpy()
        for seed, trial in zip(mine["seed"], mine["id"], strict=True):
            index, correct = study.correct[trial]
            whole[seed // 5, index] += sign * correct.astype(float)
    shared = [np.cov(whole[i], whole[j])[0, 1] for i in range(repetitions) for j in range(i)]
    assert repetitions == 1 or np.mean(shared) > 0
    se = np.sqrt(differences.var(ddof=1) / n + (1 - 1 / repetitions) * np.mean(shared or [0.0]) / 1797)
    half = scipy.stats.t.ppf(0.975, n - 1) * se
    assert row.delta_ci95 == pytest.approx([differences.mean() - half, differences.mean() + half])
    assert row.p == pytest.approx(2 * scipy.stats.t.sf(abs(differences.mean()) / se, n - 1))


@pytest.mark.parametrize("status", ["missing", "running", "interrupted", "broken", "failed", "diverged"])
def test_a_cell_without_a_number_is_counted_and_named(status: str) -> None:
    row = row_of_arm(table_with_hole(status, "why"), "position=2d")
    counted = status if status in ("failed", "diverged") else "missing"
    assert (row.n, row.planned, row.n_pairs, getattr(row, counted)) == (4, 5, 4, 1)
    assert row.diverged + row.failed + row.missing == 1
    assert f"seed 3 {counted}: why" in row.notes
    assert "the difference is over seeds 0, 1, 2, 4, which both arms finished" in row.notes
    of_baseline = table_with_hole(status, arm="position=1d")
    assert [(row.n, row.n_pairs) for row in of_baseline.rows] == [(5, 4), (4, None), (5, 4), (5, 4)]


def test_a_missing_contrast_stays_in_the_family() -> None:
    whole, without = make_table(), make_table(interim=True, relative=[None] * 5)
    row = row_of_arm(without, "position=relative")
    assert (row.n, row.mean, row.delta, row.p_holm, row.verdict) == (0, None, None, None, None)
    assert row_of_arm(without, "position=none").p_holm == row_of_arm(whole, "position=none").p_holm
    assert row_of_arm(without, "position=2d").p_holm == pytest.approx(min(1, 2 * row_of_arm(whole, "position=2d").p))
    planned = row_of_arm(make_table(synthetic.position() | {"family": 7}), "position=none")  # four were pruned
    assert planned.p_holm == pytest.approx(7 * planned.p)


def test_the_rate_of_divergence_is_over_trials_that_ended() -> None:
    states = {("position=2d", seed): state for seed, state in enumerate(["diverged", "diverged", "missing", "failed"])}
    states |= {("position=1d", 3): "missing", ("position=1d", 4): "missing"}
    holes = {trial: synthetic.hole(state) for trial, state in states.items()}
    row = row_of_arm(table_with_holes(holes, interim=True), "position=2d")
    low, high = proportion_confint(2, 3, method="beta")
    assert f"2 of 3 diverged (95% interval {low:.0%} to {high:.0%})" in row.notes
    assert sentences.difference_text(row, metric_by_name("test_accuracy")) == "as 2 of 3 trials diverged"
    assert row.p == pytest.approx(scipy.stats.fisher_exact([[2, 1], [0, 3]], alternative="greater").pvalue)
    row = row_of_arm(
        table_with_holes(holes | {("position=2d", 4): synthetic.hole("finished")}, interim=True), "position=2d"
    )
    assert (row.n, row.diverged, row.failed, row.missing) == (0, 2, 1, 2)
    assert f"2 of 2 diverged (95% interval {proportion_confint(2, 2, method='beta')[0]:.0%} to 100%)" in row.notes


@pytest.mark.parametrize(("seeds", "note"), [(1, "one seed gives no interval"), (2, "2 seeds resolve only"), (5, "")])
def test_a_table_of_few_seeds_states_what_they_can_test(seeds: int, note: str) -> None:
    notes = table(synthetic.results(synthetic.position(seeds=seeds))).notes
    assert [text.startswith(note) for text in notes] == ([True] if note else [])


def test_an_arm_that_always_diverges_is_worse() -> None:
    found = table_with_divergence(5)
    row, p = row_of_arm(found, "position=2d"), scipy.stats.fisher_exact([[5, 0], [0, 5]], alternative="greater").pvalue
    assert (row.p, row.verdict, row.margin_met) == (pytest.approx(p), "worse", None)
    compared = [one for one in found.rows if one.arm != "position=1d"]
    assert [one.p_holm for one in compared] == pytest.approx(
        multipletests([one.p for one in compared], method="holm")[1]
    )
    assert "no interval of the difference: n = 0" in row.notes
    assert any("Fisher's exact test" in note for note in row.notes)
    assert "position=2d as 5 of 5 trials diverged" in sentences.answer(found)


def test_divergence_is_tested_beside_the_finished_pairs() -> None:
    """p is twice the smaller of two; where the baseline diverges too, it is Fisher's alone."""
    some = row_of_arm(table_with_divergence(3), "position=2d")
    pairs = scipy.stats.ttest_rel(ACCURACIES["position=2d"][3:], ACCURACIES["position=1d"][3:]).pvalue
    more = scipy.stats.fisher_exact([[3, 2], [0, 5]], alternative="greater").pvalue
    assert some.p == pytest.approx(min(1, 2 * min(pairs, more)))
    assert some.verdict == "not-resolved"
    both = row_of_arm(table_with_divergence(2, baseline=2), "position=2d")
    assert both.p == pytest.approx(scipy.stats.fisher_exact([[2, 3], [2, 3]], alternative="greater").pvalue)


def test_equivalence_is_corrected_too() -> None:
    """Holm adjusts the one-sided tests; the smallest margin met is the end of an interval at the first step's level."""
    plan = synthetic.position(margin=0.0125)
    found = make_table(plan, none=[0.95, 0.94, 0.94, 0.95, 0.95], relative=[0.95, 0.94, 0.94, 0.95, 0.95])
    base = np.array(ACCURACIES["position=1d"])
    arm = np.array([0.95, 0.94, 0.94, 0.95, 0.95])
    interval = scipy.stats.ttest_rel(arm, base).confidence_interval(1 - 2 * 0.05 / 3)
    p = scipy.stats.ttest_rel(arm, base + 0.0125, alternative="less").pvalue
    assert 0.05 / 3 < p < 0.05
    rows = [row for row in found.rows if row.delta is not None]
    assert [row.margin_met for row in rows] == pytest.approx([max(-interval.low, interval.high)] * 3)
    assert [row.verdict for row in rows] == ["not-resolved"] * 3
    assert "the 90% interval is within the margin, but not after correction for 3 contrasts" in rows[0].notes
    wide = make_table(synthetic.position(margin=0.0275), none=list(arm), relative=list(arm))
    assert [row.verdict for row in wide.rows if row.delta is not None] == ["equivalent"] * 3


def test_a_table_whose_trials_are_not_all_over_has_no_verdict() -> None:
    holes: list[float | None] = [0.76, 0.75, 0.77, 0.74, None]
    plain, asked = make_table(none=holes), make_table(interim=True, none=holes)
    assert (plain.interim, plain.judged, asked.judged) == (True, False, True)
    for row, other in zip(plain.rows, asked.rows, strict=True):
        assert (row.p, row.p_holm, row.verdict) == (None, None, None)
        assert (row.mean, row.delta, row.delta_ci95) == (other.mean, other.delta, other.delta_ci95)
    assert row_of_arm(asked, "position=none").verdict == "worse"
    assert {(claim.verdict, claim.note) for claim in plain.claims} == {
        (None, "no verdict before all planned trials are done")
    }
    assert "19 of 20 trials done): no verdict" in sentences.answer(plain)
    text = render(plain, "md")
    assert "Interim: 19 of 20 planned trials done" in text
    assert "p (Holm)" not in text
    assert "worse (interim)" in render(asked, "md")
    assert next(csv.DictReader(io.StringIO(render(asked, "csv"))))["verdict"] == "worse (interim)"
    assert "Interim" not in render(make_table(), "md")


def test_intervals_are_simultaneous_where_asked() -> None:
    plan = synthetic.position()
    study = synthetic.results(plan, synthetic.from_accuracies(plan, ACCURACIES))
    found = table(study, simultaneous=True)
    for row in found.rows:
        if row.delta is not None:
            outer, inner = row.delta_ci95_simultaneous, row.delta_ci95
            assert outer[0] < inner[0] < inner[1] < outer[1]
    assert "95% CI, simultaneous" in render(found, "md")
    assert "simultaneous" not in render(table(study), "md")


def test_an_outlier_is_noted() -> None:
    assert not any("is an outlier" in note for row in make_table().rows for note in row.notes)
    row = row_of_arm(make_table(**{"2d": [0.95, 0.94, 0.94, 0.75, 0.95]}), "position=2d")
    assert "seed 3 is an outlier: -19.00, the median is -1.00 points" in row.notes


def test_a_study_that_has_not_begun_is_a_table_of_holes() -> None:
    """A cell without a verdict is a dash, as a word could be mistaken for an arm's value."""
    found = make_table(**{name.partition("=")[2]: [None] * 5 for name in ACCURACIES})
    assert [(row.n, row.missing) for row in found.rows] == [(0, 5)] * 4
    assert "0 of 20 trials done" in sentences.answer(found)
    for form in TABLE_FORMATS:
        assert "position=none" in render(found, form)
    for form, cell in {"md": "| – ", "latex": "& -- ", "html": ">–<"}.items():
        text = render(found, form, ["arm", "verdict"])
        assert text.count("none") == text.count("position=none")
        assert cell in text


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("damage"), synthetic.position())


EDITED = "edited or damaged since its result was published"


@pytest.mark.parametrize(
    ("name", "n", "note"),
    [
        ("result.json", 4, "seed 1 missing: result.json"),
        ("correct.npz", 5, f"seed 1 finished: correct.npz: {EDITED}"),
        ("metrics.jsonl", 5, f"seed 1 finished: metrics.jsonl: {EDITED}"),
        ("env.json", 5, f"seed 1 finished: env.json: {EDITED}"),
        ("released.json", 5, ""),
    ],
)
def test_a_damaged_file_is_named_and_only_a_result_is_a_hole(runs: Path, name: str, n: int, note: str) -> None:
    trial = store.trial(runs, synthetic.trial_id(synthetic.position(), "position=2d", 1))
    path = (trial.path if name == "result.json" else trial.path / "attempts/0001") / name
    whole, before = path.read_bytes(), table(load_studies(runs)[0]).rows
    middle = len(whole) // 2
    try:
        for damaged in (b"", b"[]", b"{}", whole * 2, whole[:-9], whole[:middle] + b"7" + whole[middle + 1 :]):
            path.write_bytes(damaged)
            rows = table(load_studies(runs)[0]).rows
            row = next(row for row in rows if row.arm == "position=2d")
            named = [text for text in row.notes if "seed 1" in text]
            assert (row.n, [text[: len(note)] for text in named]) == (n, [note] if note else [])
            if n == 5:
                assert [replace(row, notes=[]) for row in rows] == [replace(row, notes=[]) for row in before]
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("arm", "difference", "resolved", "flips"),
    [
        ("position=2d", -0.006, True, True),
        ("position=2d", -0.006, False, False),  # neither is resolved
        ("position=none", -0.1, True, False),  # the sign stays
        ("position=none", 0.1, False, True),  # ours is resolved
    ],
)
def test_a_sign_that_flips_at_twice_the_steps_is_noted(
    arm: str, difference: float, resolved: bool, flips: bool
) -> None:
    plan = synthetic.position()
    there = {"difference": difference, "origin": "measured: by hand, n = 5", "resolved": resolved}
    next(one for one in plan["arms"] if one["name"] == arm)["at_twice_the_steps"] = there
    notes = [note for row in make_table(plan).rows for note in row.notes if "speed" in note]
    said = f"the difference is {100 * difference:+.2f} points (measured: by hand, n = 5)"
    assert notes == ([f"optimization speed: at twice the steps {said}"] if flips else [])
