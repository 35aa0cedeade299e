"""Two sets of results compared: pairing, tests, verdicts and notes."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic
from statsmodels.stats.multitest import multipletests
from synthetic import ACCURACIES as SEEDS
from synthetic import row_of_arm

from results.comparison.compare import compare
from results.comparison.records import ComparedRow
from results.comparison.summary import failing_rows, gate_text, render
from results.statistics import contrast, intervals, looks
from results.store import ledger
from results.store.schemas.plans import Plan
from results.study_results import StudyResults


def make_study(plan: dict[str, Any] | Plan | None = None, **changes: Sequence[float | None]) -> StudyResults:
    """Make a study with SEEDS as accuracies; `none=[...]` replaces those of position=none."""
    plan = plan or synthetic.position()
    return synthetic.with_weights(synthetic.results(plan, synthetic.position_records(plan, **changes)))


def with_other_code(study: StudyResults) -> StudyResults:
    """Return the study with other trial ids under the same arm keys, as after a change of a part's numerics."""
    ids = [f"f{trial[1:]}" for trial in study.columns["id"]]
    return replace(study, columns=study.columns | {"id": ids, "weights_sha256": [""] * len(ids)})


def shifted_results(study: StudyResults, by: Sequence[float]) -> StudyResults:
    """Return the study with the test accuracies of every arm changed, by seed."""
    seeds, accuracies = study.columns["seed"], study.columns["test_accuracy"]
    changed = [value + by[seed] for seed, value in zip(seeds, accuracies, strict=True)]
    return replace(study, columns=study.columns | {"test_accuracy": changed})


WORSE = np.add(SEEDS["position=2d"], [-0.05, -0.06, -0.05, -0.07, -0.05]).tolist()
EQUIVALENT = np.add(SEEDS["position=1d"], [0.01, -0.01, 0.002, 0.01, -0.01]).tolist()


def row_without_change(b: StudyResults) -> ComparedRow:
    """Compare `b` with the unchanged study; return the row of position=none."""
    return row_of_arm(compare([make_study()], [b]), "position=none")


def test_the_same_results_are_identical_and_the_keys_are_those_that_others_read() -> None:
    """Equal trials on both sides are no test, so the family is empty."""
    found = compare([make_study()], [make_study()])
    assert [row.verdict for row in found.rows] == ["identical"] * 4
    assert (found.family, found.provenance) == (0, {})
    assert {(row.p_holm, row.untested) for row in found.rows} == {(None, None)}
    content = json.loads(render(found, "json"))
    assert {"a", "b", "rows", "provenance"} <= content.keys()
    expected = {"study", "recipe", "arm", "a", "b", "delta", "delta_ci95", "p_holm", "verdict"}
    assert all(expected <= row.keys() for row in content["rows"])
    assert {"mean", "n", "ci95"} <= content["rows"][0]["a"].keys()


def test_a_trial_that_studies_share_is_counted_once() -> None:
    one = make_study()
    two = make_study(one.plan.model_copy(update={"name": "again@digits", "study": "again"}))
    side = compare([one, two], [one]).a
    assert (side.planned, side.over) == (20, 20)


def test_common_seeds_of_the_same_split_are_paired() -> None:
    """SciPy's paired test gives B - A; Holm covers the tested rows alone."""
    found = compare([make_study()], [make_study(**{"2d": WORSE, "1d": EQUIVALENT})])
    pairs = (WORSE, SEEDS["position=2d"]), (EQUIVALENT, SEEDS["position=1d"])
    tests = [scipy.stats.ttest_rel(*pair) for pair in pairs]
    adjusted = multipletests([test.pvalue for test in tests], method="holm")[1]
    row = row_of_arm(found, "position=2d")
    assert (row.method, row.n_pairs, row.verdict) == ("paired", 5, "worse")
    assert row.delta_ci95 == pytest.approx(list(tests[0].confidence_interval()))
    assert [row_of_arm(found, name).p_holm for name in ("position=2d", "position=1d")] == pytest.approx(adjusted)
    assert row_of_arm(found, "position=none").verdict == "identical"
    assert found.verdicts == {"identical": 2, "worse": 1, "equivalent": 1}


def test_the_same_trial_with_another_number_is_tested_and_named() -> None:
    row = row_without_change(make_study(none=[0.77, 0.75, 0.78, 0.76, 0.80]))
    assert (row.identical, row.n_pairs) == ([1], 4)
    assert "seeds 0, 2, 3, 4: the same trial gave another number" in row.notes
    assert any(note.startswith("seed 1: the same weights on both sides") for note in row.notes)


