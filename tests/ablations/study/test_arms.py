"""Budgets of arms, excluded arms, arms and sizes from the recipe, families of models, and tuned grids."""

from pathlib import Path

import pytest
from designs import RECIPE, design, names

from ablations.planning import plan as planning
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import check_same_table, save_plan

PATCHES = "{question: q, baseline: {patch: 4}, factors: {patch: axis}, curves: {data_fraction: axis}, EXCLUDE}"
POOLS = "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}, MORE}"
SIZES = "{question: q, baseline: {patch: 4}, factors: {patch: axis}}"
TUNED = "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}, tune: {lr: [1e-3, 2e-3, 4e-3]}}"
WITH_ARMS = RECIPE + "    arms: {half: {width: 8}, resnet: {model: timm/test_resnet}}\n"


def with_budget(study: str, budget: str) -> str:
    return f"{study[:-1]}, budget: {budget}}}"


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
    (
        "{question: q, baseline: {heads: 2}, factors: {heads: [2, 4]}, exclude: [{heads: 4}, {heads: 2}]}",
        "study 's': exclude: leaves no arm",
    ),
    (excluding("[{}]"), "study 's': exclude: no arm has nothing"),
    (excluding("[{pach: 2}]"), "study 's': exclude: unknown key 'pach'; did you mean 'patch'?"),
    (excluding("[{patch: 4, data_fraction: 0.1}]"), "data_fraction=0.1 is the baseline of patch=2,data_fraction=0.1"),
    (
        POOLS.replace("MORE", "tune: {lr: [1e-3, 2e-3, 4e-3]}, exclude: [{pool: gap, lr: 1e-3}]"),
        "study 's': exclude: leaves pool=gap a part of the tuned grid: lr is chosen from",
    ),
    (POOLS.replace("MORE", "with: {pool=gpa: {lr: 1.0}}"), "study 's': with: no arm changes pool=gpa"),
    (POOLS.replace("MORE", "with: {pool=gap: {pool: cls}}"), "with: pool=gap: pool is what the study varies"),
    (POOLS.replace("MORE", "crosses: [{lr: [1.0, 2.0]}]"), "crosses: lr: a cross needs at least two factors"),
    (POOLS.replace("MORE", "tune: {pool: [cls, gap]}"), "pool stands in factors and in tune"),
    (POOLS.replace("MORE", "arms: {large: axis}"), "takes its arm large from the recipe, and recipe 'r' has no such"),
    (POOLS.replace("MORE", "recipe_arm: improved"), "takes its baseline improved from the recipe, and recipe 'r' has"),
    (POOLS.replace("MORE", "families: {ViT: {}, CNN: {stem: conv}}"), "study 's': families: no arm is of CNN"),
    (POOLS.replace("MORE", "arms: {pool=gap: {lr: 1.0}}"), "study 's': two arms are called pool=gap"),
    (with_budget(SIZES, "flops"), "arm patch=2: budget=flops: "),
    (TUNED.replace(", 4e-3", ""), "tune: lr=0.001, 0.002: at least 3 values, ascending: the best must lie inside"),
    (
        TUNED.replace("1e-3, 2e-3, 4e-3", "4e-3, 2e-3, 1e-3"),
        "tune: lr=0.004, 0.002, 0.001: at least 3 values, ascending",
    ),
    (TUNED.replace("1e-3, 2e-3, 4e-3", "low, middle, high"), "tune: lr=low, middle, high: numbers"),
    (TUNED.replace("{pool: cls}", "{pool: cls, val_fraction: 0.0}"), "val_fraction=0.0: a number above 0"),
    (
        POOLS.replace("MORE", "curves: {lr: axis}, claims: [pool=gap < pool=map]"),
        "claims=pool=map: did you mean 'pool=gap'? ",
    ),
]


