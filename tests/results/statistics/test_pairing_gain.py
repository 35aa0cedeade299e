"""What pairing by seed brought, as tables of training code of the user's say it."""

import json

import numpy as np
import pytest
import synthetic
from scipy.stats import ttest_ind, ttest_rel

from results.records import Table
from results.tables import layout
from results.tables.study_table import table

OFFICIAL = {"kind": "official", "folds": None, "images": 10000}
RNG = np.random.default_rng(4)
SEEDS = RNG.normal(0, 0.01, 5)  # what a seed does to both arms
BASELINE = 0.9 + SEEDS
ALIKE = 0.92 + SEEDS + RNG.normal(0, 0.003, 5)
OPPOSITE = 0.91 - SEEDS + RNG.normal(0, 0.003, 5)


def shown(paired: str | None = "by-seed", **accuracies: np.ndarray) -> Table:
    given = {} if paired is None else {"paired": paired}
    by_arm = {"patch": BASELINE, **accuracies}
    plan = synthetic.make_plan("s", {"stem": [*by_arm]}, {"stem": "patch"}, split=OFFICIAL, **given)
    return table(synthetic.results(plan, synthetic.from_accuracies(plan, {f"stem={k}": v for k, v in by_arm.items()})))


def width(test: object) -> float:
    low, high = test.confidence_interval()
    return high - low


@pytest.mark.parametrize(("arm", "word"), [(ALIKE, "narrower"), (OPPOSITE, "wider")])
def test_the_gain_is_that_of_scipys_paired_over_its_unpaired_interval(arm: np.ndarray, word: str) -> None:
    made = shown(conv=arm)
    gain = 1 - width(ttest_rel(arm, BASELINE)) / width(ttest_ind(arm, BASELINE, equal_var=False))
    correlation = np.corrcoef(arm, BASELINE)[0, 1]
    content = json.loads(layout.render(made, "json"))["pairing"]
    assert content == {"correlation": pytest.approx(correlation), "narrower": pytest.approx(gain), "differences": 1}
    line = f"Pairing by seed: correlation {correlation:.2f}, intervals {abs(gain):.0%} {word} than unpaired."
    assert line in layout.render(made, "md")


def test_several_differences_have_their_medians() -> None:
    made = shown(conv=ALIKE, resnet=OPPOSITE)
    assert made.pairing.correlation == pytest.approx(
        np.median([np.corrcoef(arm, BASELINE)[0, 1] for arm in (ALIKE, OPPOSITE)])
    )
    assert "(medians of 2 differences)" in layout.render(made, "md")


@pytest.mark.parametrize("paired", [None, "no"])
def test_tables_of_keyed_draws_and_of_unpaired_seeds_do_not_say_it(paired: str | None) -> None:
    made = shown(paired, conv=ALIKE)
    assert "Pairing by seed" not in layout.render(made, "md")
    assert "pairing" not in json.loads(layout.render(made, "json"))


def test_two_seeds_or_an_arm_that_does_not_vary_say_nothing() -> None:
    plan = synthetic.make_plan("s", {"stem": ["patch", "conv"]}, {"stem": "patch"}, seeds=2, paired="by-seed")
    assert table(synthetic.results(plan)).pairing is None
    assert shown(conv=np.full(5, 0.92)).pairing is None
