"""Figures of few seeds, of intervals beyond the axis and of many arms; numbers close to zero."""

import re
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
import synthetic
from figure_studies import draw_figure, spread, texts
from matplotlib.markers import CARETLEFT, CARETRIGHT

from results import report
from results.figures import study_figure
from results.figures.axes import value_text
from results.figures.frame import arms_frame, minus_text, signed_text
from results.style import COLUMN, Style, use_style
from results.tables import formats, layout, study_table
from results.units import unit

MINUS_ZERO = re.compile(r"(?<![\w.])[-\N{MINUS SIGN}]0(\.0*)?(?![\d.\w])")


@pytest.mark.parametrize(("seeds", "drawn"), [(1, False), (2, False), (3, True)])
def test_one_or_two_seeds_are_dots(seeds: int, drawn: bool) -> None:
    study = synthetic.results(synthetic.position(seeds=seeds))
    frame = arms_frame(study, study_table.table(study))
    for column in ("low", "high", "delta_low", "delta_high"):
        assert bool(frame[column].notna().any()) == drawn
    assert ("no interval" in study_figure.caption(study)[0]) != drawn
    assert frame["mean"].notna().all()
    heading = draw_figure(study).axes[0].texts[-1].get_text()
    assert ("Intervals are" in study_figure.caption(study)[1]) == drawn
    assert heading == ("against the baseline, 95% CI, not adjusted" if drawn else "against the baseline")


def test_equal_seeds_are_drawn_at_their_value() -> None:
    """A short axis has whole numbers, such as 99.95, not differences from one in a corner."""
    plan = synthetic.make_plan("equal", {"position": ["1d", "2d"]}, {"position": "1d"}, seeds=2)
    reached = {"position=1d": [0.9995, 0.9995], "position=2d": [1.0, 1.0]}
    study = synthetic.results(plan, synthetic.from_accuracies(plan, reached))
    ax = draw_figure(study).axes[0]
    assert "100.00" in [label.get_text() for label in ax.get_xticklabels()]
    assert ax.xaxis.get_offset_text().get_text() == ""


@pytest.mark.parametrize("kind", ["intervals", "axis", "compute", "shape", "families"])  # others draw as axis does
def test_an_interval_beyond_the_axis_ends_in_an_arrow(kind: str) -> None:
    plan = spread(synthetic.make_plan("few", {"patch": [1, 2, 4]}, {"patch": 1}, seeds=3, figure=kind))
    reached = {"patch=1": [0.8, 0.99, 0.99], "patch=2": [0.01, 0.2, 0.01], "patch=4": [0.5, 0.51, 0.52]}
    study = synthetic.results(plan, synthetic.from_accuracies(plan, reached))
    page = draw_figure(study)
    ax = page.axes[0]
    if kind == "intervals":
        edges, along = dict(zip(map(str, (CARETLEFT, CARETRIGHT)), ax.get_xlim(), strict=True)), "get_xdata"
        assert any("Arrow: the interval continues" in " ".join(text.split()) for text in texts(page))
    else:
        edges, along = dict(zip(("v", "^"), ax.get_ylim(), strict=True)), "get_ydata"
    arrows = [
        str(line.get_marker()) for line in ax.lines if edges.get(str(line.get_marker())) in getattr(line, along)()
    ]
    assert arrows == [*reversed(edges)]
    assert list(edges.values()) == [0.0, 100.0]


@pytest.mark.parametrize("kind", ["intervals", "compute", "curves"])  # rows, names beside points, a legend
def test_figures_of_forty_arms_fit_on_a_page(kind: str) -> None:
    values = [f"{k}d" for k in range(40)]
    plan = synthetic.make_plan("m", {"position": values}, {"position": "0d"}, figure=kind)
    page = draw_figure(synthetic.results(spread(plan, 1.1)), COLUMN)
    assert 2.0 < page.get_figheight() < 12.0
    if kind == "intervals":
        boxes = sorted((text.get_window_extent() for text in page.axes[0].texts), key=lambda box: float(box.y0))
        assert len(boxes) == 2 * 40
        assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_no_number_is_minus_zero() -> None:
    rng = np.random.default_rng(0)
    numbers = [-0.0, 0.0, *(rng.choice([-1, 1], 300) * 10.0 ** rng.uniform(-12, 1, 300))]
    for digits in (0, 1, 2, 4):
        for number in map(float, numbers):
            written = [write(number, digits) for write in (minus_text, signed_text)]
            with use_style(Style(digits={"accuracy": digits, "loss": digits})):
                units = [unit(name) for name in ("test_accuracy", "test_loss", "train_seconds")]
                written += [
                    write(number)
                    for one in units
                    for write in (one.value_text, one.signed_text, one.size_text, one.bound_text)
                ]
            written.append(value_text(number))
            assert not [text for text in written if MINUS_ZERO.search(text)], number


def test_no_number_of_a_report_is_minus_zero() -> None:
    plan = synthetic.position(seeds=5, metric="test_loss", margin=0.01)
    alike = {arm["name"]: [0.9 + s / 100 + 1e-9 * (k % 3) for s in range(5)] for k, arm in enumerate(plan["arms"])}
    study = synthetic.results(plan, synthetic.from_accuracies(plan, alike))
    page = report.render([study], datetime(2026, 1, 1, tzinfo=UTC))
    assert "0.0000" in page
    plain = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert not MINUS_ZERO.findall(plain.partition("<header>")[2].partition("<script>")[0])
    assert not MINUS_ZERO.findall(layout.render(study_table.table(study), "json"))


def test_footnotes_are_numbered_as_they_appear() -> None:
    start, size = "99.7% of its initial weights are the baseline's", "parameters 5 against 4 (+25.0%)"
    disagrees = "the 95% interval excludes 0, but not after correction for 2 contrasts"
    rows = [[formats.Cell("", notes=[start, size])], [formats.Cell("", notes=[start, disagrees])]]
    made = formats.Grid(title="", caption=[], header=[""], numeric=[False], rows=rows)
    assert made.footnotes == [size, start, disagrees]
    assert [made.footnote_numbers(cell) for (cell,) in rows] == ["1,2", "2,3"]
