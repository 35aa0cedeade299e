"""What figures show of few seeds, of intervals beyond the axis, and of many filters."""

import matplotlib
import numpy as np
import pytest
import synthetic
from matplotlib.figure import Figure

from results.figures.frame import arms_frame, minus_text
from results.figures.kinds import intervals
from results.tables import grid, study_table
from results.units import PERCENT, unit

matplotlib.use("agg")


@pytest.mark.parametrize(("seeds", "drawn"), [(1, False), (2, False), (3, True)])
def test_one_or_two_seeds_are_dots(seeds: int, drawn: bool) -> None:
    """Their intervals are wider than most axes; three have one."""
    study = synthetic.results(synthetic.position(seeds=seeds))
    frame = arms_frame(study, study_table.table(study))
    for column in ("low", "high", "delta_low", "delta_high"):
        assert bool(frame[column].notna().any()) == drawn
    assert frame["mean"].notna().all()


def test_an_interval_beyond_the_axis_ends_in_an_arrow() -> None:
    """At each edge that it leaves."""
    study = synthetic.results(synthetic.position(seeds=3))
    frame = arms_frame(study, study_table.table(study))
    ax = Figure().subplots()
    ax.set_xlim(50.0, 100.0)
    frame[["low", "high"]] = np.array([[60.0, 70.0]] * len(frame))
    intervals.draw_arrows(frame, ax)
    assert not ax.lines
    frame.loc[0, ["low", "high"]] = [40.0, 120.0]
    intervals.draw_arrows(frame, ax)
    assert [line.get_marker() for line in ax.lines] == ["<", ">"]


def test_no_number_is_minus_zero() -> None:
    """In tables and figures."""
    assert (PERCENT.value(-1e-9), unit("test_loss").value(-1e-9), minus_text(-0.01)) == ("0.00", "0.0000", "0.0")


def test_footnotes_that_matter_come_first() -> None:
    """An interval that disagrees, then sizes, then how alike the initial weights are."""
    start, size = "99.7% of its initial weights are the baseline's", "parameters 5 against 4 (+25.0%)"
    disagrees = "the 95% interval excludes 0, but not after correction for 2 contrasts"
    marks, texts = grid.number_notes([[start, size], [start, disagrees]])
    assert texts == [disagrees, size, start]
    assert marks == [(2, 3), (1, 3)]
