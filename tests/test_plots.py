"""The figures: they show the table's numbers, name what is absent, cut nothing off and are the same every time."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import synthetic
import yaml
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from scipy import stats

from results import plots, tables
from results.figures import flops, labels, lines
from results.figures.page import wrapped
from results.figures.style import COLUMN, FULL, style
from results.study import StudyResults

STUDIES = Path(__file__).parent.parent / "ablations" / "studies"
SEVERAL = {"patch": [1, 2, 4], "pool": ["cls", "gap"], "stem": ["patch", "conv", "resnet-small"]}


def complete(figure: str) -> StudyResults:
    """The study that has this figure among the packaged ones."""
    plans = {
        "intervals": synthetic.position,
        "learning-rate": synthetic.pooling,
        "axis": synthetic.patch_size,
        "scale": synthetic.dataset_scale,
        "compute": synthetic.hybrid_stem,
    }
    return synthetic.results(spread(plans[figure](figure=figure)))


def spread(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan with a different compute for every arm."""
    for k, arm in enumerate(plan["arms"]):
        arm["flops"] = int(1.6e6 * 1.7**k)
    return plan


def incomplete(figure: str) -> StudyResults:
    """The last arm diverged at every seed, the first was never started, of the second two seeds failed."""
    plan = complete(figure).plan
    first, second, *_, last = plan["arms"]
    known = synthetic.simulate(plan)
    holes = {trial["id"]: synthetic.hole("missing", "not started") for trial in first["trials"]}
    holes |= {trial["id"]: synthetic.hole("failed", "ValueError: boom") for trial in second["trials"][:2]}
    for trial in last["trials"]:
        holes[trial["id"]] = synthetic.changed(known[trial["id"]], status="diverged", test_accuracy=np.nan)
    return synthetic.results(plan, holes)


def nothing_finished(figure: str) -> StudyResults:
    plan = complete(figure).plan
    ids = [trial["id"] for arm in plan["arms"] for trial in arm["trials"]]
    return synthetic.results(plan, dict.fromkeys(ids, synthetic.hole("missing", "not started")))


def one_seed(figure: str) -> StudyResults:
    plan = complete(figure).plan
    for arm in plan["arms"]:
        arm["trials"] = arm["trials"][:1]
    return synthetic.results(plan | {"seeds": [0]})


def one_arm(figure: str) -> StudyResults:
    return synthetic.results(synthetic.make_plan("alone", {"patch": [2]}, {"patch": 2}, figure=figure))


def several_factors(figure: str) -> StudyResults:
    baseline = {name: values[0] for name, values in SEVERAL.items()}
    return synthetic.results(spread(synthetic.make_plan("several", SEVERAL, baseline, figure=figure)))


def long_names(figure: str) -> StudyResults:
    kinds = ["none", "a-rather-long-name-for-a-position-embedding", "anotherlongnamewithoutanyhyphenstobreakitat"]
    places = ["input", "every-layer-and-shared"]
    plan = synthetic.make_plan(
        "long",
        {"position": kinds, "position_at": places},
        {"position": "none", "position_at": "input"},
        question="Does a $ sign, an <b> or a very long question, such as this one, that is longer than any line, "
        "break the picture? It costs $5.",
        figure=figure,
    )
    return synthetic.results(spread(plan))


def loss(figure: str) -> StudyResults:
    plan = synthetic.make_plan(
        "loss",
        {"pool": ["cls", "gap"]},
        {"pool": "cls"},
        curves={"lr": [5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 3e-3, 4e-3]},
        metric="test_loss",
        figure=figure,
    )
    return synthetic.results(spread(plan))


CASES = [complete, incomplete, nothing_finished, one_seed, one_arm, several_factors, long_names, loss]


def drawn(study: StudyResults, width: float = FULL) -> Figure:
    with style():
        figure = plots.figure(study, tables.table(study), width)
        figure.draw_without_rendering()
    return figure


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


def beyond_the_limits(figure: Figure) -> set[Text]:
    """Labels of ticks that matplotlib keeps but does not draw."""
    return {
        label
        for ax in figure.axes
        for axis in (ax.xaxis, ax.yaxis)
        for tick in axis.get_major_ticks()
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    }


def test_every_figure_that_a_study_may_name_is_drawn() -> None:
    """The names, known without matplotlib, are those of the functions that draw."""
    assert list(plots.DRAW) == list(plots.FIGURES)


@pytest.mark.parametrize(
    ("case", "width"),
    [(case, FULL) for case in CASES] + [(case, COLUMN) for case in (incomplete, several_factors, long_names)],
    ids=lambda value: f"{value:g}in" if isinstance(value, float) else value.__name__,
)
@pytest.mark.parametrize("name", plots.FIGURES)
def test_every_figure_draws_every_study_and_cuts_nothing_off(
    name: str, case: Callable[[str], StudyResults], width: float
) -> None:
    """Complete or not, with any number of arms, seeds and characters: all text lies inside the figure."""
    figure = drawn(case(name), width)
    with style():
        page, unseen = figure.bbox, beyond_the_limits(figure)
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text() and text not in unseen:
                box = text.get_window_extent()
                inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
                assert inside, f"{text.get_text()!r} leaves the page"


