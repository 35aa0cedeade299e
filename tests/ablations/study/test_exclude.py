"""What a study leaves out, and what it takes from a recipe: arms of its own, sizes; families."""

from pathlib import Path

import pytest
from designs import RECIPE, design, names

from ablations.planning import plan as planning

PATCHES = "{question: q, baseline: {patch: 4}, factors: {patch: axis}, curves: {data_fraction: axis}, EXCLUDE}"


def excluding(entries: str) -> str:
    return PATCHES.replace("EXCLUDE", f"exclude: {entries}")


def test_arms_and_points_are_left_out(tmp_path: Path) -> None:
    """Where all the values of an entry hold, and only there."""
    assert names(design(tmp_path, excluding("[{patch: 2, data_fraction: 0.1}]"))) == [
        "patch=2,data_fraction=1.0",
        "patch=4,data_fraction=0.1", "patch=4,data_fraction=1.0",
        "patch=8,data_fraction=0.1", "patch=8,data_fraction=1.0",
    ]  # fmt: skip


def test_a_whole_point_may_be_left_out(tmp_path: Path) -> None:
    """With its baseline, which nobody then compares with."""
    made = design(tmp_path, excluding("[{data_fraction: 0.1}]"))
    assert names(made) == ["patch=2,data_fraction=1.0", "patch=4,data_fraction=1.0", "patch=8,data_fraction=1.0"]
    assert made.main_baseline == "patch=4,data_fraction=1.0"


def test_a_named_arm_is_left_out_by_its_name(tmp_path: Path) -> None:
    """It has no values of its own."""
    study = PATCHES.replace("EXCLUDE", "arms: {ours: {lr: 0.5}}, exclude: [{arm: ours, data_fraction: 0.1}]")
    assert [name for name in names(design(tmp_path, study)) if "ours" in name] == ["ours,data_fraction=1.0"]


def test_an_impossible_cell_of_a_cross_is_left_out_before_it_is_made(tmp_path: Path) -> None:
    """Relative positions have no choice of place."""
    cross = "crosses: [{position: [1d, relative], position_at: [input, shared]}]"
    study = (
        f"{{question: q, baseline: {{position: 1d}}, {cross}, exclude: [{{position: relative, position_at: shared}}]}}"
    )
    assert names(design(tmp_path, study)) == [
        "position=1d,position_at=input", "position_at=shared", "position=relative"
    ]  # fmt: skip


MISTAKES = [
    (excluding("[{patch: 3}]"), "study 's': exclude: no arm has patch=3"),
    (excluding("[{}]"), "study 's': exclude: no arm has nothing"),
    (excluding("[{pach: 2}]"), "study 's': exclude: pach: one of arm, data_fraction, patch"),
    (
        excluding("[{patch: 4, data_fraction: 0.1}]"),
        "study 's': exclude: patch=4,data_fraction=0.1 is the baseline of patch=2,data_fraction=0.1",
    ),
    (
        "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}, tune: {lr: [1e-3, 2e-3, 4e-3]}, "
        "exclude: [{pool: gap, lr: 1e-3}]}",
        "study 's': exclude: leaves pool=gap a part of the tuned grid: lr is chosen from the same values for every arm",
    ),
    (
        "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}, with: {pool=gpa: {lr: 1.0}}}",
        "study 's': with: no arm changes pool=gpa",
    ),
    (
        "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}, with: {pool=gap: {pool: cls}}}",
        "with: pool=gap: pool is what the study varies",
    ),
    (
        "{question: q, baseline: {pool: cls}, crosses: [{pool: [cls, gap]}]}",
        "crosses: pool alone is no product: name two factors",
    ),
    (
        "{question: q, baseline: {pool: cls}, factors: {pool: [gap]}, tune: {pool: [cls, gap]}}",
        "pool stands in factors and in tune",
    ),
    (
        "{question: q, baseline: {pool: cls}, arms: {large: axis}}",
        "study 's' takes its arm large from the recipe, and recipe 'r' has no such arm (it has: half, resnet)",
    ),
    (
        "{question: q, recipe_arm: improved, baseline: {pool: cls}, factors: {pool: [gap]}}",
        "study 's' takes its baseline improved from the recipe, and recipe 'r' has no such arm (it has: half, resnet)",
    ),
    (
        "{question: q, baseline: {pool: cls}, factors: {pool: [gap]}, families: {ViT: {}, CNN: {stem: conv}}}",
        "study 's': families: no arm is of CNN",
    ),
    (
        "{question: q, baseline: {pool: cls}, factors: {pool: [gap]}, arms: {pool=gap: {lr: 1.0}}}",
        "study 's': two arms are called pool=gap",
    ),
    (
        "{question: q, baseline: {pool: cls}, factors: {pool: [gap]}, curves: {lr: axis}, "
        "claims: [pool=gap < pool=map]}",
        "study 's': claims=pool=map: one of ",
    ),
]
WITH_ARMS = RECIPE + "    arms: {half: {width: 8}, resnet: {model: timm/test_resnet}}\n"


