"""Arms averaged over data sets, against SciPy and naive loops."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic

from results.comparison.compare import compare
from results.records import Table
from results.statistics.contrast import DataAverage, Sample, difference, samples_by_arm
from results.store import ledger
from results.tables.layout import render
from results.tables.study_table import table

DATA = {"birds": {"kind": "official", "images": 400}, "cars": {"kind": "folds", "folds": 5, "images": 1000}}
BASELINE = {"birds": [0.80, 0.82, 0.79, 0.81, 0.83], "cars": [0.50, 0.53, 0.49, 0.55, 0.51]}
GAP = {"birds": [0.84, 0.85, 0.84, 0.84, 0.88], "cars": [0.53, 0.54, 0.54, 0.57, 0.52]}


def plan(**given: Any) -> dict[str, Any]:
    """Return a plan of two poolings on two data sets."""
    made = synthetic.make_plan(
        "pooling", {"pool": ["cls", "gap"]}, {"pool": "cls"}, curves={"data": list(DATA)}, **{"margin": None, **given}
    )
    for arm in made["arms"]:
        arm["split"] = DATA[arm["values"]["data"]]
        arm["chance"] = 0.1 if arm["values"]["data"] == "cars" else 0.5
    return made


def made_table(of: dict[str, Any], **holes: Any) -> Table:
    accuracies = {f"pool=cls,data={name}": numbers for name, numbers in BASELINE.items()}
    accuracies |= {f"pool=gap,data={name}": numbers for name, numbers in GAP.items()}
    records = synthetic.from_accuracies(of, accuracies)
    return table(synthetic.results(of, records | {key: synthetic.hole(*what) for key, what in holes.items()}))


def naive(differences: list[np.ndarray], level: float = 0.95) -> tuple[float, float]:
    """Return (mean, half of the interval) of the averages over data sets, seed by seed."""
    averages = []
    for seed in range(min(map(len, differences))):
        averages.append(sum(each[seed] for each in differences) / len(differences))
    half = scipy.stats.sem(averages) * scipy.stats.t.ppf((1 + level) / 2, len(averages) - 1)
    return sum(averages) / len(averages), half


def differences() -> list[np.ndarray]:
    return [np.array(GAP[name]) - np.array(BASELINE[name]) for name in DATA]


def test_the_average_difference_is_that_of_a_naive_loop() -> None:
    """Each data set has its own verdict, and the average counts both alike."""
    made = made_table(plan())
    baseline, gap = made.averages
    center, half = naive(differences())
    assert (gap.arm, gap.arms) == ("pool=gap", ["pool=gap,data=birds", "pool=gap,data=cars"])
    assert gap.delta == pytest.approx(center)
    assert gap.delta_ci95 == pytest.approx((center - half, center + half))
    assert gap.p_holm == pytest.approx(scipy.stats.ttest_1samp(np.mean(differences(), axis=0), 0).pvalue)
    assert gap.verdict == "better"
    assert baseline.mean == pytest.approx((0.81 + 0.516) / 2)
    assert (baseline.delta, baseline.verdict) == (None, None)
    for name, numbers in zip(DATA, differences(), strict=True):
        row = synthetic.row_of_arm(made, f"pool=gap,data={name}")
        assert row.p == pytest.approx(scipy.stats.ttest_1samp(numbers, 0).pvalue)
        assert row.baseline == f"pool=cls,data={name}"


def sample(numbers: np.ndarray) -> Sample:
    values = dict(enumerate(numbers.tolist()))
    return Sample(values, {}, dict.fromkeys(values, "a"), None)


def test_an_unpaired_average_is_welchs_sum_of_means() -> None:
    """Without folds; SciPy's t test of one data set, and a naive loop over both."""
    rng = np.random.default_rng(3)
    arms = [rng.normal(size=n) for n in (5, 7)]
    baselines = [rng.normal(size=n) for n in (4, 6)]
    parts = []
    total = 0.0
    below = 0.0
    for arm, baseline in zip(arms, baselines, strict=True):
        parts.append(difference(sample(arm), sample(baseline), is_paired=False))
        for numbers in (arm, baseline):
            total += scipy.stats.sem(numbers) ** 2
            below += scipy.stats.sem(numbers) ** 4 / (len(numbers) - 1)
    mean = DataAverage(tuple(parts)).mean
    assert mean.se == pytest.approx(np.sqrt(total) / 2)
    assert mean.df == pytest.approx(total**2 / below)
    alone = DataAverage((parts[0],)).mean
    assert alone.p_value == pytest.approx(scipy.stats.ttest_ind(arms[0], baselines[0], equal_var=False).pvalue)


def test_a_lost_seed_is_lost_for_the_average() -> None:
    of = plan(seeds=[0, 1, 2, 3, 4])
    lost = synthetic.trial_id(of, "pool=gap,data=cars", 4)
    gap = made_table(of, **{lost: ("diverged",)}).averages[1]
    birds, cars = differences()
    center, half = naive([birds[:4], cars[:4]])
    assert gap.n == 4
    assert gap.delta_ci95 == pytest.approx((center - half, center + half))
    assert gap.verdict == "not-resolved"  # more trials of the arm diverged than of its baseline


def test_no_average_verdict_without_all_trials() -> None:
    of = plan()
    missing = synthetic.trial_id(of, "pool=gap,data=birds", 0)
    gap = made_table(of, **{missing: ("missing", "not started")}).averages[1]
    assert (gap.p, gap.verdict) == (None, None)
    assert gap.notes == ["no verdict before all planned trials are done"]


