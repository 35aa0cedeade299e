"""Levels of a stream of proposals are those of LORD++, and a step decides by the one-sided t test."""

import math

import numpy as np
import pytest
import scipy.stats

from results.statistics import intervals, stream
from results.statistics.contrast import Sample
from results.statistics.stream import ALPHA, FIRST_WEALTH


def lord_plus_plus(rejected: list[bool]) -> list[float]:
    """Return the levels of Ramdas et al. 2017, section 3.2: gamma_t W0 + (alpha - W0) gamma_{t - tau1} + ..."""
    terms = [j**-1.3 for j in range(1, 200_001)]
    total = sum(terms) + 200_000.5**-0.3 / 0.3  # the rest of the series as an integral
    gamma = [math.nan, *(term / total for term in terms)]
    levels = []
    for t in range(1, len(rejected) + 2):
        taus = [j for j in range(1, t) if rejected[j - 1]]
        level = gamma[t] * FIRST_WEALTH
        for count, tau in enumerate(taus):
            level += (ALPHA - FIRST_WEALTH if count == 0 else ALPHA) * gamma[t - tau]
        levels.append(level)
    return levels


def levels(rejected: list[bool]) -> list[float]:
    known = [t for t, is_rejected in enumerate(rejected, 1) if is_rejected]
    return [stream.next_level(t, [k for k in known if k <= t]) for t in range(len(rejected) + 1)]


@pytest.mark.parametrize("rejected", [[], [True], [False, True, True, False], [False] * 9 + [True], [True] * 6])
def test_levels_are_those_of_the_paper(rejected: list[bool]) -> None:
    assert levels(rejected) == pytest.approx(lord_plus_plus(rejected), rel=1e-6)


def test_no_order_of_keeps_spends_more_than_it_earned() -> None:
    """The estimated number of false keeps, which is the sum of the levels, is at most 5% of the keeps or of one."""
    rng = np.random.default_rng(0)
    for rate in (0.0, 0.05, 0.5, 1.0):
        rejected = list(rng.random(300) < rate)
        spent = np.cumsum(levels(rejected))[:-1]
        assert (spent <= ALPHA * np.maximum(1, np.cumsum(rejected)) + 1e-12).all()


def test_a_keep_that_is_known_later_earns_later() -> None:
    """Of three open proposals, the first is kept after the third was opened."""
    late, early = stream.next_level(3, [3]), stream.next_level(3, [1])
    assert late == pytest.approx(FIRST_WEALTH * (stream.share(4) + stream.share(1)))
    assert early == pytest.approx(FIRST_WEALTH * (stream.share(4) + stream.share(3)))


def test_steps_spend_the_level_of_their_proposal() -> None:
    assert [stream.step_level(0.4, [5, 10, 20, 40], step) for step in (1, 2, 3, 4)] == [0.05, 0.05, 0.1, 0.2]


@pytest.mark.parametrize(
    ("center", "is_last", "answer"),
    [(0.05, False, "keep"), (0.012, False, "more"), (0.012, True, "reject"), (-0.01, False, "reject")],
)
def test_a_step_decides_by_scipys_t_test(center: float, is_last: bool, answer: str) -> None:
    """It keeps if p is at most the level, and rejects if the one-sided bound excludes the margin."""
    noise = np.array([-0.01, 0.008, 0.012, -0.006, -0.004])
    values = center + noise - noise.mean()
    test = scipy.stats.ttest_1samp(values, 0, alternative="greater")
    bound = scipy.stats.ttest_1samp(values, 0, alternative="less").confidence_interval(0.95).high
    gain = intervals.mean(values)
    assert stream.p_better(gain) == pytest.approx(test.pvalue)
    margin, level = 0.005, 0.001
    expected = "reject" if bound < margin else "keep" if test.pvalue <= level else "reject" if is_last else "more"
    assert expected == answer
    assert stream.decide(gain, margin, level, is_last).answer == answer


@pytest.mark.parametrize(
    ("values", "is_last", "answer"),
    [([0.0, 0.0, 0.0], False, "reject"), ([0.1, 0.1, 0.1], False, "more"), ([0.1, 0.1, 0.1], True, "reject")],
)
def test_without_a_spread_nothing_is_kept(values: list[float], is_last: bool, answer: str) -> None:
    """Equal results end the test, as more seeds would bring more of them."""
    assert stream.decide(intervals.mean(np.array(values)), 0.01, 0.05, is_last).answer == answer


def test_a_gain_below_the_margin_is_rejected_however_sure() -> None:
    gain = intervals.mean(np.array([0.0010, 0.0011, 0.0012, 0.0009, 0.0010]))
    assert stream.p_better(gain) < 1e-4
    assert stream.decide(gain, 0.005, 0.01, is_last=False).answer == "reject"


def test_gains_of_independent_seeds_add_up() -> None:
    """The standard error and the degrees of freedom of the sum are Welch's."""
    first, second = np.array([0.1, 0.2, 0.4]), np.array([0.3, 0.1, 0.0, 0.2])
    samples = []
    for offset, values in ((0, first), (10, second)):
        seeds = {offset + i: float(value) for i, value in enumerate(values)}
        samples.append(Sample(seeds, {}, {seed: "0" * 12 for seed in seeds}, None))
    total = stream.total_gain(samples)
    welch = scipy.stats.ttest_ind(first, -second, equal_var=False)
    assert total.value == pytest.approx(first.mean() + second.mean())
    assert (total.value / total.se, total.df) == pytest.approx((welch.statistic, welch.df))
