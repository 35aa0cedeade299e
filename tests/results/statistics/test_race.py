"""Races: the spending function, the prospects of an arm, and what a table says of arms that stopped."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic
from scipy.optimize import brentq

from results.records import Row
from results.statistics import race
from results.statistics.race import sequential_p
from results.store import ledger
from results.store.schemas.plans import Plan
from results.study_results import StudyResults
from results.tables import layout
from results.tables.study_table import table

OFFICIAL = {"kind": "official", "folds": None, "images": 10000}
NOISE = np.random.default_rng(0).normal(0, 0.01, (3, 10))
SHIFTS = [0.0, -0.02, 0.02]  # of patch (the baseline), conv and hybrid


def raced(accuracies: np.ndarray, **given: Any) -> StudyResults:
    """Return a race of stems with these accuracies (arms, seeds), the baseline's first, NaN for a missing trial."""
    plan = synthetic.make_plan(
        "s",
        {"stem": ["patch", "conv", "hybrid"]},
        {"stem": "patch"},
        seeds=10,
        split=OFFICIAL,
        **{"race": True, **given},
    )
    values = {arm["name"]: list(own) for arm, own in zip(plan["arms"], accuracies, strict=True)}
    made = synthetic.results(plan, synthetic.from_accuracies(plan, {name: [0.9] * 10 for name in values}))
    made.columns["test_accuracy"] = list(np.concatenate(accuracies))
    made.columns["status"] = ["missing" if math.isnan(value) else "finished" for value in np.concatenate(accuracies)]
    return replace(made, correct={})


def seed_by_seed(whole: np.ndarray) -> np.ndarray:
    """Train seed by seed: a trial only where no stop is known from the trials before it."""
    so_far = np.full_like(whole, np.nan)
    for seed in range(whole.shape[1]):
        study = raced(so_far)
        stopped = race.stops(study)
        for row, arm in enumerate(study.plan.arms):
            if arm.name not in stopped:
                so_far[row, seed] = whole[row, seed]
    return so_far


def rows(study: StudyResults) -> dict[str, Row]:
    return {row.arm: row for row in table(study).rows}


ACCURACIES = 0.9 + NOISE + np.array(SHIFTS)[:, None]


def spent(level: float, share: float) -> float:
    """Return how much of a one-sided level Lan and DeMets spend by the time `share`, as they write it."""
    return float(2 - 2 * scipy.stats.norm.cdf(scipy.stats.norm.isf(level / 2) / np.sqrt(share)))


@pytest.mark.parametrize(("p", "share"), [(1e-6, 0.2), (0.003, 0.5), (0.01, 1.0)])
def test_sequential_p_is_the_level_at_which_a_look_is_significant(p: float, share: float) -> None:
    level = sequential_p(p, share)
    assert level == pytest.approx(brentq(lambda each: spent(each, share) / 2 - p, 1e-12, 1.0), rel=1e-6)


def test_sequential_p_is_valid_over_all_looks() -> None:
    """Brownian motion at 20 times: the smallest of all looks is below a level at most as often as the level says."""
    paths = np.random.default_rng(1).normal(size=(20_000, 20)).cumsum(axis=1)
    looks = np.arange(1, 21)
    p_values = scipy.stats.norm.sf(paths / np.sqrt(looks))
    for level in (0.025, 0.1):
        significant = p_values <= [spent(level, look / 20) / 2 for look in looks]
        assert 0.6 * level < significant.any(axis=1).mean() < level


@pytest.mark.parametrize(("t", "seeds"), [(-1.0, 3), (0.8, 5), (2.0, 7)])
def test_chance_of_better_is_that_of_seeds_drawn_from_the_posterior(t: float, seeds: int) -> None:
    """The mean so far is t / sqrt(seeds), with standard deviation 1; the deviation is taken to stay."""
    rng = np.random.default_rng(2)
    sd = np.sqrt((seeds - 1) / rng.chisquare(seeds - 1, 100_000))
    mean = rng.normal(t / np.sqrt(seeds), sd / np.sqrt(seeds))
    more = rng.normal(mean, sd / np.sqrt(10 - seeds))
    whole = (seeds * t / np.sqrt(seeds) + (10 - seeds) * more) / 10
    drawn = (whole * np.sqrt(10) > scipy.stats.t.isf(0.025, 9)).mean()
    assert float(race.chance_of_better(t, seeds - 1, seeds / 10, 10)) == pytest.approx(drawn, abs=0.006)