def test_other_seeds_are_compared_by_welch() -> None:
    plan = synthetic.position(seeds=range(5, 10))
    accuracies = [0.90, 0.91, 0.89, 0.90, 0.92]
    row = row_without_change(make_study(plan, none=accuracies))
    expected = scipy.stats.ttest_ind(accuracies, SEEDS["position=none"], equal_var=False)
    assert (row.method, row.n_pairs, row.verdict) == ("welch", None, "better")
    assert row.p == pytest.approx(expected.pvalue)
    assert row.delta_ci95 == pytest.approx(list(expected.confidence_interval()))


def test_seeds_of_another_split_or_of_other_images_are_not_paired() -> None:
    """What the trials tested counts, whatever the plan says."""
    split = synthetic.position(split={"kind": "folds", "folds": 10, "images": 1797})
    assert row_without_change(with_other_code(make_study(split))).method == "welch"
    study = synthetic.results(synthetic.position())
    moved = {key: (np.roll(index, 1) + 1, correct) for key, (index, correct) in study.correct.items()}
    b = replace(shifted_results(study, [-0.01] * 5), correct=moved)
    assert row_of_arm(compare([study], [b]), "position=none").method == "welch"


def test_added_seeds_leave_the_common_trials_identical() -> None:
    more = {name.partition("=")[2]: [*values, *values] for name, values in SEEDS.items()}
    found = compare([make_study()], [make_study(synthetic.position(seeds=10), **more)])
    row = row_of_arm(found, "position=none")
    assert (row.verdict, row.a.n, row.b.n) == ("identical", 5, 10)
    assert any("one side has more seeds" in note for note in row.notes)
    assert "identical in 5 common seeds" in render(found, "md")


def test_arms_are_matched_by_what_was_trained() -> None:
    plans = synthetic.position(), synthetic.patch_size()
    found = compare(*([synthetic.with_weights(synthetic.results(plan))] for plan in plans))
    assert row_of_arm(found, "position=1d").verdict == "identical"
    notes = {arm: row_of_arm(found, arm).notes for arm in ("position=1d", "position=none", "patch=1")}
    expected = (["patch=2 of patch-size@digits in B"], ["only in A"], ["only in B"])
    assert notes == dict(zip(notes, expected, strict=True))
    assert row_of_arm(found, "patch=1").a is None


def test_a_baseline_of_several_studies_is_one_test() -> None:
    """Shared trials count once in the family; rows without a difference have no p."""
    plans = [synthetic.position(), synthetic.patch_size(), synthetic.hybrid_stem()]
    a = [synthetic.results(plan) for plan in plans]
    found = compare(a, [with_other_code(study) for study in a])
    assert (len(found.rows), found.family) == (10, 0)
    nudge = np.random.default_rng(0).normal(0.01, 0.005, 5).tolist()
    b = [replace(shifted_results(study, nudge), correct={}) for study in a]
    arms = {arm["key"] for plan in plans for arm in plan["arms"]}
    assert compare(a, b).family == len(arms) == 8


def test_what_is_tested_of_a_changed_verdict_is_the_difference_of_differences() -> None:
    changed = [0.93, 0.95, 0.94, 0.93, 0.96]
    row = row_without_change(make_study(none=changed))
    a = np.subtract(SEEDS["position=none"], SEEDS["position=1d"])
    b = np.subtract(changed, SEEDS["position=1d"])
    interval = scipy.stats.ttest_rel(b, a).confidence_interval()
    assert (row.contrast.a, row.contrast.b) == ("worse", "equivalent")
    assert row.contrast.delta == pytest.approx((b - a).mean())
    assert row.contrast.delta_ci95 == pytest.approx(list(interval))
    assert row.contrast.p_holm < 0.0001
    moved = f"moved by {100 * (b - a).mean():+.2f} ± {50 * np.ptp(interval):.2f} points, p <0.0001"
    tested = f"descriptive; its difference from the baseline {moved}"
    assert f"against its baseline worse in A, equivalent in B: {tested}" in row.notes


def test_holes_are_named_on_their_side() -> None:
    row = row_without_change(make_study(none=[0.80, None, 0.82, 0.79, 0.81]))
    assert (row.n_pairs, row.b.missing) == (4, 1)
    assert "B: seed 1 missing: not started" in row.notes


