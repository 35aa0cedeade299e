"""The figures: they show the table's numbers, name what is absent, cut nothing off and are the same every time."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
import synthetic
import yaml
from figure_studies import at_new_sizes, complete, spread
from in_process import called
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats

from ablations.cli.figures import Axis
from results import export
from results.figures import flops, frame, lines, plots
from results.figures.kinds import families
from results.figures.page import wrap_text
from results.figures.theme import COLUMN, DASHES, FULL, style
from results.load import load_studies
from results.names import AXES
from results.study_results import EVALUATION, StudyResults
from results.style import Style, use
from results.tables import study_table

STUDIES = Path(__file__).parents[3] / "ablations" / "studies"
SEVERAL = {"patch": [1, 2, 4], "pool": ["cls", "gap"], "stem": ["patch", "conv", "resnet-small"]}


def incomplete(figure: str) -> StudyResults:
    """The last arm diverged at every seed, the first was never started, of the second two seeds failed."""
    plan = complete(figure).plan
    first, second, *_, last = plan.arms
    known = synthetic.simulate(plan)
    holes = {trial.id: synthetic.hole("missing", "not started") for trial in first.trials}
    holes |= {trial.id: synthetic.hole("failed", "ValueError: boom") for trial in second.trials[:2]}
    for trial in last.trials:
        holes[trial.id] = synthetic.changed(known[trial.id], status="diverged", test_accuracy=np.nan)
    return synthetic.results(plan, holes)


def nothing_finished(figure: str) -> StudyResults:
    plan = complete(figure).plan
    ids = [trial.id for arm in plan.arms for trial in arm.trials]
    return synthetic.results(plan, dict.fromkeys(ids, synthetic.hole("missing", "not started")))


def one_seed(figure: str) -> StudyResults:
    plan = synthetic.with_arms(complete(figure).plan, lambda arm: {"trials": arm.trials[:1]})
    return synthetic.results(plan.model_copy(update={"seeds": [0]}))


def one_arm(figure: str) -> StudyResults:
    return synthetic.results(spread(synthetic.make_plan("alone", {"patch": [2]}, {"patch": 2}, figure=figure)))


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
        figure = plots.figure(study, study_table.table(study), width)
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


FAST = [(complete, FULL), (long_names, FULL)]
SLOW = [(case, FULL) for case in CASES if (case, FULL) not in FAST] + [(several_factors, COLUMN), (long_names, COLUMN)]


@pytest.mark.parametrize(
    ("case", "width"),
    [*FAST, *(pytest.param(*slow, marks=pytest.mark.slow) for slow in SLOW)],
    ids=lambda value: f"{value:g}in" if isinstance(value, float) else value.__name__,
)
@pytest.mark.parametrize("name", plots.FIGURES)
def test_every_figure_draws_every_study_and_cuts_nothing_off(
    name: str, case: Callable[[str], StudyResults], width: float
) -> None:
    """Complete or not, with any number of arms, seeds and characters: all text lies inside the figure."""
    assert_inside(drawn(case(name), width))


def assert_inside(figure: Figure) -> None:
    with style():
        page, unseen = figure.bbox, beyond_the_limits(figure)
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text() and text not in unseen:
                box = text.get_window_extent()
                inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
                assert inside, f"{text.get_text()!r} leaves the page"


@pytest.mark.parametrize(
    ("name", "format"), [("intervals", "png"), ("intervals", "pdf"), ("learning-rate", "svg"), ("families", "svg")]
)
def test_equal_results_give_equal_bytes(name: str, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file carries no date, no version, nothing of the user's own matplotlib settings."""
    first = plots.picture(complete(name), format)
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 20)
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "red")
    assert plots.picture(complete(name), format) == first
    assert matplotlib.rcParams["font.size"] == 20, "drawing leaves the user's settings alone"


