"""A packaged recipe on other data: its statements about its data are dropped."""

import dataclasses
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import synthetic
from in_process import Ablate, refusal
from photographs import photographs

from ablations.planning.plan import build
from ablations.study.design import Design
from ablations.study.reading import read_recipe
from ablations.study.recipe import OF_ITS_DATA, Recipe
from ablations.study.study import Study
from results import report
from results.figures import study_figure
from results.tables import layout, sentences, study_table

FACTORS = {"position": ["none", "1d"]}
OF_DIGITS = re.compile(r"1,797|scikit-learn|writers|test fold")


@pytest.fixture
def pets(tmp_path: Path) -> str:
    return f"imagefolder:{photographs(tmp_path / 'pets', dict.fromkeys('abc', 10), (8, 8))}"


def design(baseline: dict[str, Any], overrides: dict[str, Any], recipe: str = "digits", **more: Any) -> Design:
    study = Study(name="mine", question="Which?", baseline=baseline, factors=FACTORS, **more)
    return Design(study, read_recipe(recipe), overrides)


@pytest.mark.parametrize("where", ["command line", "study"])
def test_a_recipe_states_nothing_of_other_data(pets: str, where: str) -> None:
    own = {"data": pets}
    baseline, overrides = ({"position": "1d"} | own, {}) if where == "study" else ({"position": "1d"}, own)
    plan = build(design(baseline, overrides), [0])
    assert not OF_DIGITS.search(plan.model_dump_json())
    assert (plan.margin, plan.spread) == (None, None)
    assert (plan.caveats, plan.expected) == ([], [])
    assert all(arm.at_twice_the_steps is None for arm in plan.arms)
    assert plan.description.startswith(
        "pets: 24 images to train on and 6 to test on, 3 classes. A ViT of width 32 and depth 3"
    )
    assert (plan.split.kind, plan.split.images) == ("official", 6)
    (note,) = plan.notes
    assert "margin of 3.00 points" in note
    assert "not for pets" in note
    plan = build(design(baseline, overrides, margin=0.02), [0])
    assert (plan.margin, plan.notes) == (0.02, [])


@pytest.mark.parametrize("overrides", [{}, {"data": "digits"}, {"steps": 20}])
def test_a_recipe_speaks_of_its_own_data(overrides: dict[str, Any]) -> None:
    recipe, plan = read_recipe("digits"), build(design({"position": "1d"}, overrides), [0])
    assert plan.description.startswith(recipe.description)
    assert plan.caveats == recipe.caveats
    assert (plan.margin, plan.notes) == (recipe.margin, [])
    assert plan.data.of_recipe


def test_other_data_to_pretrain_on_are_other_data() -> None:
    starts = {"stages": {"pretrain": {}}}
    one = design({"position": "1d", "init_from": "pretrain"}, {}, "cifar10-transfer", **starts)
    other = dataclasses.replace(one, overrides={"pretrain.data": "mnist"})
    assert (one.layers.uses_recipe_data, other.layers.uses_recipe_data) == (True, False)
    assert (one.layers.applicable_recipe.margin, other.layers.applicable_recipe.margin) == (0.01, None)


def test_every_statement_of_a_recipe_is_known_to_be_one() -> None:
    how = {"name", "config", "cost", "seeds", "axes", "arms", "stages", "resources"}
    assert {*Recipe.model_fields} == {*OF_ITS_DATA, *how}


def test_results_name_the_data_that_they_are_on(pets: str) -> None:
    plan = build(design({"position": "1d"}, {"data": pets, "steps": 20}), range(3))
    study = synthetic.results(plan, synthetic.from_accuracies(plan, {arm.name: [0.5, 0.6, 0.7] for arm in plan.arms}))
    table = study_table.table(study)
    assert sentences.answer(table).startswith("On pets (recipe digits) with steps=20, n = 3 seeds per arm")
    of_their_recipe = dataclasses.replace(
        table, recipe="small", data=plan.data.model_copy(update={"of_recipe": True}), overrides={}
    )
    assert sentences.answer(of_their_recipe).startswith("On pets (recipe small), n = 3")
    assert sentences.answer(dataclasses.replace(of_their_recipe, recipe="pets")).startswith("On pets, n = 3")
    assert "all on the same 6 test images" in layout.render(table, "md")
    assert "pets (recipe digits), steps=20" in study_figure.caption(study)[0]
    page = report.render([study], datetime(2026, 1, 2, tzinfo=UTC))
    assert "pets: 24 images to train on and 6 to test on, 3 classes" in page
    assert "EPYC" not in page, "the machine of the recipe's cost"
    assert not OF_DIGITS.search(re.sub("<svg.*?</svg>", "", page, flags=re.DOTALL))


@pytest.mark.parametrize("words", ["run {study}", "train position=1d"])
def test_a_broken_image_is_found_before_a_trial_begins(words: str, pets: str, tmp_path: Path, ablate: Ablate) -> None:
    (tmp_path / "s.yaml").write_text("{question: q, baseline: {position: 1d}, factors: {position: [none, 1d]}}")
    broken = tmp_path / "pets" / "b" / "0007.png"
    broken.write_bytes(broken.read_bytes()[:45])
    asked = words.format(study=tmp_path / "s.yaml").split()
    errors = refusal(ablate, *asked, f"data={pets}", "steps=2", "--runs", str(tmp_path / "runs"))
    assert f"{broken}: cannot be read as an image" in errors
    assert not (tmp_path / "runs").exists()