@pytest.mark.parametrize("unfinished", ["A", "B", "A and B"])
def test_an_unfinished_side_has_no_verdict(unfinished: str) -> None:
    """Verdicts and p values are those of --interim, where they are marked."""
    hole = {"1d": [0.94, 0.95, 0.93, 0.94, None]}
    a = make_study(**(hole if "A" in unfinished else {}))
    b = make_study(**{"2d": WORSE}, **(hole if "B" in unfinished else {}))
    row, now = (row_of_arm(compare([a], [b], interim), "position=2d") for interim in (False, True))
    assert (row.verdict, row.p, row.p_holm, row.untested) == (None, None, None, f"{unfinished} unfinished")
    assert (now.verdict, now.untested, row.interim, now.interim) == ("worse", None, True, True)
    assert (row.delta, row.delta_ci95) == (now.delta, now.delta_ci95)
    withheld, given = compare([a], [b]), compare([a], [b], interim=True)
    assert (withheld.judged, given.judged) == (False, True)
    assert f"– ({unfinished} unfinished)" in render(withheld, "md")
    assert "so there is no verdict (--interim shows it)" in render(withheld, "md")
    assert "worse (interim)" in render(given, "md")
    assert "worse (interim)" in render(given, "csv")


def grown(study: StudyResults, *numbers: int, day: int = 1, grows: bool = False) -> StudyResults:
    """Return the study as it is after tables with these numbers of seeds, the last its own, an hour apart."""
    declared, ended = [], list[str]()
    for hour, number in enumerate(numbers):
        arms = [arm.model_copy(update={"trials": arm.trials[:number]}) for arm in study.plan.arms]
        plan = study.plan.model_copy(update={"arms": arms, "seeds": study.plan.seeds[:number], "grows": grows})
        declared.append(ledger.declaration(plan, f"2026-01-{day:02}T{hour:02}:00:00Z", ended))
        ended = sorted(declared[-1].ids)
    plan = study.plan.model_copy(update={"declarations": declared, "grows": grows})
    return replace(study, plan=plan)


def test_a_margin_that_was_declared_after_results_is_marked_with_the_first_verdict() -> None:
    """B first declared no margin; within the later one an arm is equivalent."""
    b = with_own_weights(make_study(**{"1d": EQUIVALENT}))
    first = ledger.declaration(b.plan.model_copy(update={"margin": None}), "2026-01-01T00:00:00Z")
    later = ledger.declaration(b.plan, "2026-01-02T00:00:00Z", sorted(first.ids))
    late = replace(b, plan=b.plan.model_copy(update={"declarations": [first, later]}))
    plain, marked = (compare([make_study()], [side]) for side in (b, late))
    row, same = row_of_arm(marked, "position=1d"), row_of_arm(plain, "position=1d")
    assert (same.verdict, same.first_declared) == ("equivalent", None)
    assert (row.verdict, row.first_declared) == ("equivalent", "not-resolved")
    assert any(note.startswith("B: changed after there were results: margin from none to 2.50") for note in row.notes)
    assert "equivalent (first declared: not-resolved)" in render(marked, "md")
    assert "(first declared" not in render(plain, "md")


def ten_seeds(shift: float, seed: int) -> StudyResults:
    rng = np.random.default_rng(seed)
    numbers = {name.partition("=")[2]: (0.9 - shift + 0.01 * rng.standard_normal(10)).tolist() for name in SEEDS}
    return make_study(synthetic.position(seeds=10), **numbers)


@pytest.mark.parametrize("grows", [False, True])
def test_p_of_a_comparison_counts_the_looks_of_both_sides(grows: bool) -> None:
    """B grew from 4 to 7 to 10 seeds: SciPy's p times 1 (2 if growth was declared), 6 and 12, the smallest counts."""
    a, b = grown(ten_seeds(0.0, 0), 10, day=1), grown(ten_seeds(0.008, 1), 4, 7, 10, day=2, grows=grows)
    found = compare([a], [with_own_weights(b)])
    for row in found.rows:
        left, right = (np.array(values_of(side, row.arm)) for side in (a, b))
        p_values = []
        for number, factor in ((4, 2 if grows else 1), (7, 6), (10, 12)):
            some = intervals.overlapping_samples(left, right[:number], number)
            p = scipy.stats.ttest_rel(right, left).pvalue if number == 10 else some.p_value
            if (some.value > 0) == (row.delta > 0):
                p_values.append(factor * p)
        assert row.p == pytest.approx(min(1.0, *p_values))
        note = f"the smallest of {2 if grows else 1} x p with 10 and 4 seeds, 6 x p with 10 and 7 seeds, 12 x p"
        assert any(note in one for one in row.notes)


