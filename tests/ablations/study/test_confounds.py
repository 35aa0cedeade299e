"""Confounds: side effects of a factor are footnoted, undeclared differences are errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import synthetic
import torch
from designs import RECIPE, design
from photographs import photographs

from ablations.planning import plan as planning
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan
from ablations.study.design import Design
from ablations.study.naming import packaged_names
from ablations.study.reading import read_recipe, read_study
from ablations.trainables.vit.data import enlargement_notes
from ablations.trainables.vit.notes import change_text
from results import store
from results.store.schemas.plans import Plan
from vitcore import ViT
from vitcore.analysis.cost import initial_weights
from vitcore.config import Config
from vitcore.data.lookup import describe

SMALL: dict[str, Any] = {"data": "digits", "width": 16, "depth": 2, "heads": 2, "patch": 4}
VARIED: list[dict[str, Any]] = [
    *({"position": "none"}, {"position": "2d"}, {"position": "relative"}, {"position_at": "every-layer"}),
    *({"pool": "gap"}, {"pool": "map"}, {"stem": "conv"}, {"stem": "resnet-small"}, {"head": "mlp"}),
    *({"init": "paper"}, {"registers": 2}, {"layer_scale": 0.1}, {"qk_norm": True}, {"depth": 1}, {"width": 32}),
]
MIXED, BASE = ({"position": "rope2d", "position.mixed": True} | more for more in ({}, {"position.base": 20}))


def notes(folder: Path, study: str, recipe: str = RECIPE) -> dict[str, list[str]]:
    return {arm.name: arm.notes for arm in planning.build(design(folder, study, recipe), [0]).arms}


CHANGES = {1.12: " (+12.0%)", 0.9994: " (-0.1%)", 0.9996: "", 1.0004: "", 3.9: " (× 3.9)", 0.01: " (× 0.01)"}


@pytest.mark.parametrize(("value", "said"), CHANGES.items())
def test_a_relative_change_is_a_percentage_or_a_factor(value: float, said: str) -> None:
    assert change_text(value, 1) == said


@pytest.mark.parametrize(("change", "plain"), [*((change, {}) for change in VARIED), (MIXED, MIXED), (BASE, MIXED)])
def test_the_share_of_equal_initial_weights_is_that_of_models_that_are_drawn(
    change: dict[str, Any], plain: dict[str, Any]
) -> None:
    config, baseline = (Config(**SMALL | one, seed=3) for one in (change, plain))
    own, other = (dict(ViT(one).named_parameters()) for one in (config, baseline))
    equal = sum(
        value.numel() for name, value in own.items() if name in other and torch.equal(value, other[name].to(value))
    )
    drawn, known = initial_weights(config), initial_weights(baseline)
    share = sum(one[0] for name, one in drawn.items() if known.get(name) == one) / sum(
        count for count, _ in drawn.values()
    )
    assert share == pytest.approx(equal / sum(value.numel() for value in own.values()))


BATCHES = "baseline: {batch: 32}, factors: {batch: [32, 64]}"
FOOTNOTES: list[tuple[str, dict[str, list[str]]]] = [
    ("baseline: {position: 1d, pool: cls}, factors: {position: [none, 1d]}", {"position=none": ["parameters "]}),
    (
        "baseline: {pool: cls}, factors: {pool: [cls, gap]}",
        {"pool=gap": ["tokens 4 against 5", "parameters ", "FLOPs ", "has no class token"]},
    ),
    (BATCHES, {"batch=64": ["images seen in training 25,600 against 12,800"]}),
    (
        f"{BATCHES}, budget: epochs",
        {"batch=64": ["steps 200 against 400, for equal epochs", "warm-up steps 20 against 40"]},
    ),
    (
        "baseline: {pool: gap}, arms: {half: axis, slow: {lr: 1e-4, warmup: 0.5}}",
        {"slow": ["is lr=0.0001,warmup=0.5"], "baseline": []},
    ),
    (
        "baseline: {lr: 1e-3}, factors: {lr: [1e-3, 1e-2]}, with: {lr=0.01: {warmup: 0.5}}",
        {"lr=0.01": ["with warmup 0.5 against 0.1, declared"]},
    ),
    (
        "baseline: {lr: 1e-3}, factors: {lr: axis}, with: {'lr=axis[1]': {warmup: 0.5}}",
        {"lr=0.001": [], "lr=0.002": ["with warmup 0.5 against 0.1, declared"]},
    ),
]


@pytest.mark.parametrize(("study", "expected"), FOOTNOTES, ids=[study for study, _ in FOOTNOTES])
def test_side_effects_are_footnoted(tmp_path: Path, study: str, expected: dict[str, list[str]]) -> None:
    """A note is compared by its beginning."""
    recipe = RECIPE.replace("steps: 4", "steps: 400") + "    arms: {half: {width: 8}}\n"
    found = notes(tmp_path, f"{{question: q, {study}}}", recipe)
    for arm, beginnings in expected.items():
        assert len(found[arm]) == len(beginnings), found[arm]
        assert all(note.startswith(start) for note, start in zip(found[arm], beginnings, strict=True)), found[arm]


def test_a_bias_in_the_attention_is_footnoted(tmp_path: Path) -> None:
    study = "{question: q, baseline: {position: 1d}, factors: {position: [1d, none, relative, relative-bias, rope2d]}}"
    biased = {name for name, said in notes(tmp_path, study).items() if "a bias in its attention" in said}
    assert biased == {"position=relative", "position=relative-bias"}


def test_enlarging_images_is_footnoted(tmp_path: Path) -> None:
    """In trainings and in evaluations; of a folder, the first image counts."""
    study = "{question: q, baseline: {position: 2d}, factors: {image_size: [8, 16]}, evals: [test@32]}"
    line = "images of {} px are enlarged from the 8 px that digits has"
    plan = planning.build(design(tmp_path, study), [0])
    enlarged = {arm.name: [note for note in arm.notes if "enlarged" in note] for arm in plan.arms}
    assert enlarged == {"image_size=8": [], "image_size=16": [line.format(16)]}
    assert plan.caveats == [f"In evaluations, {line.format(32)}."]
    folder = photographs(tmp_path / "pets", {"train/cat": 2, "train/dog": 2, "test/cat": 1, "test/dog": 1})
    side = describe(f"imagefolder:{folder}").image_size
    assert not list(enlargement_notes(f"imagefolder:{folder}", side))
    (line,) = enlargement_notes(f"imagefolder:{folder}", 512)
    assert line == f"images of 512 px are enlarged from the {side} px that the first image of the folder has"


def test_a_co_change_applies_to_its_arm_and_to_crosses_with_it(tmp_path: Path) -> None:
    study = """
        question: q
        baseline: {pool: cls, position: 1d}
        factors: {pool: [cls, gap], position: [1d, 2d]}
        crosses: [{pool: [cls, gap], position: [1d, 2d]}]
        with: {pool=gap: {lr: 3e-4}}
    """
    assert {arm.name: arm.config["lr"] for arm in design(tmp_path, study).arms} == {
        "pool=cls,position=1d": 0.002, "pool=gap": 0.0003, "position=2d": 0.002, "pool=gap,position=2d": 0.0003
    }  # fmt: skip


def test_an_old_arm_with_another_recipe_is_refused(tmp_path: Path) -> None:
    study = "{question: q, baseline: {patch: 4}, factors: {patch: [2, 4, 8]}, curves: {data_fraction: axis}}"
    plan = prepare(design(tmp_path, study), tmp_path, 1)
    old = next(arm for arm in plan.arms if arm.name == "patch=8,data_fraction=0.1")
    old.config["lr"] = 0.5
    save_plan(tmp_path, plan)
    with pytest.raises(ValueError, match=r"s@r: patch=8,.* from patch=4,.* in lr, 0.5 against 0.002, .*--prune"):
        prepare(design(tmp_path, study.replace("2, 4, 8", "2, 4")), tmp_path, 1)


def test_arms_planned_before_declarations_were_written_are_judged_by_their_names(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    study = "{question: q, baseline: {position: 1d}, factors: {position: [none, 1d, 2d]}, arms: {ours: {lr: 0.5}}}"
    plan = synthetic.without(prepare(design(tmp_path, study), runs, 1), "declared")
    save_plan(runs, plan)
    one = "{question: q, baseline: {position: 1d}, factors: {position: [none]}}"
    grown = prepare(design(tmp_path, one), runs, 1)
    assert [arm.name for arm in grown.arms] == ["position=1d", "position=none", "position=2d", "ours"]
    plan.arms[2].config["weight_decay"] = 0.9
    save_plan(tmp_path / "other", plan)
    with pytest.raises(ValueError, match=r"position=2d differs from position=1d in weight_decay, 0.9 against 0.05"):
        prepare(design(tmp_path, one), tmp_path / "other", 1)


@pytest.mark.parametrize("study", packaged_names("studies"))
def test_every_packaged_study_declares_what_it_changes(study: str) -> None:
    plan = planning.build(Design(read_study(study), read_recipe("digits"), {}), [0])
    content = json.loads(json.dumps(store.plan_content(plan)))
    assert Plan.model_validate(content) == plan
    assert json.dumps(store.plan_content(Plan.model_validate(content))) == json.dumps(content)
    assert {arm.baseline for arm in plan.arms} <= {arm.name for arm in plan.arms}
    assert all(arm.params > 0 for arm in plan.arms)


def test_what_a_setting_brings_along_is_declared_with_it(tmp_path: Path) -> None:
    study = """
        question: q
        baseline: {position: 1d}
        factors: {position: [1d, relative, rope2d]}
        arms: {resnet: {model: timm/test_resnet}, other: {position: 1d, position.combine: concat}}
    """
    assert len(notes(tmp_path, study)) == 5
