"""How many seeds an answer takes, against SciPy's distributions, numerical integration and closed forms."""

import math

import pytest
import scipy.integrate
import scipy.stats

from results.statistics import power


@pytest.mark.parametrize("family", [1, 2, 7, 11, 30])
def test_power_is_scipys_also_where_it_is_nearly_one(family: int) -> None:
    """The power is a number even in the thin tail, where the distribution function gives NaN."""
    for n in (2, 3, 5, 8, 40, 1000):
        critical = scipy.stats.t.isf(0.025 / family, n - 1)
        for sd in (0.05, 0.28, 0.42, 0.58, 0.83, 0.85, 0.86, 1.3, 3.0):
            expected = scipy.stats.nct.sf(critical, n - 1, math.sqrt(n) / sd)
            assert power.power_to_resolve(n, 1.0, sd, family) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("difference", "sd", "family"), [(0.01, 0.01, 1), (0.005, 0.01, 3), (0.01, 0.03, 7)])
def test_seeds_to_resolve_are_the_first_that_have_the_power(difference: float, sd: float, family: int) -> None:
    n = 2
    while True:
        critical = scipy.stats.t.isf(0.025 / family, n - 1)
        if scipy.stats.nct.sf(critical, n - 1, difference * math.sqrt(n) / sd) >= 0.8:
            break
        n += 1
    assert power.seeds_to_resolve(difference, sd, family) == n


@pytest.mark.parametrize(("n", "margin"), [(2, 8.0), (3, 4.0), (5, 1.6), (10, 1.0), (40, 0.4)])
def test_power_of_equivalence_is_the_integral_over_the_spread(n: int, margin: float) -> None:
    """SciPy integrates P(|D| < margin - t S / sqrt(n), |D| < t' S / sqrt(n)) over the chi-square density of S."""
    t, resolved = scipy.stats.t.ppf(0.95, n - 1), scipy.stats.t.ppf(0.975, n - 1)

    def given(chi2: float) -> float:
        spread = math.sqrt(chi2 / (n - 1))
        room = min(margin * math.sqrt(n) - t * spread, resolved * spread)
        inside = 2 * scipy.stats.norm.cdf(room) - 1 if room > 0 else 0.0
        return float(inside * scipy.stats.chi2.pdf(chi2, n - 1))

    end = (n - 1) * (margin * math.sqrt(n) / t) ** 2
    expected, _ = scipy.integrate.quad(given, 0, end, limit=200)
    assert power.equivalence_power(n, 1.0, margin) == pytest.approx(expected, abs=2e-3)


def test_smallest_margin_of_many_seeds_is_the_normal_one() -> None:
    """The margin is (z_0.95 + z_0.90) sd / sqrt(n)."""
    normal = (scipy.stats.norm.ppf(0.95) + scipy.stats.norm.ppf(0.90)) * 0.01 / math.sqrt(900)
    five = (scipy.stats.norm.ppf(0.99) + scipy.stats.norm.ppf(0.90)) * 0.01 / math.sqrt(900)
    assert power.smallest_margin(900, 0.01, tests=5) == pytest.approx(five, rel=5e-3)
    assert power.smallest_margin(900, 0.01) == pytest.approx(normal, rel=5e-3)
    assert power.smallest_margin(1, 0.01) == math.inf


def test_seeds_to_show_equivalent_are_the_first_whose_margin_is_small_enough() -> None:
    """A difference of a fiftieth of its spread takes too many seeds."""
    assert power.seeds_to_resolve(0.0002, 0.01) is power.seeds_to_show_equivalent(0.0002, 0.01) is None
    n = power.seeds_to_show_equivalent(0.01, 0.01)
    assert power.smallest_margin(n, 0.01) <= 0.01 < power.smallest_margin(n - 1, 0.01)
