"""Budgets: arms trained for equal steps, epochs or training FLOPs."""

from pathlib import Path

import pytest
from designs import RECIPE, design, names

from ablations.planning import plan as planning

LONG = RECIPE.replace("steps: 4", "steps: 400")
FRACTIONS = "{question: q, baseline: {stem: patch}, factors: {stem: [patch, conv]}, curves: {data_fraction: axis}}"
PATCHES = "{question: q, baseline: {patch: 4}, factors: {patch: axis}}"


def with_budget(study: str, budget: str) -> str:
    return f"{study[:-1]}, budget: {budget}}}"


BATCHES = "{question: q, baseline: {batch: 32}, factors: {batch: [32, 64]}, budget: epochs}"
EPOCHS = LONG.replace("steps: 400", "epochs: 10, batch: 32")
OWN = with_budget(FRACTIONS, "epochs").replace("curves:", "arms: {long: {steps: 900}}, curves:")
STEPS = {
    "equal steps": (FRACTIONS, LONG, [400, 400, 400, 400]),
    "equal steps, given as epochs": (FRACTIONS, EPOCHS, [round(10 * 1437 * 0.9 / 32)] * 4),
    "equal epochs over fractions": (with_budget(FRACTIONS, "epochs"), LONG, [40, 400, 40, 400]),
    "equal epochs over batches": (BATCHES, LONG, [400, 200]),
    "an arm's own steps": (OWN, LONG, [40, 400, 40, 400, 900, 900]),
}


@pytest.mark.parametrize(("study", "recipe", "steps"), STEPS.values(), ids=STEPS)
def test_steps_meet_the_budget(tmp_path: Path, study: str, recipe: str, steps: list[int]) -> None:
    made = design(tmp_path, study, recipe)
    assert [arm.config.steps for arm in made.arms] == steps
    if study == with_budget(FRACTIONS, "epochs"):
        assert names(made) == names(design(tmp_path, FRACTIONS, recipe))


def test_equal_flops_are_those_of_a_forward_pass_times_images(tmp_path: Path) -> None:
    """A plan counts 2 FLOPs per multiply-add of a forward pass, of which training takes 3."""
    plan = planning.build(design(tmp_path, with_budget(PATCHES, "flops"), LONG), [0])
    spent = {a.name: 6 * (a.flops / 2) * a.config["steps"] * a.config["batch"] for a in plan.arms}
    assert [arm.train_flops for arm in plan.arms] == pytest.approx(list(spent.values()))
    assert all(abs(value / spent["patch=4"] - 1) < 0.02 for value in spent.values())
    assert plan.arms[1].config["steps"] == 400


def test_a_budget_that_no_whole_number_of_steps_meets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"arm patch=2: budget=flops: .* are 0\.9\d steps, and no .* within 2%"):
        design(tmp_path, with_budget(PATCHES, "flops")).arms  # noqa: B018  # arms are made where they are asked for
