"""The confound guard: what moves with an arm is footnoted, what nobody declared is refused, known traps are seen."""

import json
from pathlib import Path
from typing import Any

import pytest
import synthetic
import torch
from designs import RECIPE, design
from photographs import photographs

from ablations.planning import plan as planning
from ablations.planning.jobs import write as write_plan
from ablations.planning.prepare import prepare
from ablations.study import confounds
from ablations.study.design import Design
from ablations.study.reading import packaged, read_recipe, read_study
from results import store
from results.store.schemas import Plan
from vitcore import ViT
from vitcore.analysis.cost import initial_weights
from vitcore.config import Config
from vitcore.data.lookup import describe

SMALL: dict[str, Any] = {"data": "digits", "width": 16, "depth": 2, "heads": 2, "patch": 4}
VARIED = [
    {"position": "none"},
    {"position": "2d"},
    {"position": "relative"},
    {"position": "1d", "position_at": "every-layer"},
    {"pool": "gap"},
    {"pool": "map"},
    {"stem": "conv"},
    {"stem": "resnet-small"},
    {"head": "mlp"},
    {"init": "paper"},
    {"registers": 2},
    {"layer_scale": 0.1},
    {"qk_norm": True},
    {"depth": 1},
    {"width": 32},
]


def notes(folder: Path, study: str, recipe: str = RECIPE) -> dict[str, list[str]]:
    plan = planning.build(design(folder, study, recipe), [0])
    return {arm.name: arm.notes for arm in plan.arms}


def share(config: Config, baseline: Config) -> float:
    """As the footnote has it: parameters of one name that are drawn alike, by their numbers of values."""
    own, other = initial_weights(config), initial_weights(baseline)
    total = sum(count for count, _ in own.values())
    return sum(drawn[0] for name, drawn in own.items() if other.get(name) == drawn) / total


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1_120_000, " (+12.0%)"),
        (999_400, " (-0.1%)"),
        (999_600, ""),
        (1_000_400, ""),
        (3_900_000, " (× 3.9)"),
        (10_000, " (× 0.01)"),
        (12_000_000, " (× 12)"),
    ],
)
def test_a_change_is_said_as_far_as_there_is_one(value: int, said: str) -> None:
    """Against a million: in percent or as a factor, and without either where it rounds to none."""
    assert confounds.change(value, 1_000_000) == said


@pytest.mark.parametrize("change", VARIED, ids=lambda change: ",".join(f"{k}={v}" for k, v in change.items()))
def test_the_share_of_equal_initial_weights_is_that_of_models_that_are_drawn(change: dict[str, Any]) -> None:
    """Nothing is drawn to tell it, and yet it is what comparing two drawn models at one seed gives."""
    config, baseline = Config(**SMALL | change, seed=3), Config(**SMALL, seed=3)
    own, other = (dict(ViT(one).named_parameters()) for one in (config, baseline))
    equal = sum(
        value.numel() for name, value in own.items() if name in other and torch.equal(value, other[name].to(value))
    )
    assert share(config, baseline) == pytest.approx(equal / sum(value.numel() for value in own.values()))


def test_a_position_left_out_drops_no_class_token(tmp_path: Path) -> None:
    """The trap: `position=none` without the token. Only the table is gone; every weight left starts as it did."""
    study = "{question: q, baseline: {position: 1d, pool: cls}, factors: {position: [none, 1d]}}"
    (note,) = notes(tmp_path, study)["position=none"]
    assert note.startswith("parameters ")
    with_token, without = (Config(**SMALL, position=kind) for kind in ("1d", "none"))
    assert ViT(with_token).prefix == ViT(without).prefix == 1


def test_a_part_that_drops_the_class_token_is_footnoted(tmp_path: Path) -> None:
    """Tokens and class token, as pooling without one shows."""
    found = notes(tmp_path, "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}}")["pool=gap"]
    assert "has no class token" in found
    assert any(note.startswith("tokens 4 against 5") for note in found)


def test_gap_averages_patches_and_no_class_token() -> None:
    """The trap: an average that reads a token in front of the patches. Whatever stands there, GAP stays the same."""
    model = ViT(Config(**SMALL, pool="gap", registers=2))
    assert model.class_token is None
    x = torch.randn(1, 2 + 4, 16)
    changed = x.clone()
    changed[:, :2] += 100
    assert torch.equal(model.pool(x, model.prefix), model.pool(changed, model.prefix))


def test_a_batch_that_changes_warm_up_is_footnoted(tmp_path: Path) -> None:
    """The trap: at equal epochs another batch is another number of warm-up steps; at equal steps, of images."""
    recipe = RECIPE.replace("steps: 4", "steps: 400")
    study = "{question: q, baseline: {batch: 32}, factors: {batch: [32, 64]}BUDGET}"
    assert notes(tmp_path, study.replace("BUDGET", ", budget: epochs"), recipe)["batch=64"] == [
        "steps 200 against 400, for equal epochs",
        "warm-up steps 20 against 40",
    ]
    assert notes(tmp_path, study.replace("BUDGET", ""), recipe)["batch=64"] == [
        "images seen in training 25,600 against 12,800"
    ]


def test_enlarging_small_images_is_footnoted(tmp_path: Path) -> None:
    """Of the arms, and of evaluations at other sizes: digits of 16 pixels show nothing that 8 do not."""
    study = "{question: q, baseline: {position: 2d}, factors: {image_size: [8, 16]}, evals: [test@32]}"
    line = "images of {} px are enlarged from the 8 px that digits has"
    plan = planning.build(design(tmp_path, study), [0])
    told = {arm.name: [note for note in arm.notes if "enlarged" in note] for arm in plan.arms}
    assert told == {"image_size=8": [], "image_size=16": [line.format(16)]}
    assert plan.caveats == [f"In evaluations, {line.format(32)}."]


