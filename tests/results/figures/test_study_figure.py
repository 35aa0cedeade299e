"""Figures of studies name what is absent, cut nothing off, are reproducible, and refuse wrong input in one line."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pytest
import synthetic
from figure_studies import complete, draw_figure, incomplete, spread, words
from in_process import Ablate, refusal
from matplotlib.figure import Figure
from matplotlib.text import Text

from results.figures import kinds, study_figure
from results.figures.theme import apply_style
from results.metrics import AXES
from results.study_results import StudyResults
from results.style import COLUMN, FULL


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
    folder = Path(kinds.__file__).parent
    assert names == sorted(path.stem.replace("_", "-") for path in folder.glob("[a-z]*.py"))


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
        "plot patch-size --out fig.gif": "no figure is drawn as .gif: give one of png, pdf, svg",
        "plot patch-size --out fig.tar.gz": "no figure is drawn as .gz",
        "plot --out fig.png": "one file for 2 studies",
        "inspect patch-size --out fig.png": "several figures go to a folder",
    }.items():
        assert message in refusal(ablate, *asked.split(), "--runs", str(tmp_path / "runs"))
    assert not list((tmp_path / "here").iterdir())
