"""A plan that is there already: what follows from the same is not made again, anything else is."""

import itertools
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from PIL import Image

from ablations.cli import running
from ablations.execution import provenance
from ablations.planning import jobs
from ablations.planning import plan as planning
from ablations.planning import prepare as preparing
from ablations.planning.jobs import write as write_plan
from ablations.planning.prepare import prepare
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study
from results import store
from results.store.schemas import Plan
from results.study_results import load_plans
from results.tables import layout, study_table
from vitcore.data.imagefolder import describe_folder
from vitcore.data.lookup import describe
from vitcore.model.build import build

STUDY = "{question: q, baseline: {position: 1d}, factors: {position: [1d, none]}}"
RECIPE = """
description: d
config: {data: digits, width: 16, depth: 1, heads: 2, patch: 4, steps: 4, batch: 8, val_fraction: 0.1}
seeds: 2
"""
CODE = "0123456789ab"
SCRIPT = """
import sys
from ablations import cli
try:
    cli.main()
finally:
    print("torch" in sys.modules)
"""


def design(folder: Path, study: str = STUDY, recipe: str = RECIPE, **overrides: Any) -> Design:
    (folder / "s.yaml").write_text(study)
    (folder / "r.yaml").write_text(recipe)
    return Design(read_study(str(folder / "s.yaml")), read_recipe(str(folder / "r.yaml")), overrides)


def write_images(folder: Path, shade: int) -> None:
    """Two classes of five images each."""
    for label, number in itertools.product("ab", range(5)):
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), shade + 10 * number).save(folder / label / f"{number}.png")


def made(monkeypatch: pytest.MonkeyPatch) -> list[Design]:
    """What plans are made of from now on, one after the other."""
    found, build = list[Design](), planning.build

    def noted(design: Design, seeds: Sequence[int]) -> Plan:
        found.append(design)
        return build(design, seeds)

    monkeypatch.setattr(planning, "build", noted)
    return found


def unbased(plan: Plan) -> Plan:
    """The plan as it is written."""
    return plan.model_copy(update={"extends": ""})


def test_a_plan_that_follows_from_the_same_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what making it again gives, also with fewer seeds than were planned, and forgets that it was pruned."""
    runs = tmp_path / "runs"
    write_plan(runs, prepare(design(tmp_path), runs, 3, prune=True, code=CODE))
    known = {"made_from": preparing.inputs_digest(design(tmp_path), range(3), CODE)}
    anew = unbased(prepare(design(tmp_path), runs, 3).model_copy(update=known))
    built = made(monkeypatch)
    assert unbased(prepare(design(tmp_path), runs, 3, code=CODE)) == anew
    write_plan(runs, prepare(design(tmp_path), runs, 3, prune=True, code=CODE))
    assert unbased(prepare(design(tmp_path), runs, 2, code=CODE)) == anew
    assert len(built) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"study": STUDY.replace("none]", "2d]")},
        {"study": STUDY.replace("question: q", "question: why")},
        {"recipe": RECIPE.replace("description: d", "description: e")},
        {"recipe": RECIPE.replace("seeds: 2", "seeds: 2\nmargin: 0.03")},
        {"lr": 0.1},
    ],
    ids=str,
)
def test_a_plan_of_anything_else_is_made(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Of another study or recipe, even by a word, and of other settings."""
    before = preparing.inputs_digest(design(tmp_path), [0, 1], CODE)
    assert preparing.inputs_digest(design(tmp_path, **changed), [0, 1], CODE) != before


def test_the_order_in_which_a_study_lists_things_counts(tmp_path: Path) -> None:
    """Arms are named and listed by it."""
    crossed = "{question: q, baseline: {position: 1d}, crosses: [{%s, %s}]}"
    both = "position: [1d, 2d]", "pool: [cls, gap]"
    asked = [design(tmp_path, crossed % order) for order in (both, both[::-1])]
    assert len({arm.name for one in asked for arm in one.arms}) == 6  # of 4 and 4, two of one setting
    assert len({preparing.inputs_digest(one, [0], CODE) for one in asked}) == 2


