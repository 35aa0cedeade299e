"""Excluded arms, arms and sizes from the recipe, and families of models."""

from pathlib import Path

import pytest
from designs import RECIPE, design, names

from ablations.planning import plan as planning

PATCHES = "{question: q, baseline: {patch: 4}, factors: {patch: axis}, curves: {data_fraction: axis}, EXCLUDE}"
POOLS = "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}, MORE}"
WITH_ARMS = RECIPE + "    arms: {half: {width: 8}, resnet: {model: timm/test_resnet}}\n"


def excluding(entries: str) -> str:
    return PATCHES.replace("EXCLUDE", f"exclude: {entries}")


LEFT = {
    "a point of an arm": (
        excluding("[{patch: 2, data_fraction: 0.1}, {patch: 8}]"),
        ["patch=2,data_fraction=1.0", "patch=4,data_fraction=0.1", "patch=4,data_fraction=1.0"],
    ),
    "a point with its baseline": (
        excluding("[{data_fraction: 0.1}]"),
        ["patch=2,data_fraction=1.0", "patch=4,data_fraction=1.0", "patch=8,data_fraction=1.0"],
    ),
    "a named arm": (
        PATCHES.replace(
            "EXCLUDE", "arms: {ours: {lr: 0.5}}, exclude: [{patch: 2}, {patch: 8}, {arm: ours, data_fraction: 0.1}]"
        ),
        ["patch=4,data_fraction=0.1", "patch=4,data_fraction=1.0", "ours,data_fraction=1.0"],
    ),
    "an impossible cell of a cross": (
        "{question: q, baseline: {position: 1d}, crosses: [{position: [1d, relative], position_at: [input, shared]}], "
        "exclude: [{position: relative, position_at: shared}]}",
        ["position=1d,position_at=input", "position_at=shared", "position=relative"],
    ),
}


@pytest.mark.parametrize(("study", "left"), LEFT.values(), ids=LEFT)
def test_arms_with_all_values_of_an_entry_are_left_out(tmp_path: Path, study: str, left: list[str]) -> None:
    assert names(design(tmp_path, study)) == left


MISTAKES = [
    (excluding("[{patch: 3}]"), "study 's': exclude: no arm has patch=3"),
    (excluding("[{}]"), "study 's': exclude: no arm has nothing"),
    (excluding("[{pach: 2}]"), "study 's': exclude: unknown key 'pach'; did you mean 'patch'?"),
    (excluding("[{patch: 4, data_fraction: 0.1}]"), "data_fraction=0.1 is the baseline of patch=2,data_fraction=0.1"),
    (
        POOLS.replace("MORE", "tune: {lr: [1e-3, 2e-3, 4e-3]}, exclude: [{pool: gap, lr: 1e-3}]"),
        "study 's': exclude: leaves pool=gap a part of the tuned grid: lr is chosen from",
    ),
    (POOLS.replace("MORE", "with: {pool=gpa: {lr: 1.0}}"), "study 's': with: no arm changes pool=gpa"),
    (POOLS.replace("MORE", "with: {pool=gap: {pool: cls}}"), "with: pool=gap: pool is what the study varies"),
    (POOLS.replace("MORE", "crosses: [{lr: [1.0, 2.0]}]"), "crosses: lr alone is no product: name two factors"),
    (POOLS.replace("MORE", "tune: {pool: [cls, gap]}"), "pool stands in factors and in tune"),
    (POOLS.replace("MORE", "arms: {large: axis}"), "takes its arm large from the recipe, and recipe 'r' has no such"),
    (POOLS.replace("MORE", "recipe_arm: improved"), "takes its baseline improved from the recipe, and recipe 'r' has"),
    (POOLS.replace("MORE", "families: {ViT: {}, CNN: {stem: conv}}"), "study 's': families: no arm is of CNN"),
    (POOLS.replace("MORE", "arms: {pool=gap: {lr: 1.0}}"), "study 's': two arms are called pool=gap"),
    (POOLS.replace("MORE", "curves: {lr: axis}, claims: [pool=gap < pool=map]"), "study 's': claims=pool=map: one of "),
]


@pytest.mark.parametrize(("study", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistake_is_one_clear_line(tmp_path: Path, study: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        planning.build(design(tmp_path, study, WITH_ARMS), [0])
    assert message in str(error.value)


def test_a_baseline_begins_with_an_arm_of_the_recipe(tmp_path: Path) -> None:
    study = "{question: q, recipe_arm: half, baseline: {pool: cls}, factors: {pool: [cls, gap]}}"
    made = design(tmp_path, study, WITH_ARMS)
    assert [(arm.config.width, arm.config.pool) for arm in made.arms] == [(8, "cls"), (8, "gap")]
    assert design(tmp_path, study, WITH_ARMS, width=32).reference.width == 32
    assert design(tmp_path, study.replace("{pool: cls}", "{pool: cls, width: 24}"), WITH_ARMS).reference.width == 24


def test_an_arm_is_of_the_first_family_with_its_settings(tmp_path: Path) -> None:
    study = """
        question: q
        baseline: {stem: patch}
        factors: {stem: [patch, conv]}
        arms: {half: axis, resnet: axis, ours: {pool: cls, stem: resnet-small}}
        families: {ViT: {stem: patch}, hybrid: {stem: [conv, resnet-small]}, ResNet: {model: timm/*}}
    """
    plan = planning.build(design(tmp_path, study, WITH_ARMS), [0])
    assert {arm.name: arm.model_family for arm in plan.arms} == {
        "stem=patch": "ViT", "stem=conv": "hybrid", "half": "ViT", "resnet": "ResNet", "ours": "hybrid"
    }  # fmt: skip


def test_a_metric_at_the_recipes_other_sizes(tmp_path: Path) -> None:
    recipe = RECIPE.replace("axes: {", "axes: {image_size: [8, 16, 32], ")
    study = "{question: q, baseline: {pool: gap}, factors: {pool: [gap]}, metric: test_loss@axis, evals: [test@axis]}"
    plan = planning.build(design(tmp_path, study, recipe), [0])
    assert (plan.metric, plan.evals) == ("test_loss@16", ["test@16", "test@32"])
    alone = recipe.replace("[8, 16, 32]", "[8]")
    with pytest.raises(ValueError, match="recipe 'r': axis image_size has only 8, the size of training"):
        planning.build(design(tmp_path, study, alone), [0])


def test_a_claim_may_name_the_baseline_of_named_arms(tmp_path: Path) -> None:
    study = "{question: q, baseline: {pool: gap}, arms: {half: axis}, claims: [half < baseline]}"
    assert planning.build(design(tmp_path, study, WITH_ARMS), [0]).baseline == "baseline"
