"""Figures of studies: they show the table's numbers, name what is absent, cut nothing off and never vary."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import synthetic
import yaml
from figure_studies import at_new_sizes, complete, spread
from in_process import called, refused
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from scipy import stats

from results.figures import axes, frame, kinds, lines, study_figure
from results.figures.kinds import families
from results.figures.page import wrap_text
from results.figures.theme import DASHES, apply_style
from results.names import AXES
from results.study_results import EVALUATION, StudyResults
from results.style import COLUMN, FULL, Style, use_style
from results.tables import study_table

RECIPES = Path(__file__).parents[3] / "ablations" / "recipes"
SEVERAL = {"patch": [1, 2, 4], "pool": ["cls", "gap"], "stem": ["patch", "conv", "resnet-small"]}


def incomplete(figure: str) -> StudyResults:
    """Return a study whose last arm diverged, whose first never started, and of whose second two seeds failed."""
    plan = complete(figure).plan
    first, second, *_, last = plan.arms
    known = synthetic.simulate(plan)
    holes = {trial.id: synthetic.hole("missing", "not started") for trial in first.trials}
    holes |= {trial.id: synthetic.hole("failed", "ValueError: boom") for trial in second.trials[:2]}
    for trial in last.trials:
        holes[trial.id] = synthetic.changed(known[trial.id], status="diverged", test_accuracy=np.nan)
    return synthetic.results(plan, holes)


def nothing_finished(figure: str) -> StudyResults:
    return synthetic.untrained(complete(figure).plan)


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
    factors = {"position": kinds, "position_at": ["input", "every-layer-and-shared"]}
    baseline = {"position": "none", "position_at": "input"}
    question = "Does a $ sign, an <b> or a question that is longer than any line break the picture? " * 2
    return synthetic.results(spread(synthetic.make_plan("long", factors, baseline, question=question, figure=figure)))


def loss(figure: str) -> StudyResults:
    curves = {"lr": [5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 3e-3, 4e-3]}
    pool = {"pool": ["cls", "gap"]}
    plan = synthetic.make_plan("loss", pool, {"pool": "cls"}, curves=curves, metric="test_loss", figure=figure)
    return synthetic.results(spread(plan))


CASES = [complete, incomplete, nothing_finished, one_seed, one_arm, several_factors, long_names, loss]


def draw_figure(study: StudyResults, width: float = FULL, x: str | None = None) -> Figure:
    with apply_style():
        figure = study_figure.figure(study, width, x=x)
        figure.draw_without_rendering()
    return figure


@cache
def usual_figure(kind: str) -> Figure:
    return draw_figure(complete(kind))


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


def words(figure: Figure) -> str:
    return " ".join(texts(figure)).replace("\n", " ")


def lines_of(ax: Axes, points: int) -> list[Line2D]:
    return [line for line in ax.lines if len(line.get_xdata()) == points]


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
    code = "import sys; from results.figures import kinds; print(*kinds.FIGURES); sys.exit('matplotlib' in sys.modules)"
    names = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    folder = Path(kinds.__file__).parent
    assert names == sorted(path.stem.replace("_", "-") for path in folder.glob("[a-z]*.py"))


SLOW = [(case, FULL) for case in CASES if case is not long_names] + [(several_factors, COLUMN), (long_names, COLUMN)]


@pytest.mark.parametrize(
    ("case", "width"),
    [(long_names, FULL), *(pytest.param(*slow, marks=pytest.mark.slow) for slow in SLOW)],
    ids=lambda value: f"{value:g}in" if isinstance(value, float) else value.__name__,
)
@pytest.mark.parametrize("name", kinds.FIGURES)
def test_every_figure_draws_every_study_and_cuts_nothing_off(
    name: str, case: Callable[[str], StudyResults], width: float
) -> None:
    assert_inside(draw_figure(case(name), width))


@pytest.mark.parametrize("name", kinds.FIGURES)
def test_an_absent_arm_is_a_marked_gap(name: str) -> None:
    study = incomplete(name)
    first, second, *_, last = (arm.name for arm in study.plan.arms)
    figure = draw_figure(study, COLUMN)
    assert_inside(figure)
    assert "diverged" in words(figure).partition("Filled")[0]
    assert f"{first}: 0 of 5 seeds finished (5 missing)" in words(figure)
    assert f"{second}: 3 of 5 seeds finished (2 failed)" in words(figure)
    assert f"{last}: 0 of 5 seeds finished (5 diverged)" in words(figure)


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
        "import sys, hashlib; sys.path += ['tests/helpers', 'tests/results/figures']; import test_study_figure as t; "
        "print(hashlib.sha256(t.study_figure.picture(t.incomplete('learning-rate'), 'svg')).hexdigest())"
    )
    command, root = [sys.executable, "-c", code], Path(__file__).parents[3]
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    assert len({subprocess.check_output(command, cwd=root, env=one) for one in environments}) == 1


def test_an_unknown_format_figure_or_axis_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="format=gif: one of png, pdf, svg"):
        study_figure.draw(complete("axis"), tmp_path / "figures" / "a.gif")
    with pytest.raises(ValueError, match="figure=pie of study alone: one of axis, compute"):
        study_figure.draw(one_arm("pie"), tmp_path / "figures" / "a.png")
    with pytest.raises(ValueError, match="x=hour: one of step, epoch, images, seconds"):
        study_figure.picture(complete("intervals"), "svg", x="hour")
    assert not (tmp_path / "figures").exists()
    offered = ", ".join(map(repr, AXES))
    assert f"'hour' is not one of {offered} (" in refused(monkeypatch, "plot", "--x", "hour")


def test_out_may_be_the_file_of_one_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = str(synthetic.write(tmp_path / "runs", synthetic.position()))
    for name, begins in {"fig.png": b"\x89PNG", "new/fig.pdf": b"%PDF", "fig.SVG": b"<?xml"}.items():
        status, output, errors = called(monkeypatch, "plot", "--runs", runs, "--out", str(tmp_path / name))
        assert (status, output.strip(), errors) == (0, str(tmp_path / name), "")
        assert (tmp_path / name).read_bytes().startswith(begins)
    called(monkeypatch, "plot", "--runs", runs, "--out", str(tmp_path / "v1.2"))
    assert [path.name for path in (tmp_path / "v1.2").iterdir()] == ["position-embedding@digits.png"]


def test_a_file_that_cannot_be_drawn_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert message in refused(monkeypatch, *asked.split(), "--runs", str(tmp_path / "runs"))
    assert not list((tmp_path / "here").iterdir())


def test_intervals_are_those_of_scipy() -> None:
    rows = usual_figure("intervals").axes[0]
    bars = [line.get_xdata() for line in lines_of(rows, 2) if line.get_linewidth() == 1.8]
    means = [line.get_xdata()[0] for line in lines_of(rows, 1)]
    trials = complete("intervals").trials
    for bar, mean, (_, values) in zip(bars, means, trials.groupby("arm", sort=False), strict=True):
        seeds = 100 * values["test_accuracy"]
        assert mean == pytest.approx(seeds.mean())
        expected = stats.t.interval(0.95, len(seeds) - 1, seeds.mean(), stats.sem(seeds))
        assert list(bar) == pytest.approx(list(expected))


def test_the_verdict_stands_beside_the_interval_and_published_numbers_on_another_axis() -> None:
    row = study_table.table(complete("intervals")).rows[0]
    delta, low, high = (f"{100 * value:+.1f}".replace("-", "\N{MINUS SIGN}") for value in (row.delta, *row.delta_ci95))
    assert f"worse\n{delta} points [{low}, {high}]" in texts(usual_figure("intervals"))
    ours, published = usual_figure("intervals").axes
    assert [line.get_xdata()[0] for line in published.lines] == pytest.approx([61.382, 64.206, 64.001, 64.032])
    assert "another setting" in published.get_title(loc="left")
    assert min(min(line.get_xdata()) for line in ours.lines) > 65


def test_a_line_that_is_above_another_looks_above_it() -> None:
    plan, means = synthetic.dataset_scale(), {0.1: 0.40, 0.3: 0.70, 1.0: 0.90}
    accuracies = {}
    for arm in plan["arms"]:
        mean = means[arm["values"]["data_fraction"]] + 0.01 * (arm["values"]["stem"] == "conv")
        accuracies[arm["name"]] = [mean + 0.005 * k for k in range(-2, 3)]
    ax = draw_figure(synthetic.results(plan, synthetic.from_accuracies(plan, accuracies))).axes[0]
    black, blue = lines_of(ax, 3)
    assert black.get_transform() == blue.get_transform() == ax.transData
    assert list(blue.get_ydata() - black.get_ydata()) == pytest.approx([1, 1, 1])


def test_the_dashed_line_is_the_baseline_of_all_arms_or_not_drawn() -> None:
    plan = synthetic.dataset_scale(figure="intervals")
    ids = [synthetic.trial_id(plan, "stem=patch,data_fraction=0.1", seed) for seed in range(5)]
    two = synthetic.results(plan, dict.fromkeys(ids, synthetic.hole("missing", "not started")))
    for figure, line in ((draw_figure(two), False), (usual_figure("intervals"), True)):
        upright = [one for one in lines_of(figure.axes[0], 2) if list(one.get_ydata()) == [0, 1]]
        assert (len(upright) == 1) == line
        assert ("dashed line: baseline" in words(figure)) == line
        assert ("Diamonds: baselines, each of the arms at" in words(figure)) != line


def test_a_figure_says_what_was_asked_and_counts_seeds_images_and_steps() -> None:
    written = texts(usual_figure("scale"))
    assert complete("scale").plan.question in words(usual_figure("scale"))
    assert "mean and 95% CI over 5 seeds" in words(usual_figure("scale"))
    assert {"10%\n1,280 images", "every point: 1,320 steps"} <= set(written)
    study = complete("scale")
    study.trials.loc[0, "steps"] = 660
    assert "steps differ: 660 to 1,320" in texts(draw_figure(study))


def test_training_curves_are_a_line_a_pool_and_rate_with_the_band_of_its_seeds() -> None:
    study, training = complete("learning-rate"), usual_figure("learning-rate").axes[1]
    curves = lines_of(training, synthetic.EVALUATIONS)
    assert len(curves) == len(training.collections) == 6
    history = study.history[study.history["arm"] == study.plan.arms[0].name]
    by_step = 100 * history.pivot_table(index="step", columns="seed", values="val_accuracy")
    assert curves[0].get_ydata() == pytest.approx(by_step.mean(axis=1).to_numpy())
    last = by_step.iloc[-1]
    band = training.collections[0].get_paths()[0].vertices
    at_the_end = band[band[:, 0] == synthetic.STEPS][:, 1]
    interval = stats.t.interval(0.95, 4, last.mean(), stats.sem(last))
    assert (at_the_end.min(), at_the_end.max()) == pytest.approx(interval)


def test_of_trials_evaluated_once_there_is_no_panel_over_training() -> None:
    study, step = complete("learning-rate"), EVALUATION.index("step")
    once = [line for line in study.evaluations if line[step] == synthetic.STEPS]
    figure = draw_figure(replace(study, evaluations=once))
    assert (len(figure.axes), len(usual_figure("learning-rate").axes)) == (1, 2)
    assert "learning rate, log scale" in texts(figure)
    assert not any(said in words(figure) for said in ("95% t interval", "over training"))


def test_a_diverged_trial_ends_in_a_cross_and_moves_no_mean() -> None:
    training = draw_figure(incomplete("learning-rate")).axes[1]
    assert sum(line.get_marker() == "x" for line in training.lines) == 5
    assert sum(line.get_linewidth() == 0.6 for line in training.lines) == 5


def test_arms_without_an_evaluation_are_named_below_training_curves() -> None:
    study = complete("curves")
    arm = study.plan.arms[0].name
    without = replace(study, evaluations=[row for row in study.evaluations if row[EVALUATION.index("arm")] != arm])
    said = f"No line, as no trial was evaluated: {arm}."
    for name in ("curves", "learning-rate"):
        assert said in study_figure.caption(replace(without, plan=without.plan.model_copy(update={"figure": name})))
    for case in (study, replace(study, evaluations=[])):
        assert not any("No line" in line for line in study_figure.caption(case))


def test_an_arm_in_training_shows_every_seed_and_their_mean_as_far_as_all_have_come() -> None:
    plan, reached = synthetic.position(), {0: 3, 1: 5, 2: 4, 3: 3, 4: 8}
    known = synthetic.simulate(plan)
    for trial in plan["arms"][0]["trials"]:
        record = known[trial["id"]]
        history = record.history[: reached[trial["seed"]]]
        known[trial["id"]] = replace(record, values={"status": "running", "reason": "running"}, history=history)
    study = synthetic.results(plan, known)
    ax = draw_figure(study, x="step").axes[0]
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
    """Without validation they are of the training loss."""
    study = complete("intervals")
    study.history[["val_accuracy", "val_loss"]] = np.nan
    ax = draw_figure(study, x=x).axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (label, "train loss")
    assert max(line.get_xdata()[-1] for line in ax.lines if len(line.get_xdata())) == pytest.approx(last)


def test_seconds_of_unequal_machines_are_told_of() -> None:
    study = complete("curves")
    slow = (study.history["arm"] == study.plan.arms[0].name) & (study.history["seed"] == 2)
    step = (study.history["seconds"] / study.history["step"]).iloc[0]
    said = f"a step took {step:.2g} to {4 * step:.2g} s in trials of equal FLOPs"
    for factor, x, told in ((1, "seconds", False), (4, "seconds", True), (1, "step", False)):
        study.history.loc[slow, "seconds"] *= factor
        assert (said in " ".join(study_figure.caption(study, x))) == told


def test_each_family_is_fitted_where_it_was_measured_and_says_how_steep() -> None:
    study, figure = complete("families"), usual_figure("families")
    fitted = lines_of(figure.axes[0], 40)
    assert len(fitted) == 2
    compute = study.trials["arm"].map({arm.name: arm.train_flops for arm in study.plan.arms})
    family_of = study.trials["arm"].map({arm.name: arm.model_family for arm in study.plan.arms})
    trials = study.trials.assign(compute=compute, family=family_of)
    for line, family in zip(fitted, ("ViT", "hybrid"), strict=True):
        own = trials[(trials["family"] == family) & (trials["test_accuracy"] < 1)]  # no error has no logarithm
        counted = [one for _, one in own.groupby("seed") if len(one) >= families.MIN_SIZES]
        ends = [max(one["compute"].min() for one in counted), min(one["compute"].max() for one in counted)]
        laws = [stats.linregress(np.log(one["compute"]), np.log(1 - one["test_accuracy"])) for one in counted]
        expected = [100 * (1 - np.mean([np.exp(law.intercept) * end**law.slope for law in laws])) for end in ends]
        assert line.get_xdata()[[0, -1]] == pytest.approx(np.array(ends) / 1e12)
        assert line.get_ydata()[[0, -1]] == pytest.approx(np.array(expected))
        assert f"{family} {np.mean([-law.slope for law in laws]):.2f} [" in words(figure)
    assert "No fit, fewer than 3 seeds with 4 sizes: ResNet." in words(figure)
    arm = study.plan.arms[0]  # whose compute an old plan does not say
    old = arm.model_copy(update={"train_flops": None, "config": arm.config | {"steps": 1320, "batch": 32}})
    assert families.training_flops(old) == families.training_flops(arm) == 3 * 400_000 * 1320 * 32


def test_a_fit_of_few_seeds_says_so_and_one_of_fewer_than_three_is_not_drawn() -> None:
    study = complete("families")
    study.trials["test_accuracy"] = study.trials["test_accuracy"].clip(upper=0.99)
    names = [arm.name for arm in study.plan.arms if arm.model_family == "ViT"]
    perfect = names[: len(names) - 3]
    for seeds, curves_drawn in ((1, 2), (3, 1)):
        own = study.trials["arm"].isin(perfect) & (study.trials["seed"] < seeds)
        study.trials.loc[own, "test_accuracy"] = 1.0
        figure = draw_figure(study)
        assert len(lines_of(figure.axes[0], 40)) == curves_drawn
        assert ("(4 of 5 seeds)" in words(figure)) == (seeds == 1)
        assert ("No fit, fewer than 3 seeds with 4 sizes: ViT, ResNet." in words(figure)) == (seeds == 3)
        assert f"an error of 0 has no logarithm: {own.sum()} trial" in words(figure)


def test_every_way_of_growing_meets_the_baseline_at_relative_compute_one() -> None:
    study, ax = complete("shape"), usual_figure("shape").axes[0]
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


def marks_of(ax: Axes) -> list[Line2D]:
    return [mark for mark in lines_of(ax, 1) if mark.get_marker() in ("D", "o") and mark.get_markersize() == 5]


def test_few_shot_accuracy_stands_beside_the_metric_without_verdicts() -> None:
    study = complete("scale")
    study = replace(study, plan=study.plan.model_copy(update={"evals": ["fewshot"]}))
    assert len(draw_figure(study).axes) == 1
    fewer = [accuracy - 0.2 for accuracy in study.columns["test_accuracy"]]
    study = replace(study, columns=study.columns | {"fewshot5_accuracy": fewer})
    left, right = draw_figure(study).axes
    assert right.get_ylabel() == "5-shot accuracy (%)"
    assert lines_of(right, 3)[0].get_ydata() == pytest.approx(lines_of(left, 3)[0].get_ydata() - 20)
    assert {to_hex(one.get_markerfacecolor()) for one in marks_of(right) if one.get_marker() == "o"} == {"#ffffff"}
    assert len(draw_figure(study, COLUMN).axes) == 2


def test_accuracy_at_new_sizes_stands_beside_that_at_the_size_of_training() -> None:
    study = at_new_sizes()
    figure = draw_figure(study)
    ax = figure.axes[0]
    lines = [line for line in ax.lines if list(line.get_xdata()) == [8, 16, 32]]
    means = 100 * study.trials.groupby("arm", sort=False)["test_accuracy"].mean()
    reached = np.array([line.get_ydata() for line in lines]).T
    np.testing.assert_allclose(reached, [means, means - 20, [np.nan] * 4])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["8\n(trained)", "16", "32"]
    assert ax.get_ylabel() == "test accuracy (%)"
    assert texts(figure).count("missing") == 4


def test_every_value_of_a_packaged_axis_has_dashes_of_its_own() -> None:
    recipes = [yaml.safe_load(path.read_text()) for path in RECIPES.glob("*.yaml")]
    longest = max(len(values) for recipe in recipes for values in recipe.get("axes", {}).values())
    assert len(set(DASHES)) == len(DASHES) >= longest


@pytest.mark.parametrize("name", ["intervals", "compute", "scale", "axis", "new-size"])
def test_a_tuned_study_is_drawn_at_each_arm_s_own_value(name: str) -> None:
    study = synthetic.results(spread(synthetic.tuned_pooling(figure=name)))
    rows = [row for row in study_table.table(study).rows if "tuned" in row.arm]
    figure = draw_figure(study)
    assert len(rows) == 2
    assert "0.001" not in words(figure)
    if name == "intervals":
        means = [line.get_xdata()[0] for line in lines_of(figure.axes[0], 1)]
        assert means == pytest.approx([100 * row.mean for row in rows])
        assert "pool=gap, lr=tuned" in words(figure)


@pytest.mark.parametrize("x", [None, "epoch"])
def test_over_training_a_tuned_study_shows_each_arm_at_its_own_rate_and_at_the_baseline_s(x: str | None) -> None:
    plan = synthetic.tuned_pooling()
    best = {"pool=cls,lr=0.002": 0.95, "pool=gap,lr=0.001": 0.94}
    accuracies = {arm["name"]: [best.get(arm["name"], 0.7) + 0.002 * seed for seed in range(5)] for arm in plan["arms"]}
    study = synthetic.results(plan, synthetic.from_accuracies(plan, accuracies))
    ax = draw_figure(study, x=x).axes[0 if x else 1]
    handles, named = ax.get_legend_handles_labels()
    looks = [(to_hex(handle.get_color()), handle.get_linestyle()) for handle in handles]
    blue, black = "#0072b2", "#000000"
    assert dict(zip(named, looks, strict=True)) == {
        "cls, lr=0.002": (black, "-"),
        "gap, lr=0.001": (blue, "-"),
        "gap, lr=0.002": (blue, "--"),
    }
    assert len(ax.collections) == 3
    ends = sorted(line.get_ydata()[-1] for line in lines_of(ax, synthetic.EVALUATIONS))
    assert ends == pytest.approx([70.4, 94.4, 95.4])


def test_before_a_rate_can_be_chosen_all_are_drawn_over_training() -> None:
    plan = synthetic.tuned_pooling()
    rest = [trial["id"] for arm in plan["arms"] if arm["values"]["lr"] == 0.004 for trial in arm["trials"]]
    study = synthetic.results(plan, dict.fromkeys(rest, synthetic.hole("missing", "not started")))
    ax = draw_figure(study).axes[1]
    assert ax.get_legend_handles_labels()[1] == ["0.001", "0.002", "0.004"]
    assert len(lines_of(ax, synthetic.EVALUATIONS)) == 4


TWO = Style(palette=("#4477AA", "#EE6677"))


@pytest.mark.parametrize("chosen", [Style(), TWO, Style(colours={"pool=k1": "#0072B2", "pool=k7": "#000000"})])
def test_no_two_series_look_alike(chosen: Style) -> None:
    names = [f"pool=k{k}" for k in range(13)]
    rows = pd.DataFrame({"series": names, "reference": [name == "pool=k3" for name in names]})
    with use_style(chosen):
        found = lines.series_styles(rows).values()
    assert len({(look.colour, look.marker) for look in found}) == 13
    assert len({(look.colour, str(look.dash)) for look in found}) == 13
    assert [look.marker for look in found].count("D") == 1


def test_arms_that_change_several_settings_are_lines_of_their_own() -> None:
    plan = synthetic.dataset_scale()
    for point in [arm for arm in plan["arms"] if arm["name"] == arm["baseline"]]:
        name = f"half,data_fraction={point['values']['data_fraction']}"
        config = point["config"] | {"width": 16}
        synthetic.add_arm(plan, name, config, change="half", values=point["values"], baseline=point["name"])
    ax = draw_figure(synthetic.results(plan)).axes[0]
    assert ax.get_legend_handles_labels()[1] == ["patch (baseline)", "conv", "half"]
    assert len(lines_of(ax, 3)) == 3


def test_the_baseline_is_black_and_filled_marks_are_resolved() -> None:
    rows = study_table.table(complete("scale")).rows
    marks = marks_of(usual_figure("scale").axes[0])
    resolved = [row.arm == row.baseline or row.verdict in ("better", "worse") for row in rows]
    assert sum(to_hex(mark.get_markerfacecolor()) != "#ffffff" for mark in marks) == sum(resolved)
    assert [to_hex(mark.get_color()) for mark in marks].count("#000000") == 3


def test_numbers_on_axes_are_written_and_spaced_as_a_person_would() -> None:
    """Powers are evenly spaced by ratio, counts by difference; an axis with a zero is linear."""
    units = {4.2e6: (1e6, "MFLOPs"), 17.6e9: (1e9, "GFLOPs"), 999.0: (1.0, "FLOPs"), 0.0: (1.0, "FLOPs")}
    assert {most: axes.flops_unit(most) for most in units} == units
    powers: list[list[float]] = [[1, 2, 4], [1e-4, 3e-4, 1e-3], [0.1, 0.3, 1.0], [1, 2]]
    assert {axes.scale_for(values) for values in powers} == {"log"}
    assert {axes.scale_for(values) for values in ([4, 6, 8], [0, 1, 2, 4], [2])} == {"linear"}
    written = {0.0004: "0.0004", 5e-5: "5e-5", 8: "8", 1320: "1,320", "conv": "conv", 0.0: "0"}
    assert {value: axes.value_text(value) for value in written} == written


def test_wrapping_loses_no_character() -> None:
    text = "position=a-very-long-name-without-spaces and some words after it"
    broken = wrap_text(text, 1.0, 7.5).split("\n")
    assert len(broken) > 3
    assert re.sub(r"\s", "", "".join(broken)) == text.replace(" ", "")
    assert broken[0].endswith(("-", "="))


def test_a_series_of_several_factors_is_named_by_its_factor() -> None:
    """ "0.3" alone could stand for two factors; of a single factor the value is enough."""
    factors = {"weight_decay": [0.05, 0.3], "dropout": [0.0, 0.3]}
    curves = {"data_fraction": [0.1, 1.0]}
    plan = synthetic.make_plan("regularization", factors, {"weight_decay": 0.05, "dropout": 0.0}, curves=curves)
    for made, expected in ((plan, {"weight_decay=0.3", "dropout=0.3"}), (synthetic.dataset_scale(), {"patch", "conv"})):
        study = synthetic.results(made)
        assert expected <= set(frame.arms_frame(study, study_table.table(study))["line"])