def test_a_plan_is_made_again_for_more_seeds_other_code_and_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And always where the code is not known, or the plan does not say what it was made from."""
    runs, built = tmp_path / "runs", made(monkeypatch)
    write_plan(runs, prepare(design(tmp_path), runs, 2, code=CODE))
    for seeds, code in ((3, CODE), (2, "ba9876543210"), (2, "")):
        prepare(design(tmp_path), runs, seeds, code=code)
    assert len(built) == 4
    monkeypatch.setattr(provenance, "versions", lambda: {"torch": "9.9"})
    prepare(design(tmp_path), runs, 2, code=CODE)
    assert len(built) == 5
    write_plan(runs, prepare(design(tmp_path), runs, 2))
    prepare(design(tmp_path), runs, 2, code=CODE)
    assert len(built) == 7


def test_a_plan_is_made_again_when_a_file_that_it_names_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights that arms start from, and the data; what is not there is for others to refuse."""
    file = tmp_path / "w.safetensors"
    asked = design(tmp_path, init_from=str(file))
    assert preparing.inputs_digest(asked, [0], CODE) == ""
    found = set[str]()
    for classes in (10, 9):
        safetensors.torch.save_file(build(design(tmp_path, classes=classes).reference).state_dict(), file)
        found.add(preparing.inputs_digest(asked, [0], CODE))
    other = replace(describe("digits"), fingerprint={"sha256": "of others"})
    monkeypatch.setattr(preparing, "describe", lambda name: other)
    found.add(preparing.inputs_digest(asked, [0], CODE))
    assert len(found - {""}) == 3


def test_data_of_one_stage_alone_are_among_what_a_plan_follows_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the command line pretrain.data=NAME: the same name with other images is another plan."""
    asked, found = design(tmp_path, **{"pretrain.data": "cifar100"}), set[str]()
    for images in ("of then", "of now"):
        about = {"cifar100": replace(describe("cifar100"), fingerprint={"sha256": images})}
        monkeypatch.setattr(preparing, "describe", lambda name, about=about: about.get(name) or describe(name))
        found.add(preparing.inputs_digest(asked, [0], CODE))
    assert len(found - {""}) == 2


def test_data_of_arms_that_nobody_asks_for_any_more_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay planned, and are trained on the images of today."""
    runs, folder = tmp_path / "runs", tmp_path / "images"
    write_images(folder, 0)
    more = f"{STUDY[:-1]}, arms: {{photos: {{data: 'imagefolder:{folder}'}}}}}}"
    write_plan(runs, prepare(design(tmp_path, more), runs, 1, code=CODE))
    write_plan(runs, prepare(design(tmp_path), runs, 1, code=CODE))
    built = made(monkeypatch)
    before = prepare(design(tmp_path), runs, 1, code=CODE)
    assert (len(built), [arm.name for arm in before.arms][-1]) == (0, "photos")
    write_images(folder, 1)
    describe_folder.cache_clear()
    after = prepare(design(tmp_path), runs, 1, code=CODE)
    assert len(built) == 1
    assert before.arms[-1].trials != after.arms[-1].trials


def test_a_plan_with_plugins_is_always_made(tmp_path: Path) -> None:
    """What these import, numerics of their parts too, stands in no digest."""
    assert preparing.inputs_digest(design(tmp_path), [0], f"{CODE}+ba9876543210") == ""


