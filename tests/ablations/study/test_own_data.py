"""Own data: `ablate init`, and a packaged recipe, whose statements about its own data are dropped."""

import dataclasses
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import synthetic
from in_process import Ablate, refusal
from photographs import packed, photographs
from PIL import Image

from ablations.cli import init
from ablations.execution.launch import Place
from ablations.planning.plan import build
from ablations.study.design import Design
from ablations.study.naming import packaged_names
from ablations.study.reading import read_recipe, read_study
from ablations.study.recipe import OF_CODE, OF_COMMANDS, OF_ITS_DATA, Recipe
from ablations.study.study import Study
from ablations.trainables.vit.image_folders import choices
from ablations.trainables.vit.image_folders.choices import CPU, GPU, patch_and_size
from ablations.trainables.vit.image_folders.survey import survey
from results import report
from results.figures import study_figure
from results.tables import layout, sentences, study_table
from vitcore.config import Config


def photos(folder: Path, count: int = 12, classes: Sequence[str] = ("cat", "dog")) -> Path:
    return photographs(folder, dict.fromkeys(classes, count), (24, 20))


def test_the_recipe_is_one_that_studies_run_on(ablate: Ablate, tmp_path: Path) -> None:
    photos(tmp_path / "my photos")
    status, output, errors = ablate("init", "my photos")
    assert (status, errors) == (0, "")
    text = (tmp_path / "my-photos.yaml").read_text()
    for line in re.findall(r"^(?:  \w+|seeds|margin): .*$", text, re.MULTILINE):
        assert "  # " in line or line.startswith("  data:")
    recipe = read_recipe("my-photos.yaml")
    config = Config(**recipe.config)
    assert config.image_size <= 20
    assert config.data == f"imagefolder:{(tmp_path / 'my photos').resolve()}"
    assert recipe.margin is not None
    for study in packaged_names("studies"):
        assert Design(read_study(study), recipe, {}).arms, study
    commands = [shlex.split(line) for line in output.splitlines() if line.startswith("  ablate ")]
    assert [words[1:3] for words in commands[:3]] == [["plan", "demo"], ["run", "demo"], ["report", "demo"]]
    whole, some = (Design(read_study(words[2]), recipe, {}) for words in (commands[3], commands[1]))
    assert {arm.key for arm in some.arms} < {arm.key for arm in whole.arms}, "not trained again"
    assert not any("--arm" in words for words in commands), "a part of a plan has no verdicts"
    assert "exists already" in refusal(ablate, "init", "my photos")


def test_printed_commands_name_the_folders(ablate: Ablate, tmp_path: Path) -> None:
    packed(photos(tmp_path / "photos"), tmp_path / "packs", "pets")
    output = ablate("init", "packs/pets", "--runs", "my runs")[1]
    assert "  ablate run demo --recipe pets.yaml --runs 'my runs' --data-dir packs  " in output
    assert "  ablate report demo --recipe pets.yaml --runs 'my runs'  " in output
    commands = output.partition("go on with:\n")[2].splitlines()
    assert len({line.index(" # ") for line in commands}) == 1, "what they are for stands in one column"


def test_an_edited_recipe_is_described_as_it_is(ablate: Ablate, tmp_path: Path) -> None:
    photos(tmp_path / "pets")
    assert ablate("init", "pets")[0] == 0
    file = tmp_path / "pets.yaml"
    edited = file.read_text()
    for key, value in {"width": 32, "depth": 3, "image_size": 16, "steps": 400}.items():
        edited, count = re.subn(rf"^  {key}: \d+ ", f"  {key}: {value} ", edited, count=1, flags=re.MULTILINE)
        assert count == 1
    file.write_text(edited)
    plan = build(Design(read_study("demo"), read_recipe("pets.yaml"), {}), [0])
    assert plan.description == (
        "pets: 24 images of 2 classes. A ViT of width 32 and depth 3 with patches of 2 pixels, "
        "trained at 16 x 16 pixels, 400 steps of 8 images."
    )
    comments = re.findall(r"^  (?:width|depth|heads|patch|steps): \d+ +# (.*)$", edited, re.MULTILINE)
    assert len(comments) == 5
    assert not [text for text in comments if re.search(r"\d (tokens|epochs$|pixels)", text)]


def test_a_broken_image_is_to_be_removed_before_anything_else(ablate: Ablate, tmp_path: Path) -> None:
    (photos(tmp_path / "pets") / "dog" / "0001.png").write_bytes(b"nothing")
    output = ablate("init", "pets")[1]
    assert "\n\nremove the broken images named above, then go on with:\n" in output


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    folder = photos(tmp_path / "pets")
    (folder / "cat" / "0000.png").write_bytes(b"nothing")
    found = survey(folder)
    assert [text.partition(": ")[0] for text in found.broken] == ["cat/0000.png"]
    assert "broken   1 file, which `ablate run` refuses: remove it: cat/0000.png: " in found.lines()[-1]
    assert "classes  2, of 10 training images each" in found.lines()
    assert (found.train + found.test, found.channels, found.side) == (24, 3, 20)


def test_images_of_quite_another_size_are_named(tmp_path: Path) -> None:
    folder = photos(tmp_path / "pets", count=50)
    Image.new("RGB", (90, 80)).save(folder / "cat" / "0007.png")
    (line,) = (line for line in survey(folder).lines() if line.startswith("odd"))
    assert "1 image much smaller or larger" in line
    assert "cat/0007.png (80 pixels)" in line
    for number in range(20):
        Image.new("RGB", (90, 80)).save(folder / "dog" / f"{number:04}.png")
    assert not [line for line in survey(folder).lines() if line.startswith("odd")]


