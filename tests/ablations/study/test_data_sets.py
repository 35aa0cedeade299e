"""`data` as a factor: every arm on every data set, and comparisons on the same data only."""

from pathlib import Path

import pytest
from designs import RECIPE, design, names
from photographs import photographs

from ablations.planning import overview
from ablations.planning.estimate import Device
from ablations.planning.plan import build
from ablations.study.design import Design
from ablations.trainables.vit.commands.data_folders import DataFolders
from results.store.schemas.plans import Split

STUDY = "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap], data: [digits, mnist]}, MORE}"
RECIPE_WITH_MARGIN = RECIPE + "    margin: 0.02\n"


def two_sets(folder: Path, more: str = "", recipe: str = RECIPE) -> Design:
    return design(folder, STUDY.replace(", MORE", f", {more}" if more else ""), recipe)


def test_arms_are_compared_with_the_baseline_on_the_same_data(tmp_path: Path) -> None:
    plan = build(two_sets(tmp_path), [0, 1])
    assert {arm.name: arm.baseline for arm in plan.arms} == {
        "pool=cls,data=digits": "pool=cls,data=digits",
        "pool=cls,data=mnist": "pool=cls,data=mnist",
        "pool=gap,data=digits": "pool=cls,data=digits",
        "pool=gap,data=mnist": "pool=cls,data=mnist",
    }
    assert (plan.family, plan.data_sets, plan.baseline) == (2, ["digits", "mnist"], "pool=cls,data=digits")


def test_each_arm_has_the_images_classes_and_test_set_of_its_data(tmp_path: Path) -> None:
    arms = build(two_sets(tmp_path), [0]).arms_by_name
    digits = arms["pool=gap,data=digits"]
    mnist = arms["pool=gap,data=mnist"]
    assert digits.split == Split(kind="folds", folds=5, images=1797)
    assert mnist.split == Split(kind="official", folds=None, images=10_000)
    assert digits.data is not None
    assert mnist.data is not None
    assert (digits.data.image_size, mnist.data.image_size) == (8, 28)
    assert mnist.config["image_size"] == 28


def test_the_trials_are_those_of_studies_of_one_data_set(tmp_path: Path) -> None:
    """The same ids as without the factor, so that results are shared. Their plans have no data for each arm."""
    alone = build(design(tmp_path, STUDY.replace(", data: [digits, mnist]}, MORE", "}")), [0])
    both = build(two_sets(tmp_path), [0])
    assert alone.arms_by_name["pool=gap"].ids == both.arms_by_name["pool=gap,data=digits"].ids
    assert "split" not in alone.arms[0].content()


def test_data_may_be_a_curve_too(tmp_path: Path) -> None:
    curve = "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}, curves: {data: [digits, mnist]}}"
    assert names(design(tmp_path, curve)) == names(two_sets(tmp_path))


def test_a_baseline_on_data_that_are_not_listed_is_refused(tmp_path: Path) -> None:
    study = STUDY.replace(", MORE", "").replace("{pool: cls}", "{pool: cls, data: cifar10}")
    with pytest.raises(ValueError, match="baseline: data=cifar10: one of digits, mnist"):
        build(design(tmp_path, study), [0])


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("pets/data", "birds/data"), ["pets", "birds"]),
        (("data", "birds/data"), ["data", "birds/data"]),
        (("pets", "birds"), ["pets", "birds"]),
    ],
)
def test_folders_of_equal_names_are_told_apart(tmp_path: Path, paths: tuple[str, ...], names: list[str]) -> None:
    counts = {"cat": 5, "dog": 5}
    sizes = ((24, 16), (16, 24))  # other images, about which a plan states the same
    folders = [photographs(tmp_path / path, counts, size) for path, size in zip(paths, sizes, strict=True)]
    listed = ", ".join(f"'imagefolder:{folder}'" for folder in folders)
    plan = build(design(tmp_path, STUDY.replace("digits, mnist", listed).replace(", MORE", "")), [0])
    assert [arm.data.name for arm in plan.arms[:2] if arm.data] == names
    view = overview.overview(plan, tmp_path / "runs", [], Device(False, ""))
    lines = [line.split(":")[0].split() for line in overview.render(view, plan).splitlines() if "  data " in line]
    assert lines == [["data", name] for name in names]


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("with: {pool=gap: {data: mnist}}", "with: pool=gap: data is what the study varies"),
        ('claims: ["pool=gap,data=digits < pool=cls,data=mnist"]', "claim pool=gap,data=digits < pool=cls,data=mnist"),
    ],
)
def test_no_comparison_across_data_sets(tmp_path: Path, more: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        build(two_sets(tmp_path, more), [0])


@pytest.mark.parametrize(
    "varied", ["arms: {other: {data: mnist}}", "crosses: [{pool: [cls, gap], data: [digits, mnist]}]"]
)
def test_an_arm_on_other_data_is_refused(tmp_path: Path, varied: str) -> None:
    study = f"{{question: q, baseline: {{pool: cls}}, {varied}}}"
    with pytest.raises(ValueError, match=r"mnist against digits: numbers on different test images are not compared"):
        build(design(tmp_path, study), [0])


def test_a_margin_of_the_recipe_holds_for_its_own_data_alone(tmp_path: Path) -> None:
    plan = build(two_sets(tmp_path, recipe=RECIPE_WITH_MARGIN), [0])
    assert plan.margin is None
    assert "is for its own data, not for several data sets" in plan.notes[0]
    assert build(two_sets(tmp_path, "margin: 0.03", RECIPE_WITH_MARGIN), [0]).margin == 0.03


@pytest.mark.parametrize(
    ("budget", "on_mnist"),
    [("steps", {400}), ("epochs", {400 * 60_000 // 1437}), ("flops", {400, 410})],
)
def test_budgets_are_met_on_each_data_set(tmp_path: Path, budget: str, on_mnist: set[int]) -> None:
    """FLOPs are those of the baseline on the same data, of which pool=gap needs fewer an image."""
    recipe = RECIPE.replace("steps: 4,", "steps: 400,")
    plan = build(two_sets(tmp_path, f"budget: {budget}", recipe), [0])
    assert {arm.config["steps"] for arm in plan.arms if arm.values["data"] == "mnist"} == on_mnist
    assert plan.baseline_arm.config["steps"] == 400


def test_a_plan_describes_every_data_set(tmp_path: Path) -> None:
    plan = build(two_sets(tmp_path), [0])
    lines = [overview.images_text(plan, arm.data) for arm in plan.arms[:2] if arm.data]
    assert [line.partition(":")[0] for line in lines] == ["digits", "mnist"]
    assert lines[0].endswith("8 pixels wide, trained at 8, 4 to 5 tokens")
    assert lines[1].endswith("28 pixels wide, trained at 28, 49 to 50 tokens")
    assert plan.description.endswith("Also trained on mnist: 10 classes, 60,000 images at 28 px.")


def test_named_folders_may_be_values() -> None:
    """Names in ablate.toml stand for folders in a list of values as well."""
    folders = DataFolders(images={"pets": "/images/pets"})
    content = {"factors": {"data": ["digits", "pets"]}}
    assert folders.resolve(content) == {"factors": {"data": ["digits", "imagefolder:/images/pets"]}}