def test_looks_of_both_sides_are_merged_by_time() -> None:
    """A looked at 5 seeds before there was a B; then both grow in turn, and A loses its last seeds."""
    a, b = grown(ten_seeds(0.0, 0), 5, 7, 10, day=1), grown(ten_seeds(0.0, 1), 5, 10, day=1)
    late = [one.model_copy(update={"time": f"2026-01-01T01:{30 + i}:00Z"}) for i, one in enumerate(b.plan.declarations)]
    samples = [contrast.samples_by_arm(one, "test_accuracy")["position=2d"] for one in (a, b)]
    trials = list(map(looks.trials_by_seed, samples))
    b = replace(b, plan=b.plan.model_copy(update={"declarations": late}))
    counted = looks.looks((trials[0], a.plan), (trials[1], b.plan))
    assert [(*map(len, one.seeds), one.factor, one.is_whole) for one in counted] == [
        (7, 5, 1, True), (7, 10, 6, True), (10, 10, 12, True)
    ]  # fmt: skip
    pruned = a.plan.model_copy(update={"seeds": a.plan.seeds[:6]})
    counted = looks.looks((trials[0], pruned), (trials[1], b.plan))
    assert [(len(one.seeds[0]), one.factor, one.is_whole) for one in counted] == [
        (7, 1, False), (7, 6, False), (10, 12, False), (6, 20, True)
    ]  # fmt: skip


def test_the_bound_of_a_gate_counts_looks() -> None:
    """The bound is the smallest of 95% at the first look, and 1 - 5% / 6 at the second."""
    a, b = grown(ten_seeds(0.0, 0), 10), grown(ten_seeds(0.0, 1), 5, 10, day=2)
    row = row_of_arm(compare([a], [with_own_weights(b)]), "position=2d")
    left, right = (np.array(values_of(side, "position=2d")) for side in (a, b))
    first = intervals.overlapping_samples(right[:5], left, 5).interval(0.9)[1]
    last = scipy.stats.ttest_rel(left, right).confidence_interval(1 - 0.1 / 6).high
    assert row.worse_by_at_most == pytest.approx(min(first, last))


def values_of(study: StudyResults, arm: str) -> list[float]:
    names = zip(study.columns["arm"], study.columns["test_accuracy"], strict=True)
    return [value for name, value in names if name == arm]


def with_own_weights(study: StudyResults) -> StudyResults:
    return replace(study, columns=study.columns | {"weights_sha256": [""] * len(study.columns["id"])})


def test_tests_of_an_unfinished_study_stay_in_the_family() -> None:
    """The verdicts of finished studies do not wait, and their p values do not shrink."""
    whole = make_study(), make_study(**{"2d": WORSE})
    plan = synthetic.hybrid_stem()
    open_a, open_b = synthetic.results(plan), with_other_code(synthetic.results(plan))
    open_b = shifted_results(replace(open_b, correct={}), [0.01, -0.01, 0.02, 0.0, 0.01])
    open_b.columns["status"][0] = "missing"
    found = compare([whole[0], open_a], [whole[1], open_b])
    everything = compare([whole[0], open_a], [whole[1], open_b], interim=True)
    assert found.family == everything.family == 4
    row, same = (row_of_arm(one, "position=2d") for one in (found, everything))
    assert (row.p_holm, row.verdict) == (same.p_holm, "worse")
    assert [one.untested for one in found.rows if one.study == "hybrid-stem"] == ["B unfinished"] * 3


def test_provenance_names_what_differs() -> None:
    """A plug-in counts where both sides loaded it: trials that do not use it are the same without it."""

    def with_all(**values: str) -> StudyResults:
        study = make_study()
        return replace(study, columns=study.columns | {name: [value] * 20 for name, value in values.items()})

    a = make_study()
    found = compare([a], [with_all(code="fedcba987654", torch="2.15.0")]).provenance
    assert found["code"] == {"a": ["0123456789ab"], "b": ["fedcba987654"]}
    assert found["torch"] == {"a": ["2.14.1"], "b": ["2.15.0"]}
    assert len(found) == 2
    b = with_all(code="0123456789ab+bbbb", plugins='{"patch.py": "bbbb"}')
    assert compare([a], [b]).provenance == {}
    a.columns["plugins"][0] = '{"patch.py": "aaaa"}'
    assert compare([a], [b]).provenance == {"plugin patch.py": {"a": ["aaaa"], "b": ["bbbb"]}}


