"""Budgets: arms trained for equal steps, epochs or training FLOPs, each by a schedule of its own."""

from pathlib import Path

import pytest
from designs import RECIPE, design

from ablations.planning import plan as planning

LONG = RECIPE.replace("steps: 4", "steps: 400")
FRACTIONS = "{question: q, baseline: {stem: patch}, factors: {stem: [patch, conv]}, curves: {data_fraction: axis}}"
PATCHES = "{question: q, baseline: {patch: 4}, factors: {patch: axis}}"


def with_budget(study: str, budget: str) -> str:
    return f"{study[:-1]}, budget: {budget}}}"


def steps(folder: Path, study: str, recipe: str = LONG, **overrides: object) -> dict[str, int]:
    return {arm.name: arm.config.steps for arm in design(folder, study, recipe, **overrides).arms}


def test_steps_are_equal_unless_a_study_says_otherwise(tmp_path: Path) -> None:
    """At every fraction of the data; also where the recipe counts in epochs, of which a fraction has fewer steps."""
    assert set(steps(tmp_path, FRACTIONS).values()) == {400}
    epochs = steps(tmp_path, FRACTIONS, LONG.replace("steps: 400", "epochs: 10, batch: 32"))
    assert set(epochs.values()) == {round(10 * 1437 * 0.9 / 32)}


def test_equal_epochs_scale_with_the_data(tmp_path: Path) -> None:
    """A tenth of the images, a tenth of the steps; arms at one point have the same."""
    assert steps(tmp_path, with_budget(FRACTIONS, "epochs")) == {
        "stem=patch,data_fraction=0.1": 40, "stem=patch,data_fraction=1.0": 400,
        "stem=conv,data_fraction=0.1": 40, "stem=conv,data_fraction=1.0": 400,
    }  # fmt: skip


def test_equal_epochs_scale_with_the_batch(tmp_path: Path) -> None:
    """Twice the batch, half the steps."""
    study = "{question: q, baseline: {batch: 32}, factors: {batch: [32, 64]}, budget: epochs}"
    assert steps(tmp_path, study) == {"batch=32": 400, "batch=64": 200}


def test_equal_flops_are_those_of_a_forward_pass_times_images(tmp_path: Path) -> None:
    """6 x multiply-adds x images, against the FLOPs that a plan counts (2 a multiply-add), within 2%."""
    plan = planning.build(design(tmp_path, with_budget(PATCHES, "flops"), LONG), [0])
    spent = {a.name: 6 * (a.flops / 2) * a.config["steps"] * a.config["batch"] for a in plan.arms}
    assert [arm.train_flops for arm in plan.arms] == pytest.approx(list(spent.values()))
    assert all(abs(value / spent["patch=4"] - 1) < 0.02 for value in spent.values())
    assert plan.arms[1].config["steps"] == 400


def test_a_budget_that_no_whole_number_of_steps_meets_is_refused(tmp_path: Path) -> None:
    """The arm is named, and what would do."""
    with pytest.raises(
        ValueError,
        match=r"study 's', arm patch=2: budget=flops: the same training FLOPs as the baseline's are 0\.9\d steps, "
        "and no whole number is within 2%: give more steps",
    ):
        design(tmp_path, with_budget(PATCHES, "flops")).arms  # noqa: B018  # arms are made where they are asked for


def test_an_arm_that_says_its_steps_keeps_them(tmp_path: Path) -> None:
    """The budget is for those that do not."""
    study = with_budget(FRACTIONS, "epochs").replace("curves:", "arms: {long: {steps: 900}}, curves:")
    assert steps(tmp_path, study)["long,data_fraction=0.1"] == 900


def test_names_and_baselines_are_those_of_equal_steps(tmp_path: Path) -> None:
    """A budget changes the schedule of arms, not what they are called."""
    plain, equal = (
        planning.build(design(tmp_path, s, LONG), [0]) for s in (FRACTIONS, with_budget(FRACTIONS, "epochs"))
    )
    assert [arm.name for arm in plain.arms] == [arm.name for arm in equal.arms]
    assert (plain.budget, equal.budget) == ("steps", "epochs")


def test_the_budget_is_one_of_three(tmp_path: Path) -> None:
    """A typo is one line."""
    with pytest.raises(ValueError, match="budget=seconds: input should be 'steps', 'epochs' or 'flops'"):
        design(tmp_path, with_budget(PATCHES, "seconds"))