def test_an_arm_that_a_data_set_lacks_has_no_average() -> None:
    of = plan()
    of["arms"] = [arm for arm in of["arms"] if arm["name"] != "pool=gap,data=cars"]
    assert [average.arm for average in made_table(of).averages] == ["pool=cls"]


@pytest.mark.parametrize(
    ("margin", "verdict"),
    [(0.0214, "equivalent"), (0.0211, "not-resolved"), ("7.5%", "equivalent"), ("5%", "not-resolved")],
)
def test_equivalence_of_the_average_is_two_one_sided_tests(margin: float | str, verdict: str) -> None:
    """The 90% interval of the naive loop ends at 2.12 points, 6.3% of the mean error."""
    of = plan(margin=margin)
    spread = {name: [value - 0.05 + 0.05 * (number % 2) for number, value in enumerate(GAP[name])] for name in DATA}
    accuracies = {f"pool=cls,data={name}": numbers for name, numbers in BASELINE.items()}
    accuracies |= {f"pool=gap,data={name}": numbers for name, numbers in spread.items()}
    gap = table(synthetic.results(of, synthetic.from_accuracies(of, accuracies))).averages[1]
    center, half = naive([np.array(spread[name]) - np.array(BASELINE[name]) for name in DATA], level=0.9)
    assert center + half == pytest.approx(0.021246, abs=1e-5)
    assert (center + half) / (1 - (0.81 + 0.516) / 2) == pytest.approx(0.063, abs=1e-3)
    assert gap.verdict == verdict


def test_planned_averages_count_although_they_are_gone() -> None:
    """Six contrasts on two data sets are three averages."""
    gap = made_table(plan(family=6)).averages[1]
    assert gap.p is not None
    assert gap.p_holm == pytest.approx(3 * gap.p)


def test_a_margin_that_is_too_wide_withholds_equivalence_with_its_reason() -> None:
    of = plan(margin=0.2)
    gap = table(synthetic.results(of, synthetic.from_accuracies(of, nearly_equal()))).averages[1]
    assert gap.verdict == "not-resolved"
    assert gap.notes[0].startswith("not called equivalent: ")


def test_a_later_margin_shows_the_average_verdict_under_the_first() -> None:
    made = synthetic.results(plan(margin=0.05), synthetic.from_accuracies(plan(), nearly_equal()))
    first = ledger.declaration(made.plan.model_copy(update={"margin": None}), "2026-01-01T00:00:00Z")
    now = ledger.declaration(made.plan, "2026-01-02T00:00:00Z", sorted(made.plan.arm_trials))
    late = table(replace(made, plan=made.plan.model_copy(update={"declarations": [first, now]})))
    assert late.averages[1].verdict == "equivalent"
    assert "average of pool=gap not resolved" in late.warnings[0]


def nearly_equal() -> dict[str, list[float]]:
    numbers = {f"pool={pool},data={name}": values for pool in ("cls", "gap") for name, values in BASELINE.items()}
    return numbers | {"pool=gap,data=birds": [0.81, 0.81, 0.79, 0.82, 0.83]}


def test_comparisons_judge_a_margin_by_the_chance_of_the_arms_own_data() -> None:
    """0.1 is more than half of what 0.55 is above 0.5, but less than half of 0.55."""
    of = plan(margin=0.1)
    low = {arm["name"]: [0.54, 0.56, 0.55, 0.53, 0.57] for arm in of["arms"]}
    higher = {name: [0.545, 0.555, 0.55, 0.535, 0.565] for name in low}
    sides = [synthetic.results(of, synthetic.from_accuracies(of, numbers)) for numbers in (low, higher)]
    verdicts = {row.arm: row.verdict for row in compare([sides[0]], [sides[1]]).rows}
    assert verdicts["pool=gap,data=cars"] == "equivalent"
    assert verdicts["pool=gap,data=birds"] == "not-resolved"


def test_each_data_set_has_its_own_test_images_and_chance() -> None:
    """One image more weighs 1/400 of birds and 1/200 of a fold of cars; 52% is chance for two classes alone."""
    of = plan()
    samples = samples_by_arm(synthetic.results(of), "test_accuracy")
    assert samples["pool=gap,data=birds"].image == pytest.approx(1 / 400)
    assert samples["pool=gap,data=cars"].image == pytest.approx(1 / 200)
    assert (samples["pool=gap,data=birds"].folds, samples["pool=gap,data=cars"].folds) == (None, 5)
    low = {arm["name"]: [0.50, 0.51, 0.50, 0.52, 0.53] for arm in of["arms"]}
    made = table(synthetic.results(of, synthetic.from_accuracies(of, low)))
    assert synthetic.row_of_arm(made, "pool=gap,data=birds").collapsed == 5
    assert synthetic.row_of_arm(made, "pool=gap,data=cars").collapsed == 0


def test_the_table_shows_a_column_for_each_data_set() -> None:
    text = render(made_table(plan()), "md")
    (line,) = [line for line in text.splitlines() if line.startswith("| pool=gap ")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1].startswith("85.00 ± ")
    assert cells[2].startswith("54.00 ± ")
    assert cells[3].startswith("69.50 ± ")
    assert cells[4].startswith("+3.20 ± ")
    assert cells[-1] == "better"
    assert "on 2 data sets, each with its own test images" in text
    averages = json.loads(render(made_table(plan()), "json"))["averages"]
    assert [average["verdict"] for average in averages] == [None, "better"]
    assert "averages" not in json.loads(render(synthetic.make_table(), "json"))
