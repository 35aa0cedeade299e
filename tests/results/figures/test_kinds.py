"""What each kind of figure draws: numbers, lines, marks, labels and legends."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic
from figure_studies import at_new_sizes, complete, draw_figure, lines_of, spread, texts, usual_figure, words
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from results.figures import frame, plots
from results.figures.kinds import intervals
from results.figures.page import wrap_text
from results.statistics import best_sizes, scaling
from results.store.schemas.metrics import metric_by_name
from results.style import COLUMN, FULL, Style, use_style
from results.tables import study_table


def test_a_row_shows_the_table_s_numbers_and_published_ones_on_another_axis() -> None:
    rows, figure = study_table.table(complete("intervals")).rows, usual_figure("intervals")
    ours, published = figure.axes
    bars = [line.get_xdata() for line in lines_of(ours, 2) if line.get_linewidth() == 1.8]
    assert np.array(bars) == pytest.approx(100 * np.array([row.ci95 for row in rows]))
    assert [line.get_xdata()[0] for line in lines_of(ours, 1)] == pytest.approx([100 * row.mean for row in rows])
    delta, low, high = (
        f"{100 * value:+.1f}".replace("-", "\N{MINUS SIGN}") for value in (rows[0].delta, *rows[0].delta_ci95)
    )
    assert f"worse\n{delta} points [{low}, {high}]" in texts(figure)
    assert [line.get_xdata()[0] for line in published.lines] == pytest.approx([61.382, 64.206, 64.001, 64.032])
    assert "another setting" in published.get_title(loc="left")
    assert min(min(line.get_xdata()) for line in ours.lines) > 65


@pytest.mark.parametrize("width", [FULL, COLUMN])
def test_published_losses_are_no_percentages(width: float) -> None:
    published = {"none": 0.0412, "1d": 0.0342}
    plan = synthetic.position(
        metric="test_loss", published={f"position={name}": own for name, own in published.items()}
    )
    figure = draw_figure(synthetic.results(plan), width)
    assert "0.0342" in words(figure)
    assert "(%)" not in words(figure)


def test_only_marks_that_are_drawn_are_explained() -> None:
    same = synthetic.position()
    alike = synthetic.from_accuracies(same, {arm["name"]: [0.5, 0.6, 0.7, 0.8, 0.9] for arm in same["arms"]})
    assert "filled marks" in words(usual_figure("intervals"))
    assert "filled marks" not in words(draw_figure(synthetic.results(same, alike)))
    untrained = synthetic.untrained(complete("intervals").plan)
    assert "Diamond" not in words(draw_figure(untrained))


def test_no_end_of_an_interval_is_rounded_onto_zero() -> None:
    """[+0.0, +0.6] would read as if the arms could be equal."""
    below_zero = (-0.03, "\N{MINUS SIGN}0.03, +0.58")
    for low, written in ((0.04, "+0.04, +0.58"), (0.003, "+0.003, +0.580"), below_zero):
        numbers = {"reference": False, "delta": 0.31, "delta_low": low, "delta_high": 0.58}
        row = SimpleNamespace(n=5, planned=5, word="better", **numbers)
        assert f"[{written}]" in intervals.verdict_text(row, metric_by_name("test_accuracy"))


@pytest.mark.parametrize(
    ("limits", "written"),
    [
        ((0.9, 1.1), "0.9 1 1.1"),
        ((1.0, 1.3), "1 1.1 1.2 1.3"),
        ((7, 13), "8 10 12"),
        ((1.26, 3.3), "1.5 2 3"),
        ((0.35, 17), "0.5 1 2 5 10"),
        ((0.05, 40), "0.1 0.3 1 3 10 30"),
        ((1, 1e5), "1 10 100 1,000 10,000 100,000"),
    ],
)
def test_a_log_axis_has_a_few_round_ticks(limits: tuple[float, float], written: str) -> None:
    ax = Figure().add_subplot()
    ax.set(xscale="log", xlim=limits)
    plots.set_log_ticks(ax.xaxis, *limits)
    ticks = [tick for tick in ax.get_xticks() if limits[0] <= round(tick, 9) <= limits[1]]
    assert " ".join(map(ax.xaxis.get_major_formatter(), ticks)) == written


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


def test_each_family_is_fitted_and_dashed_beyond_what_was_trained() -> None:
    study, figure = complete("families"), usual_figure("families")
    fitted = lines_of(figure.axes[0], 40)
    laws = [law for law in scaling.laws_of(study).values() if isinstance(law, scaling.Law)]
    assert [line.get_linestyle() for line in fitted] == ["-", "--", "-", "--"]
    for law, inside, beyond, family in zip(laws, fitted[::2], fitted[1::2], ("ViT", "hybrid"), strict=True):
        low, high = law.measured.compute[[0, -1]]
        for line, ends in ((inside, (low, high)), (beyond, (high, 4 * high))):
            compute = np.geomspace(*ends, 40)
            assert line.get_xdata() == pytest.approx(compute / 1e12)
            assert line.get_ydata() == pytest.approx(100 * (1 - law.errors(compute)[0]))
        assert f"{family} b {law.b:.2f} [" in words(figure)
    assert len(figure.axes[0].collections) == 4  # a band around each, dashed ones too
    assert "Dashed: beyond the data" in words(figure)
    assert "No fit, fewer than 3 seeds with 4 sizes: ResNet." in words(figure)
    arm = study.plan.arms[0]  # whose compute an old plan does not say
    old = arm.model_copy(update={"train_flops": None, "config": arm.config | {"steps": 1320, "batch": 32}})
    assert scaling.training_flops(old) == scaling.training_flops(arm) == 3 * 400_000 * 1320 * 32


def test_a_fit_of_few_seeds_says_so_and_one_of_fewer_than_three_is_not_drawn() -> None:
    study = complete("families")
    arm = next(arm.name for arm in study.plan.arms if arm.model_family == "ViT")
    for missing, curves_drawn in ((1, 4), (3, 2)):
        status = study.columns["status"].copy()
        for row in [k for k, name in enumerate(study.columns["arm"]) if name == arm][:missing]:
            status[row] = "missing"
        figure = draw_figure(replace(study, columns=study.columns | {"status": status}))
        assert len(lines_of(figure.axes[0], 40)) == curves_drawn
        assert ("(4 of 5 seeds)" in words(figure)) == (missing == 1)
        assert ("No fit, fewer than 3 seeds with 4 sizes: ViT, ResNet." in words(figure)) == (missing == 3)


def test_best_sizes_are_diamonds_and_no_fit_is_drawn_before_there_are_seeds() -> None:
    study = complete("isoflop")
    left, right = draw_figure(study).axes
    best = [profile.optimum for profile in best_sizes.profiles_of(study)["width"]]
    for ax, place in ((left, "get_xdata"), (right, "get_ydata")):
        diamonds = [mark for mark in lines_of(ax, 1) if mark.get_marker() == "D"]
        assert np.concatenate([getattr(mark, place)() for mark in diamonds]) == pytest.approx(best)
    missing = replace(study, columns=study.columns | {"status": ["missing"] * len(study.columns["status"])})
    assert "A fit needs 4 sizes at equal training FLOPs" in words(draw_figure(missing))


def test_every_way_of_growing_meets_the_baseline_at_relative_compute_one() -> None:
    study, ax = complete("shape"), usual_figure("shape").axes[0]
    ways = [line for line in ax.lines if len(line.get_xdata()) > 2 and line.get_linestyle() != "None"]
    assert len(ways) == 5
    rows = {row.arm: row for row in study_table.table(study).rows}
    base = rows[study.plan.baseline]
    for line in ways:
        assert line.get_ydata()[line.get_xdata() == 1.0] == pytest.approx([100 * base.mean])
    depth = {row.flops / base.flops: 100 * row.mean for name, row in rows.items() if name.startswith("depth=")}
    assert dict(zip(*ways[0].get_data(), strict=True)) == pytest.approx(depth | {1.0: 100 * base.mean})
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
    means = 100 * study.trials.groupby("arm", sort=False)["test_accuracy"].mean()
    reached = np.array([line.get_ydata() for line in ax.lines if list(line.get_xdata()) == [8, 16, 32]]).T
    np.testing.assert_allclose(reached, [means, means - 20, [np.nan] * 4])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["8\n(trained)", "16", "32"]
    assert ax.get_ylabel() == "test accuracy (%)"
    assert texts(figure).count("missing") == 4


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


TWO = Style(palette=("#4477AA", "#EE6677"))


@pytest.mark.parametrize("chosen", [Style(), TWO, Style(colours={"pool=k1": "#0072B2", "pool=k7": "#000000"})])
def test_no_two_series_look_alike(chosen: Style) -> None:
    names = [f"pool=k{k}" for k in range(13)]
    rows = pd.DataFrame({"series": names, "reference": [name == "pool=k3" for name in names]})
    with use_style(chosen):
        found = list(plots.with_styles(rows).itertuples())
    assert len({(look.colour, look.marker) for look in found}) == 13
    assert len({(look.colour, str(look.dash)) for look in found}) == 13
    assert [look.marker for look in found].count("D") == 1


def test_arms_that_change_several_settings_are_lines_of_their_own() -> None:
    plan = synthetic.dataset_scale()
    for point in [arm for arm in plan["arms"] if arm["name"] == arm["baseline"]]:
        given = {"change": "half", "values": point["values"], "baseline": point["name"]}
        name = f"half,data_fraction={point['values']['data_fraction']}"
        synthetic.add_arm(plan, name, point["config"] | {"width": 16}, **given)
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
    assert {most: plots.flops_unit(most) for most in units} == units
    powers: list[list[float]] = [[1, 2, 4], [1e-4, 3e-4, 1e-3], [0.1, 0.3, 1.0], [1, 2]]
    assert {plots.scale_for(values) for values in powers} == {"log"}
    assert {plots.scale_for(values) for values in ([4, 6, 8], [0, 1, 2, 4], [2])} == {"linear"}
    written = {0.0004: "0.0004", 5e-5: "5e-5", 8: "8", 1320: "1,320", "conv": "conv", 0.0: "0"}
    assert {value: plots.value_text(value) for value in written} == written


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


@pytest.mark.parametrize("kind", ["axis", "compute", "families", "shape"])
@pytest.mark.parametrize("known", [0, 2])
def test_arms_of_unknown_compute_are_named_below_a_figure_over_compute(kind: str, known: int) -> None:
    """Other code need not count its FLOPs, and seeds of other code may count other ones."""
    study = complete(kind)
    unknown = dict.fromkeys(("flops", "train_flops"))
    arms = [arm.model_copy(update=unknown if k >= known else {}) for k, arm in enumerate(study.plan.arms)]
    figure = draw_figure(replace(study, plan=study.plan.model_copy(update={"arms": arms})))
    assert ("Not drawn, as their compute is unknown: " in words(figure)) == (kind != "axis")
    assert len(figure.axes) == (2 if kind == "axis" and known else 1)