def test_folders_and_classes_that_are_not_enough_are_named(ablate: Ablate, tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    photos(tmp_path / "one", classes=("cat",))
    photos(photos(tmp_path / "pets"), count=1, classes=("rare", "rarer"))
    layout = "PATH/<class>/*.jpg or PATH/train/<class>/*.jpg"
    for folder, *said in (
        ("flat", "no class folders", layout),
        ("one", "only the class folder 'cat'", layout),
        ("pets", "rare (1), rarer (1); each needs 3 images in all"),
    ):
        errors = refusal(ablate, "init", folder)
        assert all(part in errors for part in said)
    assert not list(tmp_path.glob("*.yaml"))


@pytest.mark.parametrize("path", ["pets", "parquet:pets/data/*.parquet"])
def test_files_of_many_images_are_to_be_packed_first(path: str, ablate: Ablate, tmp_path: Path) -> None:
    (tmp_path / "pets" / "data").mkdir(parents=True)
    (tmp_path / "pets" / "data" / "train-00000-of-00001.parquet").touch()
    errors = refusal(ablate, "init", path, "--out", "r.yaml")
    assert f"{path}: is no folder of images: `ablate data pack NAME SOURCE` packs such files" in errors


@pytest.mark.parametrize("side", [8, 16, 20, 28, 30, 32, 64, 100, 256, 500])
@pytest.mark.parametrize("device", [CPU, GPU])
def test_patches_divide_images_that_are_not_enlarged(side: int, device: str) -> None:
    patch, size = patch_and_size(side, device)
    assert size % patch == 0
    assert size <= min(side, choices.LARGEST[device])
    assert 4 <= size // patch <= choices.GRID[device] + 7


def test_tuning_takes_the_best_of_what_it_trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    best = (choices.learning_rates(2e-3)[3], 128)
    monkeypatch.setattr(init, "train_here", lambda jobs, place, workers: None)
    monkeypatch.setattr(init, "finish", lambda summary, asked, where: None)
    monkeypatch.setattr(init, "accuracy", lambda runs, job: float((job.config["lr"], job.config["width"]) == best))
    found = survey(photos(tmp_path / "pets"))
    chosen = init.measure(found, CPU, Place(tmp_path / "runs", None), None, "")
    assert (chosen["lr"].value, chosen["width"].value) == best
    assert "edge" in chosen["lr"].reason
    assert "width: 128" in choices.render(found, CPU, chosen, read_recipe("digits").arms)


def test_tuning_takes_no_rate_from_trials_that_all_diverged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The recipe keeps the rate of the rule, and says so."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "train_here", lambda jobs, place, workers: None)
    monkeypatch.setattr(init, "finish", lambda summary, asked, where: None)
    found = survey(photos(tmp_path / "pets"))
    chosen = init.measure(found, CPU, Place(tmp_path / "runs", None), None, "")
    by_rule = {one.key: one.value for one in choices.config_choices(found, CPU)}
    assert {key: one.value for key, one in chosen.items()} == {key: by_rule[key] for key in ("lr", "width")}
    assert chosen["lr"].reason == "by rule, as all 6 trials of --tune diverged"


def test_tuning_names_run_directories_as_given(ablate: Ablate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named: list[str] = []
    monkeypatch.setattr(init, "train_here", lambda jobs, place, workers: None)
    monkeypatch.setattr(init, "finish", lambda summary, asked, where: named.append(where))
    photos(tmp_path / "pets")
    for options in ([], ["--runs", "my runs"]):
        assert ablate("init", "pets", "--tune", "--out", f"{len(named)}.yaml", *options)[0] == 0
    assert named == ["", " --runs 'my runs'"]


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
    assert "margin of 1.00 points" in note
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
    assert (one.uses_recipe_data, other.uses_recipe_data) == (True, False)
    assert (one.applicable_recipe.margin, other.applicable_recipe.margin) == (0.01, None)


def test_every_statement_of_a_recipe_is_known_to_be_one() -> None:
    how = {"name", "config", "train", "cost", "seeds", "axes", "arms", "stages", "resources"}
    how |= {"paired", "probe", "inert"}
    assert {*Recipe.model_fields} == {*OF_ITS_DATA, *how, *OF_CODE, *OF_COMMANDS}


def test_results_name_the_data_that_they_are_on(pets: str) -> None:
    plan = build(design({"position": "1d"}, {"data": pets, "steps": 20}), range(3))
    study = synthetic.results(plan, synthetic.from_accuracies(plan, {arm.name: [0.5, 0.6, 0.7] for arm in plan.arms}))
    table = study_table.table(study)
    assert sentences.answer(table).startswith("On pets (recipe digits) with steps=20, n = 3 seeds per arm")
    data = plan.data.model_copy(update={"of_recipe": True})
    as_planned = plan.model_copy(update={"recipe": "small", "data": data, "overrides": {}})
    of_their_recipe = dataclasses.replace(table, plan=as_planned)
    assert sentences.answer(of_their_recipe).startswith("On pets (recipe small), n = 3")
    assert sentences.answer(
        dataclasses.replace(table, plan=as_planned.model_copy(update={"recipe": "pets"}))
    ).startswith("On pets, n = 3")
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