def test_enlarging_the_images_of_a_folder_is_said(tmp_path: Path) -> None:
    """Its photographs have any size: the first stands for them."""
    folder = photographs(tmp_path / "pets", {"train/cat": 2, "train/dog": 2, "test/cat": 1, "test/dog": 1})
    side = describe(f"imagefolder:{folder}").image_size
    assert not list(confounds.enlarged(f"imagefolder:{folder}", side))
    (line,) = confounds.enlarged(f"imagefolder:{folder}", 512)
    assert line == f"images of 512 px are enlarged from the {side} px that the first image of the folder has"


def test_a_bias_in_the_attention_is_footnoted(tmp_path: Path) -> None:
    """Of the kinds that add to the logits, and of no other."""
    study = "{question: q, baseline: {position: 1d}, factors: {position: [1d, relative, relative-bias, rope2d]}}"
    found = notes(tmp_path, study)
    assert {name for name, said in found.items() if "a bias in its attention" in said} == {
        "position=relative",
        "position=relative-bias",
    }


def test_a_named_arm_says_what_it_is(tmp_path: Path) -> None:
    """Its name does not; where the settings are the recipe's, the study does not either."""
    recipe = RECIPE + "    arms: {half: {width: 8}}\n"
    study = "{question: q, baseline: {pool: gap}, arms: {half: axis, slow: {lr: 1e-4, batch: 16}}}"
    found = notes(tmp_path, study, recipe)
    assert found["half"][0] == "is width=8"
    assert found["slow"][0] == "is lr=0.0001,batch=16"


def test_a_declared_co_change_is_footnoted(tmp_path: Path) -> None:
    """`with`: what changes along, for that arm, in its crosses too, and nowhere else."""
    study = """
        question: q
        baseline: {pool: cls, position: 1d}
        factors: {pool: [cls, gap], position: [1d, 2d]}
        crosses: [{pool: [cls, gap], position: [1d, 2d]}]
        with: {pool=gap: {lr: 3e-4}}
    """
    made = design(tmp_path, study)
    assert {arm.name: arm.config.lr for arm in made.arms} == {
        "pool=cls,position=1d": 0.002, "pool=gap": 0.0003, "position=2d": 0.002, "pool=gap,position=2d": 0.0003
    }  # fmt: skip
    assert "with lr 0.0003 against 0.002, declared" in notes(tmp_path, study)["pool=gap"]


def test_an_old_arm_with_another_recipe_is_refused(tmp_path: Path) -> None:
    """An arm of an earlier plan is kept as it was trained; where its baseline is another by now, it cannot stay."""
    runs = tmp_path / "runs"
    study = "{question: q, baseline: {patch: 4}, factors: {patch: [2, 4, 8]}, curves: {data_fraction: axis}}"
    plan = prepare(design(tmp_path, study), runs, 1)
    old = next(arm for arm in plan.arms if arm.name == "patch=8,data_fraction=0.1")
    old.config["lr"] = 0.5
    write_plan(runs, plan)
    with pytest.raises(
        ValueError,
        match=r"s@r: patch=8,data_fraction=0.1 differs from patch=4,data_fraction=0.1 in lr, 0.5 against 0.002, which "
        r"the study does not declare: name it in `with`, or plan anew with --prune",
    ):
        prepare(design(tmp_path, study.replace("2, 4, 8", "2, 4")), runs, 1)


def test_arms_planned_before_declarations_were_written_are_judged_by_their_names(tmp_path: Path) -> None:
    """An assignment declares its keys; what a named arm declared was never written down."""
    runs = tmp_path / "runs"
    study = "{question: q, baseline: {position: 1d}, factors: {position: [none, 1d, 2d]}, arms: {ours: {lr: 0.5}}}"
    plan = synthetic.without(prepare(design(tmp_path, study), runs, 1), "declared")
    write_plan(runs, plan)
    one = "{question: q, baseline: {position: 1d}, factors: {position: [none]}}"
    grown = prepare(design(tmp_path, one), runs, 1)
    assert [arm.name for arm in grown.arms] == ["position=1d", "position=none", "position=2d", "ours"]
    plan.arms[2].config["weight_decay"] = 0.9
    write_plan(tmp_path / "other", plan)
    with pytest.raises(ValueError, match=r"position=2d differs from position=1d in weight_decay, 0.9 against 0.05"):
        prepare(design(tmp_path, one), tmp_path / "other", 1)


@pytest.mark.parametrize("study", packaged("studies"))
def test_every_packaged_study_declares_what_it_changes(study: str) -> None:
    """A difference that nobody declared would be an error here, as would an arm that cannot be.

    As plan.json it is read as it was made.
    """
    plan = planning.build(Design(read_study(study), read_recipe("digits"), {}), [0])
    content = json.loads(json.dumps(store.plan_content(plan)))
    assert Plan.model_validate(content) == plan
    assert json.dumps(store.plan_content(Plan.model_validate(content))) == json.dumps(content)
    assert {arm.baseline for arm in plan.arms} <= {arm.name for arm in plan.arms}
    assert all(arm.params > 0 for arm in plan.arms)


def test_what_a_setting_brings_along_is_declared_with_it(tmp_path: Path) -> None:
    """A position's place and options, a reference model's architecture."""
    study = """
        question: q
        baseline: {position: 1d}
        factors: {position: [1d, relative, rope2d]}
        arms: {resnet: {model: timm/test_resnet}, other: {position: 1d, position.combine: concat}}
    """
    assert len(notes(tmp_path, study)) == 5
