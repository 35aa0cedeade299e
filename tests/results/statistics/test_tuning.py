"""Tuning: every arm at its own rate, chosen by the other seeds."""

import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic

from results.comparison.compare import compare
from results.records import Row, Table
from results.statistics import arms, claims, tuning
from results.statistics.power import PlannedTest
from results.store.record import Record
from results.tables import sentences
from results.tables.layout import render
from results.tables.study_table import table

RATES = (0.001, 0.002, 0.004)


def naive_choices(reached: np.ndarray) -> list[int]:
    """Choose for each seed the best point of the other seeds, one number at a time; ties go to the middle."""
    chosen = []
    n, count = reached.shape
    for seed in range(n):
        means = [sum(reached[other][point] for other in range(n) if other != seed) / (n - 1) for point in range(count)]
        best = [point for point in range(count) if abs(means[point] - max(means)) < 1e-9]
        chosen.append(min(best, key=lambda point: (abs(point - (count - 1) / 2), point)))
    return chosen


def tuning_records(
    plan: dict[str, Any], val: dict[str, list[float | None]], test: dict[str, list[float]]
) -> dict[str, Record]:
    """Return records with these validation and test accuracies by seed; a validation of None diverged."""
    records = {}
    for arm in plan["arms"]:
        for seed, trial in enumerate(arm["trials"]):
            value = val[arm["name"]][seed]
            whole = synthetic.changed(synthetic.finished(test[arm["name"]][seed], seed=seed), val_accuracy=value)
            records[trial["id"]] = whole if value is not None else synthetic.hole("diverged")
    return records


