"""The calibration suite with few studies and fixed seeds; `make calibration` prints the figures of thousands."""

import numpy as np
import pytest

from benchmarks.calibration import suite as calibration
from benchmarks.calibration.suite import Line

SHARE = 0.005


@pytest.mark.parametrize("part", calibration.SUITE, ids=lambda part: part.__name__)
def test_every_figure_is_as_expected(part: object) -> None:
    """Every figure lies within Monte Carlo error, which is wide for few studies."""
    number = list(calibration.SUITE).index(part)
    for line in part(np.random.default_rng(number), round(SHARE * calibration.SUITE[part])):
        assert line.holds, line


def test_a_figure_outside_of_monte_carlo_error_does_not_hold() -> None:
    """Three standard errors of 1,000 studies are 2.1 points at 5% and at 95%."""
    inside = (0.0, 0.05, 0.056), (0.0, 0.05, 0.0), (0.95, 1.0, 1.0)
    outside = (0.0, 0.05, 0.075), (0.95, 0.95, 0.925), (1.0, 1.0, 0.999)
    assert [Line("", *figure, 1000).holds for figure in (*inside, *outside)] == [True] * 3 + [False] * 3


def test_arms_on_real_digits_go_through_the_table() -> None:
    """The arms are the baseline with other seeds, and with a fifth of its labels wrong."""
    again, wrong = calibration.digits(seeds=2, steps=20, width=16, depth=1, heads=2)
    assert again.n_pairs == wrong.n_pairs == 2
    assert again.delta != 0
    assert wrong.delta != 0
