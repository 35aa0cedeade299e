"""error = a C^-b: as SciPy fits it, seed by seed, and nowhere outside what was measured."""

import numpy as np
import pytest
from scipy import stats

from results.figures.kinds.over_compute import fit_power_law

COMPUTE = np.array([1e12, 4e12, 1.6e13, 1e14, 3e14])


def noisy_power_law(seed: int) -> tuple[np.ndarray, np.ndarray]:
    return COMPUTE, 30 * COMPUTE**-0.2 * np.exp(0.1 * np.random.default_rng(seed).standard_normal(len(COMPUTE)))


def test_each_seed_is_fitted_as_scipy_fits_a_line_through_logarithms() -> None:
    """The exponent is the mean over seeds with its t interval."""
    points = {seed: noisy_power_law(seed) for seed in range(5)}
    found = fit_power_law(points)
    lines = [stats.linregress(np.log(c), np.log(e)) for c, e in points.values()]
    b = [-line.slope for line in lines]
    assert found.b == pytest.approx(b)
    assert found.a == pytest.approx([np.exp(line.intercept) for line in lines])


def test_a_law_is_known_only_between_the_sizes_that_were_trained() -> None:
    found = fit_power_law({0: (COMPUTE, 30 * COMPUTE**-0.25)})
    assert found.b == pytest.approx([0.25])
    between = np.geomspace(1e12, 3e14, 7)
    assert found.predict(between)[0] == pytest.approx(30 * between**-0.25)
    for outside in (0.9e12, 3.3e14):
        with pytest.raises(ValueError, match="no extrapolation: fitted from 1e\\+12 to 3e\\+14"):
            found.predict(np.array([1e13, outside]))


def test_three_sizes_are_too_few() -> None:
    """A size without a positive error, or equal to another size, does not count."""
    compute, error = COMPUTE[:4], noisy_power_law(0)[1][:4]
    assert fit_power_law({0: (compute[:3], error[:3])}) is None
    for broken in (np.nan, 0.0):
        assert fit_power_law({0: (compute, np.array([*error[:3], broken]))}) is None
    assert fit_power_law({0: (np.array([*compute[:3], compute[2]]), error)}) is None
    assert fit_power_law({}) is None
    whole, with_hole = (
        fit_power_law({1: noisy_power_law(1)}),
        fit_power_law({0: (compute[:3], error[:3]), 1: noisy_power_law(1)}),
    )
    assert (with_hole.b, with_hole.low, with_hole.high) == (pytest.approx(whole.b), whole.low, whole.high)


def test_seeds_of_other_sizes_are_followed_where_all_were_measured() -> None:
    """The mean law covers the range that all seeds share; without such a range there is no fit."""
    law = 30 * COMPUTE**-0.25
    found = fit_power_law({0: (COMPUTE[:4], law[:4]), 1: (COMPUTE[1:], law[1:])})
    assert (found.low, found.high) == (COMPUTE[1], COMPUTE[3])
    with pytest.raises(ValueError, match="no extrapolation"):
        found.predict(COMPUTE)
    assert fit_power_law({0: (COMPUTE, law), 1: (1e6 * COMPUTE, law)}) is None
