"""Training curves: means and bands over seeds, trials that still run, and tuned studies."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
import yaml
from figure_studies import complete, draw_figure, incomplete, lines_of, texts, usual_figure, words
from matplotlib.colors import to_hex
from scipy import stats

from results.figures import study_figure
from results.figures.page import DASHES
from results.study_results import StudyResults

RECIPES = Path(__file__).parents[3] / "ablations" / "recipes"


def evaluations_where(study: StudyResults, column: str, holds: Callable[[Any], bool]) -> dict[str, list[Any]]:
    """Return a study's evaluations without those whose value in a column is another."""
    kept = [place for place, value in enumerate(study.evaluations[column]) if holds(value)]
    return {name: [values[place] for place in kept] for name, values in study.evaluations.items()}


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


def test_trials_evaluated_once_get_no_panel_over_training() -> None:
    study = complete("learning-rate")
    once = evaluations_where(study, "step", lambda step: step == synthetic.STEPS)
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
    without = replace(study, evaluations=evaluations_where(study, "arm", lambda name: name != arm))
    said = f"No line, as no trial was evaluated: {arm}."
    for name in ("curves", "learning-rate"):
        assert said in study_figure.caption(replace(without, plan=without.plan.model_copy(update={"figure": name})))
    for case in (study, replace(study, evaluations=evaluations_where(study, "arm", lambda name: False))):
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


def test_a_note_warns_of_seconds_from_unequal_machines() -> None:
    study = complete("curves")
    slow = (study.history["arm"] == study.plan.arms[0].name) & (study.history["seed"] == 2)
    step = (study.history["seconds"] / study.history["step"]).iloc[0]
    said = f"a step took {step:.2g} to {4 * step:.2g} s in trials of equal FLOPs"
    for factor, x, told in ((1, "seconds", False), (4, "seconds", True), (1, "step", False)):
        study.history.loc[slow, "seconds"] *= factor
        assert (said in " ".join(study_figure.caption(study, x))) == told


def test_every_value_of_a_packaged_axis_has_dashes_of_its_own() -> None:
    recipes = [yaml.safe_load(path.read_text()) for path in RECIPES.glob("*.yaml")]
    longest = max(len(values) for recipe in recipes for values in recipe.get("axes", {}).values())
    assert len(set(DASHES)) == len(DASHES) >= longest


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