@pytest.mark.parametrize(("study", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistake_is_one_clear_line(tmp_path: Path, study: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        planning.build(design(tmp_path, study, WITH_ARMS), [0])
    assert message in str(error.value)


def test_curves_of_whole_numbers_have_a_baseline(tmp_path: Path) -> None:
    """The config has 0.0 where the study has 0."""
    study = "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}, curves: {dropout: [0.1, 0]}}"
    assert planning.build(design(tmp_path, study, WITH_ARMS), [0]).baseline == "pool=cls,dropout=0"


def test_a_baseline_begins_with_an_arm_of_the_recipe(tmp_path: Path) -> None:
    study = "{question: q, recipe_arm: half, baseline: {pool: cls}, factors: {pool: [cls, gap]}}"
    made = design(tmp_path, study, WITH_ARMS)
    assert [(arm.config["width"], arm.config["pool"]) for arm in made.arms] == [(8, "cls"), (8, "gap")]
    assert design(tmp_path, study, WITH_ARMS, width=32).reference["width"] == 32
    assert design(tmp_path, study.replace("{pool: cls}", "{pool: cls, width: 24}"), WITH_ARMS).reference["width"] == 24


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
    of_middle = design(tmp_path, study, recipe.replace("steps: 4", "steps: 4, image_size: 16"))
    assert (of_middle.metric, of_middle.required_evals) == ("test_loss@32", ["test@32", "test@8"])  # larger ones first
    alone = recipe.replace("[8, 16, 32]", "[8]")
    with pytest.raises(ValueError, match="recipe 'r': axis image_size has only 8, the size of training"):
        planning.build(design(tmp_path, study, alone), [0])


def test_a_length_that_varies_is_not_set_by_its_other_name(tmp_path: Path) -> None:
    study = "{question: q, baseline: {pool: gap}, factors: {pool: [gap, cls]}, curves: {steps: [2, 4]}}"
    for key in ("steps", "epochs"):
        with pytest.raises(ValueError, match=f"{key} is what the study 's' varies: not a setting of the command line"):
            design(tmp_path, study, **{key: 3})


def test_a_co_change_at_a_value_that_the_recipe_lacks_is_one_clear_line(tmp_path: Path) -> None:
    study = "{question: q, baseline: {}, factors: {patch: axis}, with: {'patch=axis[3]': {lr: 1e-3}}}"
    with pytest.raises(ValueError, match=r"study 's': with: patch=axis\[3\]: recipe 'r' has fewer values"):
        _ = design(tmp_path, study).changes


SEVERAL = "{question: q, baseline: {pool: gap}, factors: {pool: [gap, cls]}, metrics: [%s]}"


def test_evals_follow_from_all_metrics(tmp_path: Path) -> None:
    """The first is the study's metric; sizes, parameters and FLOPs may follow."""
    recipe = RECIPE.replace("axes: {", "axes: {image_size: [8, 16, 32], ")
    named = "test_accuracy, test_loss, fewshot5_accuracy, test_accuracy@axis, flops"
    plan = planning.build(design(tmp_path, SEVERAL % named, recipe), [0])
    assert (plan.metric, plan.evals) == ("test_accuracy", ["fewshot", "test@16", "test@32"])
    sizes = ["test_accuracy@16", "test_accuracy@32"]
    assert plan.secondary_metrics == ["test_loss", "fewshot5_accuracy", *sizes, "flops"]
    one = planning.build(design(tmp_path, SEVERAL % "test_loss", recipe), [0])
    assert (one.metric, "secondary_metrics" in one.content()) == ("test_loss", False)


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (SEVERAL % "test_accuracy, tets_loss", "study 's': metrics=tets_loss: did you mean 'test_loss'? "),
        (SEVERAL % "flops, test_accuracy", "study 's': metrics=flops: one of "),
        (SEVERAL % "test_loss, test_loss", "metrics: test_loss occurs twice"),
        (SEVERAL.replace("metrics", "metric: test_loss, metrics") % "test_loss", "metric=test_loss: beside 'metrics'"),
    ],
)
def test_wrong_metrics_are_one_clear_line(tmp_path: Path, study: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        planning.build(design(tmp_path, study), [0])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_another_metric_under_the_name_of_a_plan_is_refused(tmp_path: Path) -> None:
    """Secondary metrics may change their order."""
    before = planning.build(design(tmp_path, SEVERAL % "test_accuracy, test_loss, val_loss"), [0])
    turned = planning.build(design(tmp_path, SEVERAL % "test_accuracy, val_loss, test_loss"), [0])
    fewer = planning.build(design(tmp_path, SEVERAL % "test_accuracy, test_loss"), [0])
    check_same_table(before, turned)
    with pytest.raises(ValueError, match="with metrics test_accuracy, test_loss, val_loss, now it is test_accuracy, t"):
        check_same_table(before, fewer)


def test_a_claim_may_name_the_baseline_of_named_arms(tmp_path: Path) -> None:
    study = "{question: q, baseline: {pool: gap}, arms: {half: axis}, claims: [half < baseline]}"
    assert planning.build(design(tmp_path, study, WITH_ARMS), [0]).baseline == "baseline"


# -- budgets: equal steps, epochs or training FLOPs --------------------------------------------------------------------


LONG = RECIPE.replace("steps: 4", "steps: 400")
FRACTIONS = "{question: q, baseline: {stem: patch}, factors: {stem: [patch, conv]}, curves: {data_fraction: axis}}"


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
    assert [arm.config["steps"] for arm in made.arms] == steps
    if study == with_budget(FRACTIONS, "epochs"):
        assert names(made) == names(design(tmp_path, FRACTIONS, recipe))


def test_equal_flops_are_those_of_a_forward_pass_times_images(tmp_path: Path) -> None:
    """A multiply-add counts as 2 FLOPs, and a training step as 3 forward passes."""
    plan = planning.build(design(tmp_path, with_budget(SIZES, "flops"), LONG), [0])
    spent = {a.name: 6 * (a.flops / 2) * a.config["steps"] * a.config["batch"] for a in plan.arms}
    assert [arm.train_flops for arm in plan.arms] == pytest.approx(list(spent.values()))
    assert all(abs(value / spent["patch=4"] - 1) < 0.02 for value in spent.values())
    assert plan.arms[1].config["steps"] == 400


def test_equal_flops_at_several_budgets_are_those_of_the_baseline_with_the_steps_of_the_point(tmp_path: Path) -> None:
    curved = with_budget(SIZES, "flops").replace("factors:", "curves: {steps: [200, 400]}, factors:")
    plan = planning.build(design(tmp_path, curved, LONG), [0])
    spent = {arm.name: arm.train_flops for arm in plan.arms}
    for arm in plan.arms:
        assert arm.train_flops == pytest.approx(spent[arm.baseline], rel=0.02)
        assert (arm.config["steps"] == arm.values["steps"]) == (arm.name == arm.baseline)
    assert spent["patch=4,steps=400"] == 2 * spent["patch=4,steps=200"]


# -- tuned grids -------------------------------------------------------------------------------------------------------


def test_the_plan_names_the_grid_of_every_arm(tmp_path: Path) -> None:
    """The tuned contrasts are the table's family, and the points another; a curve is tuned at each of its points."""
    plan = planning.build(design(tmp_path, TUNED), [0, 1])
    assert (len(plan.arms), plan.family, plan.points_family, plan.tune) == (6, 1, 3, {"lr": [0.001, 0.002, 0.004]})
    cls, gap = plan.tuned
    assert (gap.name, gap.baseline) == ("pool=gap,lr=tuned", cls.name)
    assert gap.points == [f"pool=gap,lr={lr}" for lr in (0.001, 0.002, 0.004)]
    plan = planning.build(design(tmp_path, TUNED.replace("tune:", "curves: {data_fraction: axis}, tune:")), [0])
    assert [one.name for one in plan.tuned[:2]] == [f"pool=cls,data_fraction={part},lr=tuned" for part in (0.1, 1.0)]
    assert plan.family == 2


def test_an_earlier_plan_grows_into_a_tuned_one(tmp_path: Path) -> None:
    """A curve that becomes a grid keeps its trials, and an arm that is removed stays tuned."""
    runs = tmp_path / "runs"
    curve = TUNED.replace("tune:", "curves:").replace("[cls, gap]", "[cls, gap, map]")
    save_plan(runs, prepare(design(tmp_path, curve), runs, 2))
    grown = prepare(design(tmp_path, TUNED), runs, 2)
    assert (len(grown.arms), len(grown.tuned), grown.family, grown.points_family) == (9, 2, 1, 6)
    save_plan(runs, prepare(design(tmp_path, TUNED.replace("[cls, gap]", "[cls, gap, map]")), runs, 2))
    grown = prepare(design(tmp_path, TUNED), runs, 2)
    assert [entry.change for entry in grown.tuned] == ["pool=cls", "pool=gap", "pool=map"]
    assert (grown.family, grown.points_family) == (2, 6)