@pytest.mark.parametrize(("study", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistake_is_one_clear_line(tmp_path: Path, study: str, message: str) -> None:
    """What is wrong and where, before anything runs."""
    with pytest.raises(ValueError) as error:
        planning.build(design(tmp_path, study, WITH_ARMS), [0])
    assert message in str(error.value)


def test_a_baseline_begins_with_an_arm_of_the_recipe(tmp_path: Path) -> None:
    """The study's own words come after it, the command line's last."""
    study = "{question: q, recipe_arm: half, baseline: {pool: cls}, factors: {pool: [cls, gap]}}"
    made = design(tmp_path, study, WITH_ARMS)
    assert [(arm.config.width, arm.config.pool) for arm in made.arms] == [(8, "cls"), (8, "gap")]
    assert {arm.config.width for arm in design(tmp_path, study, WITH_ARMS, width=32).arms} == {32}
    wider = study.replace("{pool: cls}", "{pool: cls, width: 24}")
    assert {arm.config.width for arm in design(tmp_path, wider, WITH_ARMS).arms} == {24}


def test_a_recipe_brings_arms_of_its_own(tmp_path: Path) -> None:
    """What a halved ViT or a ResNet of like size is depends on the data."""
    study = "{question: q, baseline: {stem: patch}, arms: {half: axis, resnet: axis}, curves: {data_fraction: axis}}"
    made = design(tmp_path, study, WITH_ARMS)
    half, resnet = (arm for arm in made.arms if arm.name in ("half,data_fraction=0.1", "resnet,data_fraction=0.1"))
    assert (half.config.width, resnet.config.model) == (8, "timm/test_resnet")
    assert half.baseline == "baseline,data_fraction=0.1"


def test_families_are_told_by_what_their_arms_are_made_of(tmp_path: Path) -> None:
    """A reference model has no stem of ours, whatever its config would say."""
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
    """The first size that nothing is trained at; all of them are owed."""
    recipe = RECIPE.replace("axes: {", "axes: {image_size: [8, 16, 32], ")
    study = "{question: q, baseline: {pool: gap}, factors: {pool: [gap]}, metric: test_loss@axis, evals: [test@axis]}"
    plan = planning.build(design(tmp_path, study, recipe), [0])
    assert (plan.metric, plan.evals) == ("test_loss@16", ["test@16", "test@32"])
    alone = recipe.replace("[8, 16, 32]", "[8]")
    with pytest.raises(ValueError, match="recipe 'r': axis image_size has only 8, the size of training"):
        planning.build(design(tmp_path, study, alone), [0])


def test_a_claim_may_name_the_baseline_of_named_arms(tmp_path: Path) -> None:
    """Where no factor names it."""
    study = "{question: q, baseline: {pool: gap}, arms: {half: axis}, claims: [half < baseline]}"
    assert planning.build(design(tmp_path, study, WITH_ARMS), [0]).baseline == "baseline"