@pytest.mark.parametrize(
    ("name", "format"), [(name, "svg") for name in plots.FIGURES] + [("intervals", "png"), ("intervals", "pdf")]
)
def test_equal_results_give_equal_bytes(name: str, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file carries no date, no version, nothing of the user's own matplotlib settings."""
    first = plots.picture(complete(name), format)
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 20)
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "red")
    assert plots.picture(complete(name), format) == first
    assert matplotlib.rcParams["font.size"] == 20, "drawing leaves the user's settings alone"


def test_the_order_of_a_hash_changes_nothing() -> None:
    """Another process, which orders its sets otherwise, writes the same bytes."""
    code = (
        "import sys, hashlib; sys.path.insert(0, 'tests'); import test_plots as t; "
        "print(hashlib.sha256(t.plots.picture(t.incomplete('learning-rate'), 'svg')).hexdigest())"
    )
    digests = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        root = Path(__file__).parent.parent
        done = subprocess.run([sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


def test_a_pdf_embeds_its_fonts() -> None:
    """TrueType inside the file, as publishers ask; no Type 3."""
    content = plots.picture(complete("intervals"), "pdf")
    assert b"/FontFile2" in content
    assert b"/Type3" not in content


def test_a_packaged_study_asks_for_a_figure_that_there_is() -> None:
    """Every `figure:` of the studies is drawn by one of FIGURES."""
    asked = {path.stem: yaml.safe_load(path.read_text())["figure"] for path in STUDIES.glob("*.yaml")}
    assert asked
    assert set(asked.values()) <= set(plots.FIGURES), asked


def test_draw_writes_one_file_named_after_the_study(tmp_path: Path) -> None:
    """The folder is made; the path comes back."""
    path = plots.draw(complete("axis"), tmp_path / "figures", "svg")
    assert path == tmp_path / "figures" / "patch-size@digits.svg"
    assert path.read_text().startswith("<?xml")


def test_an_unknown_format_or_figure_is_one_clear_line(tmp_path: Path) -> None:
    """It names what there is, and nothing is written."""
    with pytest.raises(ValueError, match="format=gif: one of png, pdf, svg"):
        plots.draw(complete("axis"), tmp_path / "figures", "gif")
    with pytest.raises(ValueError, match="figure=pie of study alone: one of intervals"):
        plots.draw(one_arm("pie"), tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


def test_intervals_are_those_of_scipy() -> None:
    """The bar of an arm is the mean with SciPy's t interval over its seeds, in percent."""
    study = complete("intervals")
    rows = drawn(study).axes[0]
    bars = [line.get_xdata() for line in rows.lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 1.8]
    means = [line.get_xdata()[0] for line in rows.lines if len(line.get_xdata()) == 1]
    for bar, mean, (_, values) in zip(bars, means, study.trials.groupby("arm", sort=False), strict=True):
        seeds = 100 * values["test_accuracy"]
        assert mean == pytest.approx(seeds.mean())
        expected = stats.t.interval(0.95, len(seeds) - 1, seeds.mean(), stats.sem(seeds))
        assert list(bar) == pytest.approx(list(expected))


def test_published_numbers_have_an_axis_of_their_own() -> None:
    """Another setting is never on the axis of our numbers, and says that it is another."""
    ours, published = (ax for ax in drawn(complete("intervals")).axes)
    shown = [line.get_xdata()[0] for line in published.lines]
    assert shown == pytest.approx([61.382, 64.206, 64.001, 64.032])
    assert "another setting" in published.get_title(loc="left")
    assert min(min(line.get_xdata()) for line in ours.lines) > 65


def test_the_verdict_stands_beside_the_interval() -> None:
    """With the difference and its interval, from the table."""
    study = complete("intervals")
    row = tables.table(study)["rows"][0]
    low, high = (f"{100 * end:+.1f}".replace("-", "\N{MINUS SIGN}") for end in row["delta_ci95"])
    delta = f"{100 * row['delta']:+.1f}".replace("-", "\N{MINUS SIGN}")
    assert f"worse\n{delta} points [{low}, {high}]" in texts(drawn(study))


@pytest.mark.parametrize("name", plots.FIGURES)
def test_an_absent_arm_is_a_marked_gap(name: str) -> None:
    """Diverged and missing arms are in the picture, and the lines under it count their trials."""
    study = incomplete(name)
    first, second, *_, last = (arm["name"] for arm in study.plan["arms"])
    written = "\n".join(texts(drawn(study)))
    flat = written.replace("\n", " ")
    assert "diverged" in written.partition("Filled")[0]
    assert f"{first}: 0 of 5 seeds finished (5 missing)" in flat
    assert f"{second}: 3 of 5 seeds finished (2 failed)" in flat
    assert f"{last}: 0 of 5 seeds finished (5 diverged)" in flat


def test_one_seed_has_no_interval() -> None:
    """And the figure says so."""
    study = one_seed("scale")
    figure = drawn(study)
    assert any("1 seed: no interval" in text for text in texts(figure))
    vertical = [line for line in figure.axes[0].lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2]
    assert not vertical


def test_the_title_is_the_question_and_n_is_written() -> None:
    """A reader needs no caption to know what was asked and how many seeds answer."""
    written = [text.replace("\n", " ") for text in texts(drawn(complete("scale")))]
    assert complete("scale").plan["question"] in written
    assert any("mean and 95% CI over 5 seeds" in text for text in written)


def test_scale_counts_the_training_images() -> None:
    """An epoch of 1,280 images, as the trials' own records say; equal steps are said only where they are equal."""
    written = texts(drawn(complete("scale")))
    assert "10%\n1,280 images" in written
    assert "every point: 1,320 steps" in written
    study = complete("scale")
    study.trials.loc[0, "steps"] = 660
    assert "steps differ: 660 to 1,320" in texts(drawn(study))


def test_training_curves_are_a_line_a_pool_and_rate_with_the_band_of_its_seeds() -> None:
    """Means at every evaluation; the band from the lowest to the highest seed."""
    study = complete("learning-rate")
    training = drawn(study).axes[1]
    curves = [line for line in training.lines if len(line.get_xdata()) == synthetic.EVALUATIONS]
    assert len(curves) == len(training.collections) == 6
    history = study.history[study.history["arm"] == study.plan["arms"][0]["name"]]
    expected = 100 * history.groupby("step")["val_accuracy"].mean()
    assert curves[0].get_ydata() == pytest.approx(expected.to_numpy())
    band = training.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(100 * history["val_accuracy"].max())


def test_a_diverged_trial_ends_in_a_cross_and_moves_no_mean() -> None:
    """Its curve is a thin line of its own."""
    training = drawn(incomplete("learning-rate")).axes[1]
    assert sum(line.get_marker() == "x" for line in training.lines) == 5
    assert sum(line.get_linewidth() == 0.6 for line in training.lines) == 5


def test_the_baseline_is_black_and_filled_marks_are_resolved() -> None:
    """Open marks stand for what is equivalent or cannot be told."""
    study = complete("scale")
    rows = {row["arm"]: row for row in tables.table(study)["rows"]}
    ax = drawn(study).axes[0]
    marks = [line for line in ax.lines if line.get_marker() in ("D", "o") and line.get_markersize() == 5]
    marks = [line for line in marks if len(line.get_xdata()) == 1]
    filled = [to_hex(line.get_markerfacecolor()) != "#ffffff" for line in marks]
    resolved = [row["arm"] == row["baseline"] or row["verdict"] in ("better", "worse") for row in rows.values()]
    assert sum(filled) == sum(resolved)
    assert [to_hex(line.get_color()) for line in marks].count("#000000") == 3


def test_direct_labels_do_not_cover_each_other() -> None:
    """Six arms, two of them at every amount of compute."""
    study = several_factors("compute")
    for k, arm in enumerate(study.plan["arms"]):
        arm["flops"] = 1_600_000 * (1 + k // 2)
    for width in (FULL, COLUMN):
        figure = drawn(study, width)
        boxes = [text.get_window_extent() for text in figure.axes[0].findobj(Annotation)]
        assert len(boxes) == 6
        pairs = [(a, b) for k, a in enumerate(boxes) for b in boxes[:k]]
        assert all(labels.overlap(a, b) == 0 for a, b in pairs)


@pytest.mark.parametrize(
    ("most", "expected"),
    [(4.2e6, (1e6, "MFLOPs")), (17.6e9, (1e9, "GFLOPs")), (999.0, (1.0, "FLOPs")), (0.0, (1.0, "FLOPs"))],
)
def test_compute_has_the_unit_of_its_most_expensive_arm(most: float, expected: tuple[float, str]) -> None:
    """A B/16 is 17.6 GFLOPs, not 17,600 MFLOPs."""
    assert flops.flops_unit(most) == expected


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1, 2, 4], "log"),
        ([1e-4, 3e-4, 1e-3], "log"),
        ([0.1, 0.3, 1.0], "log"),
        ([4, 6, 8], "linear"),
        ([0, 1, 2, 4], "linear"),
        ([2], "linear"),
        ([1, 2], "log"),
    ],
)
def test_an_axis_is_logarithmic_where_its_values_are(values: list[float], scale: str) -> None:
    """Powers are evenly spaced by ratio, counts by difference; nothing with a zero is."""
    assert lines.scale_for(values) == scale


@pytest.mark.parametrize(
    ("value", "text"), [(0.002, "0.002"), (5e-5, "5e-5"), (8, "8"), (1320, "1,320"), ("conv", "conv"), (0.0, "0")]
)
def test_a_value_is_written_as_a_person_writes_it(value: object, text: str) -> None:
    """No 5e-05, no 8.0."""
    assert lines.plain(value) == text


def test_wrapping_loses_no_character() -> None:
    """A word longer than the line is broken, at a hyphen where there is one."""
    text = "position=a-very-long-name-without-spaces and some words after it"
    lines_of = wrapped(text, 1.0, 7.5).split("\n")
    assert len(lines_of) > 3
    assert re.sub(r"\s", "", "".join(lines_of)) == text.replace(" ", "")
    assert lines_of[0].endswith(("-", "="))