@pytest.mark.slow
def test_the_order_of_a_hash_changes_nothing() -> None:
    """Another process, which orders its sets otherwise, writes the same bytes."""
    code = (
        "import sys, hashlib; sys.path[:0] = ['tests/helpers', 'tests/results/figures']; import test_plots as t; "
        "print(hashlib.sha256(t.plots.picture(t.incomplete('learning-rate'), 'svg')).hexdigest())"
    )
    digests = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        root = Path(__file__).parents[3]
        done = subprocess.run([sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


def test_a_packaged_study_asks_for_a_figure_that_there_is() -> None:
    """Every `figure:` of the studies is drawn by one of FIGURES."""
    asked = {path.stem: yaml.safe_load(path.read_text())["figure"] for path in STUDIES.glob("*.yaml")}
    assert asked
    assert set(asked.values()) <= set(plots.FIGURES), asked


def test_an_unknown_format_figure_or_axis_is_one_clear_line(tmp_path: Path) -> None:
    """It names what there is, and nothing is written."""
    with pytest.raises(ValueError, match="format=gif: one of png, pdf, svg"):
        plots.draw(complete("axis"), tmp_path / "figures" / "a.gif")
    with pytest.raises(ValueError, match="figure=pie of study alone: one of intervals"):
        plots.draw(one_arm("pie"), tmp_path / "figures" / "a.png")
    with pytest.raises(ValueError, match="x=hour: one of step, epoch, images, seconds"):
        plots.picture(complete("intervals"), "svg", x="hour")
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(("name", "begins"), [("fig.png", b"\x89PNG"), ("new/fig.pdf", b"%PDF"), ("fig.SVG", b"<?xml")])
def test_out_may_be_the_file_of_one_figure(
    name: str, begins: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its suffix says how it is drawn; a folder's name is still a folder's."""
    runs = tmp_path / "runs"
    synthetic.write(runs, synthetic.position())
    status, output, errors = called(monkeypatch, "plot", "--runs", str(runs), "--out", str(tmp_path / name))
    assert errors == ""
    assert (status, output.strip()) == (0, str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(begins)
    called(monkeypatch, "plot", "--runs", str(runs), "--out", str(tmp_path / "v1.2"))
    assert [path.name for path in (tmp_path / "v1.2").iterdir()] == ["position-embedding@digits.png"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("plot patch-size --out fig.pdf --format png", "--out fig.pdf and --format png"),
        ("plot patch-size --out fig.gif", "--out fig.gif: no figure is drawn as .gif: give one of png, pdf, svg"),
        ("plot patch-size --out fig.tar.gz", "--out fig.tar.gz: no figure is drawn as .gz"),
        ("plot --out fig.png", "--out fig.png: one file for 2 studies"),
        ("inspect patch-size --out fig.png", "--out fig.png: several figures go to a folder"),
    ],
)
def test_a_file_that_cannot_be_drawn_is_one_line(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another format than asked for, one of nobody's, or one file for several figures: status 2, nothing written."""
    runs = tmp_path / "runs"
    for plan in (synthetic.patch_size(), synthetic.position()):
        synthetic.write(runs, plan)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    status, _, errors = called(monkeypatch, *words.split(), "--runs", str(runs))
    assert (status, message in errors, errors.count("\n")) == (2, True, 1)
    assert not list((tmp_path / "here").iterdir())


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
    row = study_table.table(study).rows[0]
    low, high = (f"{100 * end:+.1f}".replace("-", "\N{MINUS SIGN}") for end in row.delta_ci95)
    delta = f"{100 * row.delta:+.1f}".replace("-", "\N{MINUS SIGN}")
    assert f"worse\n{delta} points [{low}, {high}]" in texts(drawn(study))


@pytest.mark.parametrize("name", plots.FIGURES)
def test_an_absent_arm_is_a_marked_gap(name: str) -> None:
    """Diverged and missing arms are in the picture, and the lines under it count their trials; nothing is cut off."""
    study = incomplete(name)
    first, second, *_, last = (arm.name for arm in study.plan.arms)
    figure = drawn(study, COLUMN)
    assert_inside(figure)
    written = "\n".join(texts(figure))
    flat = written.replace("\n", " ")
    assert "diverged" in written.partition("Filled")[0]
    assert f"{first}: 0 of 5 seeds finished (5 missing)" in flat
    assert f"{second}: 3 of 5 seeds finished (2 failed)" in flat
    assert f"{last}: 0 of 5 seeds finished (5 diverged)" in flat


def two_curves(first: list[float], second: list[float]) -> Axes:
    """A scale figure of two stems whose five seeds are spread around these means, in %."""
    plan = synthetic.make_plan(
        "two", {"stem": ["patch", "conv"]}, {"stem": "patch"}, curves={"data_fraction": [0.1, 0.3, 1.0]}, figure="scale"
    )
    means = {
        "patch": dict(zip((0.1, 0.3, 1.0), first, strict=True)),
        "conv": dict(zip((0.1, 0.3, 1.0), second, strict=True)),
    }
    accuracies = {
        arm["name"]: [
            means[arm["values"]["stem"]][arm["values"]["data_fraction"]] / 100 + 0.005 * k for k in range(-2, 3)
        ]
        for arm in plan["arms"]
    }
    return drawn(synthetic.results(plan, synthetic.from_accuracies(plan, accuracies))).axes[0]


def test_a_line_that_is_above_another_looks_above_it() -> None:
    """On a steep curve a line that is moved along to its mark may not: it stays at the true places."""
    ax = two_curves([40, 70, 90], [41, 71, 91])
    black, blue = (line for line in ax.lines if list(line.get_xdata()) == [0.1, 0.3, 1.0])
    assert black.get_transform() == blue.get_transform() == ax.transData
    assert list(blue.get_ydata() - black.get_ydata()) == pytest.approx([1, 1, 1])


def test_the_dashed_line_is_the_baseline_of_all_arms_or_not_drawn() -> None:
    """Of two baselines, one of them yet to finish, the line of the other would be read as everybody's."""
    plan = synthetic.make_plan(
        "two", {"stem": ["patch", "conv"]}, {"stem": "patch"}, curves={"data_fraction": [0.1, 1.0]}, figure="intervals"
    )
    trials = next(arm for arm in plan["arms"] if arm["name"] == "stem=patch,data_fraction=0.1")["trials"]
    holes = {trial["id"]: synthetic.hole("missing", "not started") for trial in trials}
    for study, line in ((synthetic.results(plan, holes), False), (complete("intervals"), True)):
        figure = drawn(study)
        dashed = [
            one for one in figure.axes[0].lines if len(set(one.get_xdata())) == 1 and list(one.get_ydata()) == [0, 1]
        ]
        assert (len(dashed) == 1) == line
        assert ("dashed line: baseline" in " ".join(texts(figure)).replace("\n", " ")) == line
        assert ("Diamonds: baselines, each of the arms at" in " ".join(texts(figure)).replace("\n", " ")) != line


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
    assert complete("scale").plan.question in written
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
    """Means at every evaluation; the band is SciPy's t interval over the seeds."""
    study = complete("learning-rate")
    training = drawn(study).axes[1]
    curves = [line for line in training.lines if len(line.get_xdata()) == synthetic.EVALUATIONS]
    assert len(curves) == len(training.collections) == 6
    history = study.history[study.history["arm"] == study.plan.arms[0].name]
    by_step = 100 * history.pivot_table(index="step", columns="seed", values="val_accuracy")
    assert curves[0].get_ydata() == pytest.approx(by_step.mean(axis=1).to_numpy())
    last = by_step.iloc[-1]
    band = training.collections[0].get_paths()[0].vertices
    at_the_end = band[band[:, 0] == synthetic.STEPS][:, 1]
    interval = stats.t.interval(0.95, 4, last.mean(), stats.sem(last))
    assert (at_the_end.min(), at_the_end.max()) == pytest.approx(interval)


def evaluated_once(name: str) -> StudyResults:
    study = complete(name)
    step = EVALUATION.index("step")
    return replace(study, evaluations=[line for line in study.evaluations if line[step] == synthetic.STEPS])


def test_of_trials_evaluated_once_there_is_no_panel_over_training() -> None:
    """A panel without a line would stay empty; the rest of the figure is there, and none is promised below it."""
    figure = drawn(evaluated_once("learning-rate"))
    assert len(figure.axes) == 1
    assert "learning rate, log scale" in texts(figure)
    assert not any("95% t interval" in text or "over training" in text for text in texts(figure))
    assert len(drawn(complete("learning-rate")).axes) == 2


def test_a_diverged_trial_ends_in_a_cross_and_moves_no_mean() -> None:
    """Its curve is a thin line of its own."""
    training = drawn(incomplete("learning-rate")).axes[1]
    assert sum(line.get_marker() == "x" for line in training.lines) == 5
    assert sum(line.get_linewidth() == 0.6 for line in training.lines) == 5


def going_on(plan: dict[str, Any], reached: dict[int, int]) -> StudyResults:
    """The first arm of a plan is still in training: seed -> evaluations so far."""
    known = synthetic.simulate(plan)
    for trial in plan["arms"][0]["trials"]:
        record = known[trial["id"]]
        history = record.history[: reached[trial["seed"]]]
        known[trial["id"]] = replace(record, values={"status": "running", "reason": "running"}, history=history)
    return synthetic.results(plan, known)


def test_arms_without_an_evaluation_are_named_below_training_curves() -> None:
    """Their lines would be missed otherwise; where there is no line at all, the panel says so."""
    study = complete("curves")
    arm = study.plan.arms[0].name
    without = replace(study, evaluations=[row for row in study.evaluations if row[EVALUATION.index("arm")] != arm])
    said = f"No line, as no trial was evaluated: {arm}."
    for name in ("curves", "learning-rate"):
        assert said in plots.caption(replace(without, plan=without.plan.model_copy(update={"figure": name})))
    assert not any(
        "No line" in line for case in (study, replace(study, evaluations=[])) for line in plots.caption(case)
    )


def curve_axes(study: StudyResults, x: str = "step") -> Axes:
    with style():
        figure = plots.figure(study, study_table.table(study), FULL, x=x)
        figure.draw_without_rendering()
    return figure.axes[0]


def test_an_arm_in_training_shows_every_seed_and_their_mean_as_far_as_all_have_come() -> None:
    """Not beyond: the mean of those that are ahead is not that of all."""
    study = going_on(synthetic.position(), {0: 3, 1: 5, 2: 4, 3: 3, 4: 8})
    ax = curve_axes(study)
    colour = to_hex(next(line for line in ax.lines if line.get_linewidth() == 0.6).get_color())
    own = [line for line in ax.lines if to_hex(line.get_color()) == colour and len(line.get_xdata())]
    assert [len(line.get_xdata()) for line in own] == [3, 3, 5, 4, 3, 8]
    history = study.history[study.history["arm"] == "position=none"]
    expected = 100 * history[history["step"] <= 396].groupby("step")["val_accuracy"].mean()
    assert own[0].get_ydata() == pytest.approx(expected.to_numpy())


@pytest.mark.parametrize(
    ("x", "last", "label"),
    [
        ("step", 1320, "training step"),
        ("epoch", 33, "epochs of training"),
        ("images", 42240, "training images"),
        ("seconds", 9, "training time (seconds)"),
    ],
)
def test_curves_are_drawn_over_steps_epochs_images_or_seconds(x: str, last: float, label: str) -> None:
    """Whatever the study's own figure is."""
    ax = curve_axes(complete("intervals"), x)
    assert ax.get_xlabel() == label
    assert max(line.get_xdata()[-1] for line in ax.lines if len(line.get_xdata())) == pytest.approx(last)


def test_the_command_offers_every_axis_that_curves_have() -> None:
    """In its help, and nothing else."""
    assert [axis.value for axis in Axis] == list(AXES)


def test_seconds_of_unequal_machines_are_told_of() -> None:
    """One trial took four times as long as others of the same FLOPs; over steps it does not matter."""
    study = complete("curves")
    said = "in trials of equal FLOPs"
    with style():
        assert said not in " ".join(texts(plots.figure(study, study_table.table(study), FULL, x="seconds")))
        slow = (study.history["arm"] == study.plan.arms[0].name) & (study.history["seed"] == 2)
        step = (study.history["seconds"] / study.history["step"]).iloc[0]
        study.history.loc[slow, "seconds"] *= 4
        written = " ".join(texts(plots.figure(study, study_table.table(study), FULL, x="seconds"))).replace("\n", " ")
        assert f"a step took {step:.2g} to {4 * step:.2g} s {said}" in written
        assert said not in " ".join(texts(plots.figure(study, study_table.table(study), FULL, x="step")))


def test_without_validation_the_curves_are_of_the_training_loss() -> None:
    """Nothing else is known during training."""
    study = complete("curves")
    study.history[["val_accuracy", "val_loss"]] = np.nan
    assert curve_axes(study).get_ylabel() == "train loss"


def test_an_export_gives_the_same_bytes_as_the_runs(tmp_path: Path) -> None:
    """Figures and curves, of trials that are not finished too, from one file without the run directory."""
    runs = synthetic.write(tmp_path / "runs", synthetic.pooling(), {})
    synthetic.write(runs, synthetic.position(), position_with_holes())
    export.write(load_studies(runs), tmp_path / "all.parquet")
    for mine, theirs in zip(load_studies(runs), load_studies(tmp_path / "all.parquet"), strict=True):
        assert plots.picture(mine, "svg") == plots.picture(theirs, "svg")


def position_with_holes() -> dict[str, Any]:
    """One failed after a while, one was never started."""
    plan = synthetic.position()
    failed, missing = (synthetic.trial_id(plan, "position=2d", seed) for seed in (0, 1))
    known = synthetic.simulate(plan)[failed]
    values = known.values | {"status": "failed", "reason": "ValueError: boom"}
    stopped = replace(known, values=values, history=known.history[:4], correct=None)
    return {failed: stopped, missing: synthetic.hole("missing", "not started")}


def test_each_family_is_fitted_where_it_was_measured_and_says_how_steep() -> None:
    """The curve passes where SciPy's fits of the seeds do on average, and ends at the smallest and largest size."""
    study = complete("families")
    figure = drawn(study)
    fitted = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 40]
    assert len(fitted) == 2
    trials = study.trials.assign(
        compute=study.trials["arm"].map({arm.name: arm.train_flops for arm in study.plan.arms}),
        family=study.trials["arm"].map({arm.name: arm.model_family for arm in study.plan.arms}),
    )
    for line, family in zip(fitted, ("ViT", "hybrid"), strict=True):
        own = trials[trials["family"] == family]
        counted = [one for _, one in own[own["test_accuracy"] < 1].groupby("seed") if len(one) >= families.MIN_SIZES]
        ends = [max(one["compute"].min() for one in counted), min(one["compute"].max() for one in counted)]
        assert [line.get_xdata()[0], line.get_xdata()[-1]] == pytest.approx([end / 1e12 for end in ends])
        laws = [
            stats.linregress(np.log(seed["compute"]), np.log(1 - seed["test_accuracy"]))
            for _, seed in own[own["test_accuracy"] < 1].groupby("seed")  # no error has no logarithm
            if len(seed) >= families.MIN_SIZES
        ]
        expected = [100 * (1 - np.mean([np.exp(law.intercept) * end**law.slope for law in laws])) for end in ends]
        assert [line.get_ydata()[0], line.get_ydata()[-1]] == pytest.approx(expected)
        slope = f"{np.mean([-law.slope for law in laws]):.2f}"
        assert f"{family} {slope} [" in " ".join(texts(figure)).replace("\n", " ")
    assert "No fit, fewer than 3 seeds with 4 sizes: ResNet." in " ".join(texts(figure)).replace("\n", " ")


def perfect(study: StudyResults, seeds: int, arms: int) -> StudyResults:
    """The first arms of the first family make no error at the first seeds."""
    own = [arm.name for arm in study.plan.arms if arm.model_family == "ViT"][:arms]
    study.trials.loc[study.trials["arm"].isin(own) & (study.trials["seed"] < seeds), "test_accuracy"] = 1.0
    return study


def test_a_fit_of_few_seeds_says_so_and_one_of_fewer_than_three_is_not_drawn() -> None:
    """And what has no logarithm is counted."""
    base = complete("families")
    base.trials["test_accuracy"] = base.trials["test_accuracy"].clip(upper=0.99)
    sizes = sum(arm.model_family == "ViT" for arm in base.plan.arms)
    for seeds, curves_drawn in ((1, 2), (3, 1)):
        study = perfect(base, seeds, sizes - 3)
        figure = drawn(study)
        written = " ".join(texts(figure)).replace("\n", " ")
        assert sum(len(line.get_xdata()) == 40 for line in figure.axes[0].lines) == curves_drawn
        assert ("(4 of 5 seeds)" in written) == (seeds == 1)
        assert ("No fit, fewer than 3 seeds with 4 sizes: ViT, ResNet." in written) == (seeds == 3)
        count = seeds * (sizes - 3)
        assert f"an error of 0 has no logarithm: {count} trial" in written


def test_training_compute_of_an_old_plan_is_counted_from_its_config() -> None:
    """3 x the FLOPs of a forward pass x the images of all steps, as the plan would say today."""
    arm = complete("families").plan.arms[0]
    old = arm.model_copy(update={"train_flops": None, "config": arm.config | {"steps": 1320, "batch": 32}})
    assert families.training_flops(old) == families.training_flops(arm) == 3 * 400_000 * 1320 * 32


def test_every_way_of_growing_meets_the_baseline_at_relative_compute_one() -> None:
    """A line for each factor and one for arms that grow in several, over FLOPs divided by the baseline's."""
    study = complete("shape")
    ax = drawn(study).axes[0]
    ways = [line for line in ax.lines if len(line.get_xdata()) > 2 and line.get_linestyle() != "None"]
    assert len(ways) == 5
    rows = {row.arm: row for row in study_table.table(study).rows}
    base = rows[study.plan.baseline]
    for line in ways:
        at = list(line.get_xdata()).index(1.0)
        assert line.get_ydata()[at] == pytest.approx(100 * base.mean)
    depth = {row.flops / base.flops: 100 * row.mean for name, row in rows.items() if name.startswith("depth=")}
    drawn_depth = dict(zip(ways[0].get_xdata(), ways[0].get_ydata(), strict=True))
    assert drawn_depth == pytest.approx(depth | {1.0: 100 * base.mean})
    assert ax.get_legend_handles_labels()[1] == ["depth", "width", "width of the MLP", "patch size", "baseline", "all"]


def test_few_shot_accuracy_stands_beside_the_metric_without_verdicts() -> None:
    """Where the trials have it: the family of tests is of the study's own metric."""
    study = complete("scale")
    study = replace(study, plan=study.plan.model_copy(update={"evals": ["fewshot"]}))
    assert len(drawn(study).axes) == 1
    fewer = [accuracy - 0.2 for accuracy in study.columns["test_accuracy"]]
    study = replace(study, columns=study.columns | {"fewshot5_accuracy": fewer})
    left, right = drawn(study).axes
    assert right.get_ylabel() == "5-shot accuracy (%)"

    def of(ax: Axes) -> tuple[list[Any], list[str]]:
        line = next(line for line in ax.lines if len(line.get_xdata()) == 3)
        marks = [m for m in ax.lines if m.get_marker() == "o" and m.get_markersize() == 5 and len(m.get_xdata()) == 1]
        return list(line.get_ydata()), [to_hex(mark.get_markerfacecolor()) for mark in marks]

    assert of(right)[0] == pytest.approx([value - 20 for value in of(left)[0]])
    assert set(of(right)[1]) == {"#ffffff"}
    assert len(drawn(study, COLUMN).axes) == 2


@pytest.mark.parametrize("width", [FULL, COLUMN])
def test_accuracy_at_new_sizes_stands_beside_that_at_the_size_of_training(width: float) -> None:
    """A line an arm over all sizes, with the means of the trials; that nothing is known at a size is a gap there."""
    study = at_new_sizes()
    figure = drawn(study, width)
    ax = figure.axes[0]
    lines = [line for line in ax.lines if list(line.get_xdata()) == [8, 16, 32]]
    means = 100 * study.trials.groupby("arm", sort=False)["test_accuracy"].mean()
    assert [line.get_ydata()[0] for line in lines] == pytest.approx(list(means))
    assert [line.get_ydata()[1] for line in lines] == pytest.approx(list(means - 20))
    assert all(np.isnan(line.get_ydata()[2]) for line in lines)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["8\n(trained)", "16", "32"]
    assert ax.get_ylabel() == "test accuracy (%)"
    assert texts(figure).count("missing") == 4


def test_every_value_of_a_packaged_axis_has_dashes_of_its_own() -> None:
    """Over training a rate is known by its dashes alone."""
    recipes = [yaml.safe_load(path.read_text()) for path in (STUDIES.parent / "recipes").glob("*.yaml")]
    longest = max(len(values) for recipe in recipes for values in recipe.get("axes", {}).values())
    assert len(set(DASHES)) == len(DASHES) >= longest


@pytest.mark.parametrize("name", ["intervals", "compute", "scale", "axis"])
def test_a_tuned_study_is_drawn_at_each_arm_s_own_value(name: str) -> None:
    """The numbers are those of the table's tuned rows, not those of every point of the grid."""
    study = synthetic.results(synthetic.tuned_pooling(figure=name))
    rows = {row.arm: row for row in study_table.table(study).rows if "tuned" in row.arm}
    written = " ".join(texts(drawn(study)))
    assert len(rows) == 2
    assert "0.001" not in written
    assert plots.picture(study, "svg") == plots.picture(study, "svg")
    if name == "intervals":
        means = [line.get_xdata()[0] for line in drawn(study).axes[0].lines if len(line.get_xdata()) == 1]
        assert means == pytest.approx([100 * row.mean for row in rows.values()])
        assert "pool=gap, lr=tuned" in written.replace("\n", " ")


def at_rates_of_their_own() -> StudyResults:
    """A tuned study in which the class token is best at 0.002 and averaging at 0.001, for every seed."""
    plan = synthetic.tuned_pooling()
    best = {"pool=cls,lr=0.002": 0.95, "pool=gap,lr=0.001": 0.94}
    spread = [0.002 * seed for seed in range(5)]
    accuracies = {arm["name"]: [best.get(arm["name"], 0.7) + more for more in spread] for arm in plan["arms"]}
    return synthetic.results(plan, synthetic.from_accuracies(plan, accuracies))


@pytest.mark.parametrize("x", [None, "epoch"])
def test_over_training_a_tuned_study_shows_each_arm_at_its_own_rate_and_at_the_baseline_s(x: str | None) -> None:
    """The three lines of Figure 9, with bands, named by their rates; all others are left to the panel beside it."""
    study = at_rates_of_their_own()
    ax = drawn(study).axes[1] if x is None else curve_axes(study, x)
    handles, named = ax.get_legend_handles_labels()
    entries = zip(named, handles, strict=True)
    blue, black = "#0072b2", "#000000"
    assert {name: (to_hex(handle.get_color()), handle.get_linestyle()) for name, handle in entries} == {
        "cls, lr=0.002": (black, "-"),
        "gap, lr=0.001": (blue, "-"),
        "gap, lr=0.002": (blue, "--"),
    }
    assert len(ax.collections) == 3
    ends = sorted(line.get_ydata()[-1] for line in ax.lines if len(line.get_xdata()) == synthetic.EVALUATIONS)
    assert ends == pytest.approx([70.4, 94.4, 95.4])


def test_before_a_rate_can_be_chosen_all_are_drawn_over_training() -> None:
    """No seed has the whole grid yet: nothing is anybody's own."""
    plan = synthetic.tuned_pooling()
    rest = [trial["id"] for arm in plan["arms"] if arm["values"]["lr"] == 0.004 for trial in arm["trials"]]
    study = synthetic.results(plan, dict.fromkeys(rest, synthetic.hole("missing", "not started")))
    ax = drawn(study).axes[1]
    assert ax.get_legend_handles_labels()[1] == ["0.001", "0.002", "0.004"]
    assert [len(line.get_xdata()) for line in ax.lines].count(synthetic.EVALUATIONS) == 4


TWO = Style(palette=("#4477AA", "#EE6677"))


@pytest.mark.parametrize("chosen", [Style(), TWO, Style(colours={"pool=k1": "#0072B2", "pool=k7": "#000000"})])
def test_no_two_series_look_alike(chosen: Style) -> None:
    """More of them than colours: those of one colour have other marks, and other dashes."""
    names = [f"pool=k{k}" for k in range(13)]
    rows = pd.DataFrame({"series": names, "reference": [name == "pool=k3" for name in names]})
    with use(chosen):
        found = lines.series_styles(rows).values()
    assert len({(look.colour, look.marker) for look in found}) == 13
    assert len({(look.colour, str(look.dash)) for look in found}) == 13
    assert [look.marker for look in found].count("D") == 1


def test_arms_that_change_several_settings_are_lines_of_their_own() -> None:
    """Their values of the factors are those of the baseline: a line by these would join what is not alike."""
    plan = synthetic.dataset_scale()
    for point in [arm for arm in plan["arms"] if arm["name"] == arm["baseline"]]:
        config = point["config"] | {"width": 16}
        synthetic.add_arm(
            plan,
            f"half,data_fraction={point['values']['data_fraction']}",
            config,
            change="half",
            values=point["values"],
            baseline=point["name"],
        )
    ax = drawn(synthetic.results(plan)).axes[0]
    assert ax.get_legend_handles_labels()[1] == ["patch (baseline)", "conv", "half"]
    assert [len(line.get_xdata()) for line in ax.lines].count(3) == 3


def test_the_baseline_is_black_and_filled_marks_are_resolved() -> None:
    """Open marks stand for what is equivalent or cannot be told."""
    study = complete("scale")
    rows = {row.arm: row for row in study_table.table(study).rows}
    ax = drawn(study).axes[0]
    marks = [line for line in ax.lines if line.get_marker() in ("D", "o") and line.get_markersize() == 5]
    marks = [line for line in marks if len(line.get_xdata()) == 1]
    filled = [to_hex(line.get_markerfacecolor()) != "#ffffff" for line in marks]
    resolved = [row.arm == row.baseline or row.verdict in ("better", "worse") for row in rows.values()]
    assert sum(filled) == sum(resolved)
    assert [to_hex(line.get_color()) for line in marks].count("#000000") == 3


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
    ("value", "text"), [(0.0004, "0.0004"), (5e-5, "5e-5"), (8, "8"), (1320, "1,320"), ("conv", "conv"), (0.0, "0")]
)
def test_a_value_is_written_as_a_person_writes_it(value: object, text: str) -> None:
    """No 5e-05, no 8.0."""
    assert lines.value_text(value) == text


def test_wrapping_loses_no_character() -> None:
    """A word longer than the line is broken, at a hyphen where there is one."""
    text = "position=a-very-long-name-without-spaces and some words after it"
    lines_of = wrap_text(text, 1.0, 7.5).split("\n")
    assert len(lines_of) > 3
    assert re.sub(r"\s", "", "".join(lines_of)) == text.replace(" ", "")
    assert lines_of[0].endswith(("-", "="))


def test_a_series_of_several_factors_is_named_by_its_factor() -> None:
    """ "0.3" alone would be two lines; of a single factor the value is enough."""
    factors = {"weight_decay": [0.05, 0.3], "dropout": [0.0, 0.3]}
    curves = {"data_fraction": [0.1, 1.0]}
    plan = synthetic.make_plan("regularization", factors, {"weight_decay": 0.05, "dropout": 0.0}, curves=curves)
    study = synthetic.results(plan)
    assert {"weight_decay=0.3", "dropout=0.3"} <= set(frame.arms_frame(study, study_table.table(study))["line"])
    alone = synthetic.results(synthetic.dataset_scale())
    assert set(frame.arms_frame(alone, study_table.table(alone))["line"]) == {"patch", "conv"}
