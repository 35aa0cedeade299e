"""Figures of studies are complete and reproducible: missing arms, clipping, file bytes, few seeds."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import synthetic
from figure_studies import complete, draw_figure, incomplete, spread, texts, words
from in_process import Ablate, refusal
from matplotlib.figure import Figure
from matplotlib.markers import CARETLEFT, CARETRIGHT
from matplotlib.text import Text

from results import report
from results.figures import kinds, study_figure
from results.figures.frame import arms_frame, minus_text, signed_text
from results.figures.page import apply_style
from results.figures.plots import value_text
from results.store.schemas.metrics import AXES, metric_by_name
from results.study_results import StudyResults
from results.style import COLUMN, FULL, Style, use_style
from results.tables import formats, layout, study_table


def equal_differences(figure: str) -> StudyResults:
    """Return a study whose last arm differs from its baseline by the same on every seed, so that it has no verdict."""
    plan = complete(figure).plan
    accuracies = {arm.name: [0.5 + (seed + k * seed**2) / 128 for seed in range(5)] for k, arm in enumerate(plan.arms)}
    last = plan.arms[-1]
    accuracies[last.name] = [value + 0.125 for value in accuracies[last.baseline]]
    return synthetic.results(plan, synthetic.from_accuracies(plan, accuracies))


def nothing_finished(figure: str) -> StudyResults:
    return synthetic.untrained(complete(figure).plan)


def one_seed(figure: str) -> StudyResults:
    return complete(figure, seeds=1)


def one_arm(figure: str) -> StudyResults:
    return synthetic.results(spread(synthetic.make_plan("alone", {"patch": [2]}, {"patch": 2}, figure=figure)))


def several_factors(figure: str) -> StudyResults:
    factors = {"patch": [1, 2, 4], "pool": ["cls", "gap"], "stem": ["patch", "conv", "resnet-small"]}
    baseline = {"patch": 1, "pool": "cls", "stem": "patch"}
    return synthetic.results(spread(synthetic.make_plan("several", factors, baseline, figure=figure)))


def long_names(figure: str) -> StudyResults:
    kinds = ["none", "a-rather-long-name-for-a-position-embedding", "anotherlongnamewithoutanyhyphenstobreakitat"]
    factors = {"position": kinds, "position_at": ["input", "every-layer-and-shared"]}
    baseline = {"position": "none", "position_at": "input"}
    question = "Does a $ sign, an <b> or a question that is longer than any line break the picture? " * 2
    return synthetic.results(spread(synthetic.make_plan("long", factors, baseline, question=question, figure=figure)))


def loss(figure: str) -> StudyResults:
    curves = {"lr": [5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 3e-3, 4e-3]}
    return synthetic.results(spread(synthetic.pooling(curves=curves, metric="test_loss", figure=figure)))


CASES = [
    complete,
    incomplete,
    equal_differences,
    nothing_finished,
    one_seed,
    one_arm,
    several_factors,
    long_names,
    loss,
]


def beyond_the_limits(figure: Figure) -> set[Text]:
    """Return the labels of ticks that matplotlib keeps but does not draw."""
    return {
        label
        for ax in figure.axes
        for axis in (ax.xaxis, ax.yaxis)
        for tick in axis.get_major_ticks()
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    }


def assert_inside(figure: Figure) -> None:
    with apply_style():
        page, unseen = figure.bbox, beyond_the_limits(figure)
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text() and text not in unseen:
                box = text.get_window_extent()
                inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
                assert inside, f"{text.get_text()!r} leaves the page"


def test_the_names_of_figures_are_known_without_matplotlib() -> None:
    code = "import sys, results.figures.kinds as own; print(*own.FIGURE_KINDS); sys.exit('matplotlib' in sys.modules)"
    names = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert names == list(kinds.FIGURE_KINDS)
    assert all(isinstance(kinds.kind(name), kinds.FigureKind) for name in names)


SLOW = [(case, FULL) for case in CASES if case is not long_names] + [(several_factors, COLUMN), (long_names, COLUMN)]


@pytest.mark.parametrize(
    ("case", "width"),
    [(long_names, FULL), *(pytest.param(*slow, marks=pytest.mark.slow) for slow in SLOW)],
    ids=lambda value: f"{value:g}in" if isinstance(value, float) else value.__name__,
)
@pytest.mark.parametrize("name", kinds.FIGURE_KINDS)
def test_every_figure_of_every_study_is_whole(name: str, case: Callable[[str], StudyResults], width: float) -> None:
    assert_inside(draw_figure(case(name), width))


def test_a_figure_is_drawn_where_one_arm_has_no_verdict() -> None:
    assert_inside(draw_figure(equal_differences("axis")))


@pytest.mark.parametrize("name", kinds.FIGURE_KINDS)
def test_an_absent_arm_is_a_marked_gap(name: str) -> None:
    study = incomplete(name)
    first, second, *_, last = (arm.name for arm in study.plan.arms)
    figure = draw_figure(study, COLUMN)
    assert_inside(figure)
    assert "diverged" in words(figure).partition("Filled")[0]
    for arm, known in {
        first: "0 of 5 seeds finished (5 missing)",
        second: "3 of 5 seeds finished (2 failed)",
        last: "0 of 5 seeds finished (5 diverged)",
    }.items():
        assert f"{arm}: {known}" in words(figure)


@pytest.mark.parametrize(("name", "format"), [("intervals", "png"), ("intervals", "pdf"), ("learning-rate", "svg")])
def test_equal_results_give_equal_bytes(name: str, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = study_figure.picture(complete(name), format)
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 20)
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "red")
    assert study_figure.picture(complete(name), format) == first
    assert matplotlib.rcParams["font.size"] == 20, "drawing leaves the user's settings alone"


@pytest.mark.slow
def test_the_order_of_a_hash_changes_nothing() -> None:
    code = (
        "import sys, hashlib; sys.path += ['tests/helpers']; from figure_studies import incomplete, study_figure; "
        "print(hashlib.sha256(study_figure.picture(incomplete('learning-rate'), 'svg')).hexdigest())"
    )
    command, root = [sys.executable, "-c", code], Path(__file__).parents[3]
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    assert len({subprocess.check_output(command, cwd=root, env=one) for one in environments}) == 1


def test_an_unknown_format_figure_or_axis_is_one_clear_line(tmp_path: Path, ablate: Ablate) -> None:
    with pytest.raises(ValueError, match="format=gif: one of png, pdf, svg"):
        study_figure.draw(complete("axis"), tmp_path / "figures" / "a.gif")
    with pytest.raises(ValueError, match="figure=pie of study alone: one of axis, compute"):
        study_figure.draw(one_arm("pie"), tmp_path / "figures" / "a.png")
    with pytest.raises(ValueError, match="x=hour: one of step, epoch, images, seconds"):
        study_figure.picture(complete("intervals"), "svg", x="hour")
    assert not (tmp_path / "figures").exists()
    offered = ", ".join(map(repr, AXES))
    assert f"'hour' is not one of {offered} (" in refusal(ablate, "plot", "--x", "hour")


def test_out_may_be_the_file_of_one_figure(tmp_path: Path, ablate: Ablate) -> None:
    runs = str(synthetic.write(tmp_path / "runs", synthetic.position()))
    for name, begins in {"fig.png": b"\x89PNG", "new/fig.pdf": b"%PDF", "fig.SVG": b"<?xml"}.items():
        status, output, errors = ablate("plot", "--runs", runs, "--out", str(tmp_path / name))
        assert (status, output.strip(), errors) == (0, str(tmp_path / name), "")
        assert (tmp_path / name).read_bytes().startswith(begins)
    ablate("plot", "--runs", runs, "--out", str(tmp_path / "v1.2"))
    assert [path.name for path in (tmp_path / "v1.2").iterdir()] == ["position-embedding@digits.png"]


def test_a_file_that_cannot_be_drawn_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate
) -> None:
    for plan in (synthetic.patch_size(), synthetic.position()):
        synthetic.write(tmp_path / "runs", plan)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for asked, message in {
        "plot patch-size --out fig.pdf --format png": "--out fig.pdf and --format png",
        "plot patch-size --out fig.gif": "--out fig.gif: give a folder, or a file that ends in one of .png, .pdf, .svg",
        "plot patch-size --out fig.tar.gz": "--out fig.tar.gz: give a folder, or",
        "plot --out fig.png": "one file for 2 studies",
        "inspect patch-size --out fig.png": "several figures go to a folder",
    }.items():
        assert message in refusal(ablate, *asked.split(), "--runs", str(tmp_path / "runs"))
    assert not list((tmp_path / "here").iterdir())


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
                units = [metric_by_name(name) for name in ("test_accuracy", "test_loss", "train_seconds")]
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
    assert made.footnotes == [size, disagrees, start]
    assert [made.footnote_numbers(cell) for (cell,) in rows] == ["1,3", "2,3"]