def test_weights_are_those_of_the_folder_that_the_command_is_given_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan names the file by its whole path, from another folder by another."""
    found = set[str]()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Path("w.npz").write_bytes(b"the same")
        found.add(preparing.inputs_digest(design(tmp_path, init_from="w.npz"), [0], CODE))
    assert len(found - {""}) == 2


def test_plan_of_a_study_that_is_planned_loads_no_torch(tmp_path: Path) -> None:
    """It only reads what is there: importing torch takes longer than all the rest."""
    design(tmp_path)
    words = ["plan", str(tmp_path / "s.yaml"), "--recipe", str(tmp_path / "r.yaml"), "--runs", str(tmp_path / "runs")]
    runs = tmp_path / "runs"
    write_plan(runs, prepare(design(tmp_path), runs, 2, code=provenance.code_digest({})))
    told = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True).stdout
    assert "2 arms x 2 seeds = 4 trials" in told
    assert told.splitlines()[-1] == "False"


OTHER = {
    "baseline": ({"recipe": RECIPE.replace("steps: 4", "steps: 8")}, "another baseline .*steps 4 -> 8"),
    "arms": ({"study": STUDY.replace("none", "2d")}, "give the command again"),
    "seeds": ({"recipe": RECIPE.replace("seeds: 2", "seeds: 3")}, "give the command again"),
    "margin": ({"recipe": f"{RECIPE}margin: 0.1\n"}, "give the command again"),
}


@pytest.mark.parametrize(("changed", "why"), OTHER.values(), ids=OTHER)
def test_a_plan_that_changed_meanwhile_is_not_overwritten(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    """Of two plans made on top of the same one, the second is refused; made again, on top of the first, it may grow."""
    runs = tmp_path / "runs"
    if "again" in why:  # else planning on top of it is refused already
        jobs.write(runs, prepare(design(tmp_path, STUDY.replace("question: q", "question: which")), runs, 1))
    first = prepare(design(tmp_path), runs, None)
    second = prepare(design(tmp_path, **changed), runs, None)
    jobs.write(runs, first)
    kept = (runs / "studies" / "s@r" / "plan.json").read_bytes()
    with pytest.raises(ValueError, match=why):
        jobs.write(runs, second)
    assert (runs / "studies" / "s@r" / "plan.json").read_bytes() == kept
    if "again" in why:
        jobs.write(runs, prepare(design(tmp_path, **changed), runs, None))


def test_the_same_plan_at_once_is_no_conflict(tmp_path: Path) -> None:
    """Two runs of one study both go on."""
    runs = tmp_path / "runs"
    first, second = (prepare(design(tmp_path), runs, None) for _ in range(2))
    jobs.write(runs, first)
    jobs.write(runs, second)
    assert "extends" not in store.read_json(runs / "studies" / "s@r" / "plan.json")


def test_a_command_prints_the_table_of_its_own_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where plan.json has become another one since."""
    runs = tmp_path / "runs"
    own = prepare(design(tmp_path), runs, None)
    over = running.publishing([own], ["*"], runs)
    expected = layout.render(study_table.table(load_plans(runs, [own])[0]), "md")
    other = STUDY.replace("none", "2d")
    jobs.write(runs, prepare(design(tmp_path, other), runs, None))
    for job in jobs.jobs([own]):
        over(job)
    assert capsys.readouterr().out.strip() == expected.strip()


def test_of_two_runs_with_recipes_of_one_name_one_is_refused(tmp_path: Path) -> None:
    """Started at once in one run directory: one trains and prints its table, the other says how they differ."""
    (tmp_path / "s.yaml").write_text(STUDY)
    started = []
    for steps in (4, 8):
        (tmp_path / str(steps)).mkdir()
        recipe = tmp_path / str(steps) / "r.yaml"
        recipe.write_text(RECIPE.replace("steps: 4", f"steps: {steps}"))
        words = ("run", "s.yaml", "--recipe", str(recipe), "--runs", str(tmp_path / "runs"))
        command = [sys.executable, "-m", "ablations.cli", *words, "--seeds", "1", "--jobs", "1"]
        started.append(
            subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    ended = sorted((process.wait(), *process.communicate()) for process in started)
    assert [status for status, _, _ in ended] == [0, 2]
    assert "position=none" in ended[0][1]
    assert "planned with another baseline (steps" in ended[1][2]
    assert ended[1][1] == ""