def test_every_format_has_every_row() -> None:
    found = compare(
        [make_study()], [make_study(none=[0.90, 0.91, 0.89, 0.90, 0.93]), synthetic.results(synthetic.patch_size())]
    )
    lines = [line for line in render(found, "md").splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 2 + len(found.rows)
    in_csv, in_json = list(csv.DictReader(io.StringIO(render(found, "csv")))), json.loads(render(found, "json"))["rows"]
    assert float(in_csv[0]["delta"]) == in_json[0]["delta"] == found.rows[0].delta
    assert len(in_csv) == len(in_json) == render(found, "html").count("<tr>") - 1 == len(found.rows)
    assert render(found, "latex").count(r" \\") >= 1 + len(found.rows)
    with pytest.raises(ValueError, match="format=xml: one of"):
        render(found, "xml")


def test_a_row_without_a_verdict_says_why() -> None:
    long = synthetic.position(recipe="long", name="position-embedding@long", overrides={"width": 64})
    renamed = with_other_code(make_study())
    renamed = replace(renamed, plan=synthetic.with_arms(renamed.plan, lambda arm: {"key": f"f{arm.key[1:]}"}))
    data = synthetic.position()
    for arm in data["arms"]:
        arm["config"]["data"], arm["key"] = "cifar10", f"c{arm['key'][1:]}"
    expected = {
        "other settings": make_study(synthetic.position(overrides={"width": 64})),
        "other recipe": make_study(long),
        "other metric": make_study(synthetic.position(metric="test_loss", claims=[])),
        "other data": make_study(data),
        "n = 1": make_study(none=[0.90, None, None, None, None]),
        "other version": renamed,
        "only in A": synthetic.results(synthetic.patch_size(seeds=2)),
    }
    for why, b in expected.items():
        found = compare([make_study()], [b])
        assert (row_of_arm(found, "position=none").verdict, row_of_arm(found, "position=none").untested) == (None, why)
        assert f"– ({why})" in render(found, "md")
        assert why in render(found, "csv")
    assert row_of_arm(compare([], [make_study()]), "position=2d").untested == "only in B"


def test_provenance_names_recipes_that_differ() -> None:
    plan = synthetic.position(recipe="long", name="position-embedding@long", overrides={"width": 64, "lr": 0.1})
    found = compare([make_study()], [make_study(plan)]).provenance
    differing = {"recipe": ("digits", "long"), "width": ("32", "64"), "lr": ("0.002", "0.1")}
    assert found == {name: {"a": [a], "b": [b]} for name, (a, b) in differing.items()}
    copied = compare([make_study()], [make_study(synthetic.position(recipe="copy"))]).provenance
    assert copied == {"recipe": {"a": ["digits"], "b": ["copy"]}}


def test_options_that_differ_are_named_one_by_one() -> None:
    a, b = (make_study(synthetic.position(overrides={"options": {"position.base": base}})) for base in (100, 10))
    (row,) = (row for row in compare([a], [b]).rows if row.arm == "position=2d")
    assert row.notes[-1] == "shown side by side, not compared: position.base 100 and 10"


def test_what_could_have_been_seen_has_the_planned_power() -> None:
    """The spread is pooled over the tested rows, at its upper 80% bound; Holm is accounted for as in the plan."""
    found = compare([make_study()], [make_study(**{"2d": WORSE, "1d": EQUIVALENT})])
    pairs = (WORSE, SEEDS["position=2d"]), (EQUIVALENT, SEEDS["position=1d"])
    spreads = [np.subtract(*pair).var(ddof=1) for pair in pairs]
    bound = np.sqrt(np.mean(spreads) * 8 / scipy.stats.chi2.ppf(0.2, 8))
    resolvable = {row.arm: row.resolvable_difference for row in found.rows}
    expected = resolvable["position=2d"]
    power = scipy.stats.nct.sf(scipy.stats.t.ppf(1 - 0.025 / 2, 4), 4, expected * np.sqrt(5) / bound)
    assert power == pytest.approx(0.8)
    assert resolvable == dict.fromkeys(SEEDS) | dict.fromkeys(["position=1d", "position=2d"], expected)
    seen = f"ifferences of {np.ceil(expected * 1e4) / 100:.2f} points or more would have been seen (80% power)"
    assert seen in render(found, "md")
    worse = "1 of 2 tested arms worse (position=2d of position-embedding@digits by 5.60 points)"
    assert gate_text(found) == f"{worse}; d{seen}; 2 identical"


def test_differences_beyond_the_metrics_range_could_not_have_been_seen() -> None:
    found = compare([make_study(**{"2d": [0.1, 0.9, *[None] * 3]})], [make_study(**{"2d": [0.9, 0.1, *[None] * 3]})])
    assert "No difference would have been seen (80% power)." in render(found, "md")


def test_a_metric_that_is_not_the_usual_one_is_named() -> None:
    other = synthetic.position(metric="val_accuracy", name="other@digits") | {"study": "other"}
    both = [make_study(), make_study(other)]
    assert [row.notes for row in compare(both, both).rows] == [[]] * 4 + [["val accuracy"]] * 4


def test_trials_that_diverge_in_b_alone_fail_the_gate() -> None:
    """5 of 5 against 0 of 5 is worse, though no pair of numbers is left."""
    plan = synthetic.position()
    lost = {synthetic.trial_id(plan, "position=2d", seed): synthetic.hole("diverged") for seed in range(5)}
    b = synthetic.with_weights(synthetic.results(plan, synthetic.position_records(plan) | lost))
    found = compare([make_study()], [b])
    assert (row_of_arm(found, "position=2d").verdict, row_of_arm(found, "position=2d").untested) == ("worse", None)
    assert "(position=2d of position-embedding@digits as 5 of 5 trials diverged)" in gate_text(found)
    assert [row.arm for row in failing_rows(found, 0.5)] == ["position=2d"]


def test_seeds_of_one_side_alone_count_beside_the_pairs() -> None:
    """The samples overlap partially; a note counts the pairs."""
    plan = synthetic.position(seeds=range(2, 7))
    first, second = [0.77, 0.74, 0.78, 0.76, 0.75], [0.78, 0.75, 0.79, 0.80, 0.77]
    row = row_without_change(with_other_code(make_study(plan, none=second)))
    expected = intervals.overlapping_samples(np.array(first), np.array(second), 3)
    assert (row.method, row.n_pairs, row.p) == ("overlapping", 3, pytest.approx(expected.p_value))
    assert row.delta == pytest.approx(np.mean(second) - np.mean(first))
    assert any(note.startswith("3 pairs, the other seeds on one side only") for note in row.notes)


def test_equal_numbers_alone_do_not_make_trials_identical() -> None:
    """Without a hash of the weights, as in older files, trials are compared."""
    study = make_study()
    unknown = replace(study, columns=study.columns | {"weights_sha256": [""] * 20})
    row = row_of_arm(compare([study], [unknown]), "position=none")
    assert (row.verdict, row.identical, row.delta, row.untested) == (None, [], 0.0, "all 5 are identical")
    assert failing_rows(compare([study], [unknown]), 0.001) == []


def planned_too(study: StudyResults, name: str, **given: Any) -> StudyResults:
    """Return the trials of a study as those of another, with changed fields of its plan."""
    changed = {"name": f"{name}@digits", "study": name, **given}
    return replace(study, plan=study.plan.model_copy(update=changed))


def test_two_metrics_of_the_same_trials_are_two_tests() -> None:
    """The accuracies of B are lower, and its losses are not resolved."""
    a = make_study()
    b = shifted_results(with_other_code(a), [-0.05, -0.06, -0.05, -0.07, -0.05])
    losses = np.add(b.columns["test_loss"], np.tile([0.02, -0.02, 0.01, -0.01, 0.0], 4)).tolist()
    b = replace(b, columns=b.columns | {"test_loss": losses})
    of_losses = [planned_too(side, "loss", metric="test_loss", margin=None) for side in (a, b)]
    found = compare([a, of_losses[0]], [b, of_losses[1]])
    assert found.family == 8
    assert [row.verdict for row in found.rows] == ["worse"] * 4 + ["not-resolved"] * 4


def test_equal_trials_are_equivalent_by_the_margin_of_their_own_study() -> None:
    a = make_study(synthetic.position(margin=0.02))
    b = shifted_results(with_other_code(a), [0.002, -0.002, 0.001, -0.001, 0.0])
    narrow = [planned_too(side, "narrow", margin=0.0001) for side in (a, b)]
    found = compare([a, narrow[0]], [b, narrow[1]])
    assert [row.verdict for row in found.rows] == ["equivalent"] * 4 + ["not-resolved"] * 4