def test_stops_do_not_depend_on_what_was_trained_beyond_them() -> None:
    trained = seed_by_seed(ACCURACIES)
    stops = race.stops(raced(ACCURACIES))
    assert stops == race.stops(raced(trained))
    assert list(stops) == ["stem=conv"]
    assert 10 - np.isnan(trained).sum(axis=1)[1] == stops["stem=conv"].seeds


def test_table_says_which_arm_stopped() -> None:
    study = raced(seed_by_seed(ACCURACIES), margin=0.5)
    found = rows(study)
    stopped = found["stem=conv"]
    assert (stopped.verdict, stopped.missing) == ("not-resolved", 0)
    assert stopped.n + stopped.stopped == 10
    assert found["stem=hybrid"].verdict == "better"
    text = layout.render(table(study), "md")
    assert "| stopped, not resolved |" in text
    assert f"the race saved {stopped.stopped} of 30 trials" in text.replace("\n", " ")
    unfinished = seed_by_seed(ACCURACIES)
    unfinished[2, 9] = np.nan
    text = layout.render(table(raced(unfinished, margin=0.5), interim=True), "md")
    assert "| stopped, not resolved (interim) |" in text


def test_arm_that_stopped_is_neither_better_nor_equivalent() -> None:
    """The seeds after its stop, trained elsewhere, turn its lead; the last is left out."""
    turned = ACCURACIES.copy()
    turned[1, 5:] += 0.2
    turned[1, 9] = np.nan
    assert rows(raced(turned, margin=0.5))["stem=conv"].p_holm == 1.0
    near = ACCURACIES.copy()
    near[1] = near[0] + 0.004 * (-1.0) ** np.arange(10)
    whole = rows(raced(near, margin=0.03))["stem=conv"]
    near[1, 9] = np.nan
    stopped = rows(raced(near, margin=0.03))["stem=conv"]
    assert (whole.verdict, stopped.verdict, stopped.stopped) == ("equivalent", "not-resolved", 1)
    assert stopped.margin_met is None


def test_p_of_an_arm_behind_is_the_smallest_over_all_looks() -> None:
    """Both arms are behind; Holm's first step has both p values."""
    behind = ACCURACIES - np.array([0.0, 0.005, 0.03])[:, None]
    found = rows(raced(behind))
    for row, name in ((1, "stem=conv"), (2, "stem=hybrid")):
        products = [1.0]
        for seeds in range(2, 11):
            one_sided = scipy.stats.ttest_rel(behind[row, :seeds], behind[0, :seeds], alternative="less").pvalue
            products.append(4 * scipy.stats.norm.sf(max(0.0, scipy.stats.norm.isf(one_sided) * np.sqrt(seeds / 10))))
        assert found[name].p == pytest.approx(min(products), rel=1e-9)
    behind[1] = behind[0] - 0.004 * (1 + 1.17 * (-1.0) ** np.arange(10))
    note = "the 95% interval excludes 0, but not after correction for 2 contrasts and the race's looks after each seed"
    assert note in rows(raced(behind))["stem=conv"].notes


def test_arm_that_diverges_more_often_stops() -> None:
    study = raced(ACCURACIES)
    first = study.columns["arm"].index("stem=hybrid")
    study.columns["status"][first] = "diverged"
    study.columns["test_accuracy"][first] = math.nan
    assert race.stops(study)["stem=hybrid"].seeds == 2


def test_race_that_is_declared_after_results_stops_nothing() -> None:
    study = raced(ACCURACIES)
    before = ledger.declaration(study.plan.model_copy(update={"race": False}), "2026-01-01T00:00:00Z")
    after = ledger.declaration(study.plan, "2026-01-02T00:00:00Z", sorted(before.ids))
    plan: Plan = study.plan.model_copy(update={"declarations": [before, after]})
    late = StudyResults(plan, study.columns, study.evaluations, study.correct)
    assert race.stops(late) == {}
    assert rows(late)["stem=conv"].verdict == "worse"