def accuracies(plan: dict[str, Any], best: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return validation and test accuracies whose rates differ by little; the best is at index `best`."""
    rng = np.random.default_rng(0)
    mean = {name: 0.9 - 0.05 * abs(i % 3 - best) for i, name in enumerate(sorted(arm["name"] for arm in plan["arms"]))}
    val = {name: (value + 0.01 * rng.standard_normal(5)).tolist() for name, value in mean.items()}
    return val, {name: (value + 0.01 * rng.standard_normal(5)).tolist() for name, value in mean.items()}


def tuned_table(best: int = 1, **given: Any) -> Table:
    """Return the table of a tuned study whose best rate is at index `best`."""
    plan = synthetic.tuned_pooling(**given)
    return table(synthetic.results(plan, tuning_records(plan, *accuracies(plan, best))))


def test_every_seed_uses_the_best_point_of_the_others() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        n, count = int(rng.integers(2, 8)), int(rng.integers(3, 6))
        smooth, tied = rng.normal(size=(n, count)), rng.integers(0, 3, (n, count)) / 10
        assert tuning.cross_fit(smooth) == naive_choices(smooth)
        assert tuning.cross_fit(tied) == naive_choices(tied)


def test_the_usual_point_ties_to_the_middle_of_the_grid() -> None:
    """Seeds that cannot choose do not count; of such seeds alone there is no point."""
    for points, shape, expected in (
        ([4, 0, 4, None], [5], 4),
        ([4, 3, None], [5], 3),
        ([0, 4], [3, 3], 4),
        ([None, None], [5], None),
    ):
        assert tuning.most_used_point(points, shape) == expected


def test_a_seed_without_the_whole_grid_does_not_help_to_choose() -> None:
    assert tuning.cross_fit(np.full((4, 9), 0.5), [3, 3]) == [4] * 4
    reached = np.array([[0.5, 0.6, 0.5], [0.5, 0.6, 0.5], [0.9, np.nan, 0.1]])
    assert tuning.cross_fit(reached) == [1, 1, 1]
    assert tuning.cross_fit(reached[:1]) == [None]


def test_the_table_has_a_row_for_every_arm_at_its_own_rate() -> None:
    """These rows come first with the chosen trials' numbers; their family is apart from that of the points."""
    plan = synthetic.tuned_pooling()
    val, test = accuracies(plan)
    made = table(synthetic.results(plan, tuning_records(plan, val, test)))
    assert [row.arm for row in made.rows][:3] == ["pool=cls,lr=tuned", "pool=gap,lr=tuned", "pool=cls,lr=0.001"]
    gap = made.rows[1]
    chosen = naive_choices(np.column_stack([val[f"pool=gap,lr={lr}"] for lr in RATES]))
    values = [test[f"pool=gap,lr={RATES[point]}"][seed] for seed, point in enumerate(chosen)]
    assert gap.mean == pytest.approx(np.mean(values))
    assert gap.p_holm == gap.p
    assert "chosen by the other seeds' validation: lr 0.002 (seeds 0, 1, 2, 3, 4)" in gap.notes
    points = [row for row in made.rows if row.baseline != row.arm and "tuned" not in row.arm]
    least = min(points, key=lambda row: row.p)
    assert least.p_holm == pytest.approx(min(1.0, 3 * least.p))
    assert (made.plan.family, made.plan.points_family, made.tuned) == (1, 3, ["lr"])


def compare_grids(gap: dict[float, list[float]], cls: dict[float, list[float]], **given: Any) -> tuple[Row, Table]:
    """Return the row of pool=gap at its tuned rate, the middle one, and the table."""
    plan = synthetic.tuned_pooling(**given)
    test = {f"pool={pool},lr={lr}": values for pool, of in (("gap", gap), ("cls", cls)) for lr, values in of.items()}
    val = {name: [0.9 if "0.002" in name else 0.8] * 5 for name in test}
    made = table(synthetic.results(plan, tuning_records(plan, val, test)))
    return made.rows[1], made


MADE = {
    "low": [0.80, 0.81, 0.79, 0.80, 0.80],
    "middle": [0.90, 0.91, 0.90, 0.92, 0.90],
    "near": [0.90, 0.92, 0.91, 0.92, 0.92],
    "close": [0.91, 0.92, 0.90, 0.93, 0.91],
    "high": [0.92, 0.93, 0.93, 0.94, 0.92],
}


def grid(low: str, middle: str, high: str) -> dict[float, list[float]]:
    return dict(zip(RATES, (MADE[low], MADE[middle], MADE[high]), strict=True))


def test_an_arm_is_better_if_it_beats_every_point_of_the_other_grid() -> None:
    """p is the largest of SciPy's over the grid of the arm that is behind."""
    gap, cls = grid("low", "high", "low"), grid("low", "middle", "near")
    row, made = compare_grids(gap, cls)
    p = [scipy.stats.ttest_rel(gap[0.002], values).pvalue for values in cls.values()]
    assert row.p == row.p_holm == pytest.approx(max(p))
    assert p[1] < max(p) < 0.05
    assert row.verdict == "better"
    assert "p is the largest against any point of the other's grid" in render(made, "md")
    behind, _ = compare_grids(cls, gap)
    assert (behind.p, behind.verdict) == (pytest.approx(max(p)), "worse")


def test_a_point_as_good_leaves_a_difference_unresolved() -> None:
    gap, cls = grid("low", "high", "low"), grid("low", "middle", "high")
    row, _ = compare_grids(gap, cls, margin=None)
    assert scipy.stats.ttest_rel(gap[0.002], cls[0.002]).pvalue < 0.05
    assert (row.p, row.verdict) == (1.0, "not-resolved")
    assert row.delta == pytest.approx(np.mean(gap[0.002]) - np.mean(cls[0.002]))
    note = "excludes 0, but not after correction for 1 contrast and over the whole grid of the other"
    assert any(note in one for one in row.notes)


def test_arms_are_equivalent_where_no_point_of_either_is_beyond_the_margin() -> None:
    """The limits are SciPy's one-sided ones at 5%; points far below do not count."""
    gap, cls = grid("low", "middle", "near"), grid("low", "close", "low")
    row, _ = compare_grids(gap, cls, margin=0.03)
    limits = [
        scipy.stats.ttest_rel(gap[lr], cls[0.002], alternative="less").confidence_interval(0.95).high for lr in RATES
    ]
    assert max(limits) < 0.03
    assert row.verdict == "equivalent"
    row, _ = compare_grids(grid("low", "middle", "high"), cls, margin=0.015)
    assert row.verdict == "not-resolved"
    assert any("within the margin, but not after correction for 1 contrast" in note for note in row.notes)


def test_for_a_loss_the_lower_arm_is_ahead() -> None:
    """The losses made here fall by 2.3 for each unit of accuracy, so tests and verdicts are those of the accuracy."""
    pairs = [("low", "high", "low"), ("low", "middle", "near"), ("low", "close", "low")]
    for first, second in itertools.permutations((grid(*points) for points in pairs), 2):
        accuracy, _ = compare_grids(first, second, margin=0.03)
        loss, _ = compare_grids(first, second, metric="test_loss", margin=2.3 * 0.03)
        assert (loss.p, loss.verdict) == (pytest.approx(accuracy.p), accuracy.verdict)
        assert (loss.delta, loss.margin_met) == pytest.approx((-2.3 * accuracy.delta, 2.3 * accuracy.margin_met))


def tuned_gap(val: dict[str, list[float | None]], test: dict[str, list[float]] | None = None) -> Row:
    """Return the row of pool=gap at its tuned rate. val: validation accuracies, None for a trial that diverged."""
    plan = synthetic.tuned_pooling(margin=None)
    made = table(synthetic.results(plan, tuning_records(plan, val, test or accuracies(plan)[1])))
    return made.rows[1]


@pytest.mark.parametrize("fallen", [None, 0.1, 0.3], ids=["diverged", "at chance", "below half of the others"])
def test_a_rate_at_which_one_trial_ended_badly_is_not_chosen(fallen: float | None) -> None:
    """The other rates are chosen by the other seeds, the seed of that trial included."""
    val, _ = accuracies(plan := synthetic.tuned_pooling())
    val["pool=gap,lr=0.002"][4] = fallen
    gap = tuned_gap(val)
    scores = np.column_stack([val[f"pool=gap,lr={lr}"] for lr in (0.001, 0.004)])
    chosen = [f"pool=gap,lr={RATES[2 * point]}" for point in naive_choices(scores)]
    _, test = accuracies(plan)
    assert gap.mean == pytest.approx(np.mean([test[name][seed] for seed, name in enumerate(chosen)]))
    assert (gap.n, gap.diverged) == (5, 0)
    assert "trials diverged or collapsed at lr 0.002 (1 of 5): not chosen" in gap.notes


def test_a_weak_arm_never_chooses_a_rate_at_which_all_its_trials_diverged() -> None:
    """The other rates reach less than chance, as which a diverged trial counts."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        val, _ = accuracies(synthetic.tuned_pooling())
        for lr in RATES:
            val[f"pool=gap,lr={lr}"] = (0.09 + 0.01 * rng.standard_normal(5)).tolist()
        val["pool=gap,lr=0.004"] = [None] * 5
        gap = tuned_gap(val)
        assert gap.diverged == 0
        assert not any("lr 0.004 (seed" in note or "add lr 0.008" in note for note in gap.notes)


def test_among_rates_that_all_diverged_once_the_fewest_times_decide() -> None:
    """Nothing is advised beyond a rate at which a trial diverged."""
    val, _ = accuracies(synthetic.tuned_pooling())
    for lr, seeds in ((0.001, [0, 1]), (0.002, [1, 2, 3]), (0.004, [4])):
        for seed in seeds:
            val[f"pool=gap,lr={lr}"][seed] = None
    gap = tuned_gap(val)
    assert "chosen by the other seeds' validation: lr 0.004 (seeds 0, 1, 2, 3, 4)" in gap.notes
    assert (gap.n, gap.diverged) == (4, 1)
    assert any("at the edge of the grid" in note for note in gap.notes)
    assert not any("; add lr" in note for note in gap.notes)
    bad = "lr 0.001 (2 of 5), lr 0.002 (3 of 5), lr 0.004 (1 of 5)"
    assert f"trials diverged or collapsed at {bad}: no other point is left to choose" in gap.notes


@pytest.mark.parametrize("lost", [1, 2, 3, 5])
def test_a_rate_counts_in_a_comparison_unless_most_of_its_trials_diverged(lost: int) -> None:
    """p is SciPy's largest over those rates and the seeds that finished."""
    plan = synthetic.tuned_pooling(margin=None, claims=["pool=gap < pool=cls"])
    near = np.array([0.0, 0.002, 0.001, -0.001, 0.003])
    means = {"pool=cls": (0.90, 0.91, 0.90), "pool=gap": (0.69, 0.70, 0.70)}
    test = {
        f"{pool},lr={lr}": (mean + near * (1 if pool == "pool=cls" else -2)).tolist()
        for pool, of in means.items()
        for lr, mean in zip(RATES, of, strict=True)
    }
    val: dict[str, list[float | None]] = {name: [0.9 if "0.002" in name else 0.8] * 5 for name in test}
    val["pool=gap,lr=0.004"][:lost] = [None] * lost
    made = table(synthetic.results(plan, tuning_records(plan, val, test)))
    gap, cls = ({lr: test[f"{pool},lr={lr}"] for lr in RATES} for pool in ("pool=gap", "pool=cls"))
    seeds = {0.001: range(5), 0.002: range(5), 0.004: range(lost, 5) if lost < 3 else []}
    p = [scipy.stats.ttest_rel(gap[lr][of[0] :], cls[0.002][of[0] :]).pvalue for lr, of in seeds.items() if of]
    assert (made.rows[1].p, made.rows[1].verdict) == (pytest.approx(max(p)), "worse")
    assert [claim.verdict for claim in made.claims] == ["agree"]


def test_an_optimum_at_the_edge_of_the_grid_has_no_verdict() -> None:
    made = tuned_table(best=2, claims=["pool=gap ~ pool=cls"])
    gap, (claim,), untested = made.rows[1], made.claims, "best value of an arm lies at the edge of its grid"
    assert (gap.delta is None, gap.p_holm, gap.verdict) == (False, None, None)
    assert "its best lr lies at the edge of the grid, 0.004: no verdict; add lr 0.008 to the grid" in gap.notes
    answer = "pool=gap is not compared with pool=cls (a best value lies at the edge of its grid)"
    assert answer in sentences.answer(made)
    assert (claim.claim, claim.verdict) == ("pool=gap,lr=tuned ~ pool=cls,lr=tuned", None)
    assert claim.note == f"untested: the {untested}"


def test_a_claim_at_the_edge_of_the_grid_counts_as_one_among_the_claims() -> None:
    """Its p of equivalence is not used, as in the table: the other claim is adjusted for two."""
    plan = synthetic.tuned_pooling(
        claims=["pool=gap,lr=tuned ~ pool=cls,lr=0.001", "pool=gap,lr=0.001 ~ pool=cls,lr=0.002"]
    )
    study = synthetic.results(plan, tuning_records(plan, *accuracies(plan, 2)))
    whole, choices = tuning.with_tuned(study)
    assert choices["pool=gap,lr=tuned"].is_at_edge
    edge, inner = claims.judge_claims(whole.plan, arms.arm_results(whole, choices), {})
    assert edge.test.p_margin is None
    assert inner.test.p_margin == pytest.approx(min(1.0, 2 * inner.test.pair.p_equivalence))


def test_an_end_of_the_grid_that_ties_with_its_inside_is_no_edge() -> None:
    plan, rng = synthetic.tuned_pooling(), np.random.default_rng(1)
    val, test = accuracies(plan)
    for lr in RATES:
        val[f"pool=gap,lr={lr}"] = (0.9 + 0.01 * rng.standard_normal(5)).tolist()
    gap = table(synthetic.results(plan, tuning_records(plan, val, test))).rows[1]
    (note,) = [note for note in gap.notes if "edge" in note]
    assert re.match(r"lr 0.00[14], at the edge of the grid, ties with 0.002; add lr 0.00(05|08) to the grid", note)
    assert None not in (gap.p_holm, gap.verdict)


def test_an_end_beats_the_inside_by_a_paired_t_test() -> None:
    """The test is SciPy's at 5% two-sided; differences without a spread count as they are."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = rng.normal(0.01, 0.01, 5), rng.normal(0, 0.01, 5)
        assert tuning.exceeds(a, b) == (scipy.stats.ttest_rel(a, b, alternative="greater").pvalue < 0.025)
    assert tuning.exceeds(np.ones(3), np.zeros(3))
    assert not tuning.exceeds(np.ones(3), np.ones(3))


@pytest.mark.parametrize(
    ("values", "after"),
    [
        ([1e-3, 4e-3, 1.6e-2], 0.064),
        ([4e-2, 1.3e-2, 4e-3], 0.0012),
        ([32, 64, 128], 256),
        ([128, 64, 32], 16),
        ([0.0, 0.1, 0.2], 0.3),
        ([0.2, 0.1, 0.0], None),
        ([1e-3, 2.0, 5e17], 5e18),  # no more than ten times the end
        ([1e-2, 1e-3, 1e-9], 1e-10),
        ([0.25, 0.5], None),  # a dropout of 1
        ([0.0, 0.3, 0.9], None),
        ([4, 2, 1], None),  # a batch of 0
        ([1, 3], 9),
    ],
)
def test_the_next_value_continues_the_grid(values: list[int | float], after: float | None) -> None:
    assert tuning.next_value(values) == after


def test_a_missing_trial_leaves_its_seed_out_of_the_choice() -> None:
    plan = synthetic.tuned_pooling()
    records = tuning_records(plan, *accuracies(plan))
    records |= {synthetic.trial_id(plan, "pool=gap,lr=0.004", 3): synthetic.hole("missing")}
    gap = table(synthetic.results(plan, records)).rows[1]
    assert "seed 3 did not help to choose: some points of the grid are missing" in gap.notes
    assert gap.n == 5
    alone = tuned_table(seeds=1).rows[1]
    assert (alone.n, alone.missing) == (0, 1)
    assert "seed 0 missing: no other seed has finished the whole grid" in alone.notes


def test_the_answer_leads_with_arms_at_their_own_rates_and_counts_the_rest() -> None:
    made = tuned_table(claims=["pool=gap ~ pool=cls"])
    assert [claim.claim for claim in made.claims] == ["pool=gap,lr=tuned ~ pool=cls,lr=tuned"]
    assert "over 1 planned contrast at their own lr, over 3 at equal ones" in render(made, "md")
    words = iter(["better", "worse", "not-resolved"])
    rows = [
        replace(row, verdict=next(words)) if row.delta is not None and "tuned" not in row.arm else row
        for row in made.rows
    ]
    answer = sentences.answer(replace(made, rows=rows))
    assert "each at its own lr, pool=gap is " in answer
    assert ". At equal lr: 1 better, 1 worse, 1 not resolved." in answer
    assert "lr=0.00" not in answer


@pytest.mark.parametrize(("n", "points"), [(3, 3), (5, 5), (20, 9)])
def test_power_counts_that_an_arm_must_beat_every_point_of_the_other_grid(n: int, points: int) -> None:
    """The power is that of SciPy's paired tests on simulated seeds, within Monte Carlo error."""
    rng, studies = np.random.default_rng(0), 4000
    design = PlannedTest(1.0, 2, points)
    difference = design.resolvable_difference(n)
    arm = rng.normal(0, np.sqrt(0.5), (studies, n, 1)) + difference
    other = rng.normal(0, np.sqrt(0.5), (studies, n, points))
    tests = scipy.stats.ttest_rel(np.broadcast_to(arm, other.shape), other, axis=1)
    resolved = (tests.statistic > 0) & (2 * tests.pvalue < 0.05)
    assert resolved.all(axis=1).mean() == pytest.approx(0.8, abs=0.025)
    assert design.seeds_to_resolve(difference * 1.01) == n
    assert PlannedTest(1.0, 2).resolvable_difference(n) < 0.9 * difference


def test_power_of_equivalence_counts_both_grids() -> None:
    """No point of either grid may be ahead of the other arm's first by the margin, in SciPy's tests."""
    rng, studies, n = np.random.default_rng(0), 4000, 5
    margin = PlannedTest(1.0, points=4).smallest_margin(n)
    a, b = rng.normal(0, np.sqrt(0.5), (2, studies, n, 4))
    within = [
        scipy.stats.ttest_1samp(grid - first[:, :, :1] - margin, 0, axis=1, alternative="less").pvalue < 0.05
        for grid, first in ((a, b), (b, a))
    ]
    assert np.all(within, axis=(0, 2)).mean() == pytest.approx(0.8, abs=0.025)
    assert PlannedTest(1.0).smallest_margin(n) < 0.9 * margin


def test_results_are_compared_where_every_arm_has_its_own_rate() -> None:
    plan = synthetic.tuned_pooling()
    val, test = accuracies(plan)
    lower = {name: [value - 0.02 - 0.001 * i for i, value in enumerate(values)] for name, values in test.items()}
    a, b = (synthetic.results(plan, tuning_records(plan, val, values)) for values in (test, lower))
    row = synthetic.row_of_arm(compare([a], [b]), "pool=gap,lr=tuned")
    assert (row.delta, row.n_pairs) == (pytest.approx(-0.022), 5)
    assert row.a.mean == table(a).rows[1].mean
    a = synthetic.with_weights(a)
    assert [row.verdict for row in compare([a], [a]).rows] == ["identical"] * 8
