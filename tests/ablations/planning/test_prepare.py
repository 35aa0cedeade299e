"""A plan on disk is used again while its inputs stay; any other input builds the plan anew."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from designs import RECIPE, design
from photographs import photographs
from PIL import Image

from ablations import provenance
from ablations.cli import run as run_command
from ablations.jobs import jobs
from ablations.planning import plan as planning
from ablations.planning.prepare import inputs_digest, prepare
from ablations.planning.saved_plans import save_plan
from ablations.study.design import Design
from ablations.trainables.vit import data as vit_data
from results import store
from results.store.schemas.plans import Plan
from results.study_results import load_plans
from results.tables import layout, study_table
from vitcore.config import Config
from vitcore.data.lookup import describe, describe_files
from vitcore.model.build import build

STUDY = "{question: q, baseline: {position: 1d}, factors: {position: [1d, none]}}"
CODE = "0123456789ab"


def builds(monkeypatch: pytest.MonkeyPatch) -> list[Design]:
    found, build = list[Design](), planning.build

    def noted(design: Design, seeds: Sequence[int]) -> Plan:
        found.append(design)
        return build(design, seeds)

    monkeypatch.setattr(planning, "build", noted)
    return found


def test_a_plan_with_equal_inputs_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer seeds than planned count as equal. That the plan was pruned once is not kept."""
    runs, asked = tmp_path / "runs", design(tmp_path, STUDY)
    save_plan(runs, prepare(asked, runs, 3, prune=True, code=CODE))
    known = {"made_from": inputs_digest(asked, range(3), CODE), "extends": ""}
    anew = prepare(asked, runs, 3).model_copy(update=known)
    built = builds(monkeypatch)
    assert prepare(asked, runs, 3, code=CODE).model_copy(update={"extends": ""}) == anew
    save_plan(runs, prepare(asked, runs, 3, prune=True, code=CODE))
    assert prepare(asked, runs, 2, code=CODE).model_copy(update={"extends": ""}) == anew
    assert len(built) == 1


def test_every_input_is_in_the_digest(tmp_path: Path) -> None:
    crossed = "{question: q, baseline: {position: 1d}, crosses: [{%s, %s}]}"
    axes = "position: [1d, 2d]", "pool: [cls, gap]"
    changes: list[dict[str, Any]] = [
        {},
        {"study": STUDY.replace("none]", "2d]")},
        {"study": STUDY.replace("question: q", "question: why")},
        {"study": crossed % axes},
        {"study": crossed % axes[::-1]},  # the order names the arms
        {"recipe": RECIPE.replace("A test.", "Another.")},
        {"recipe": RECIPE.replace("seeds: 2", "margin: 0.03")},
        {"lr": 0.1},
    ]
    digests = [inputs_digest(design(tmp_path, **{"study": STUDY, **change}), [0, 1], CODE) for change in changes]
    assert len({*digests} - {""}) == len(changes)
    assert inputs_digest(design(tmp_path, STUDY), [0], f"{CODE}+ba9876543210") == "", "a plug-in may import anything"


def test_more_seeds_and_other_code_or_versions_rebuild_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is also built if the code is unknown, or if the plan does not record its inputs."""
    runs, built, asked = tmp_path / "runs", builds(monkeypatch), design(tmp_path, STUDY)
    save_plan(runs, prepare(asked, runs, 2, code=CODE))
    for seeds, code in ((3, CODE), (2, "ba9876543210"), (2, "")):
        prepare(asked, runs, seeds, code=code)
    assert len(built) == 4
    monkeypatch.setattr(provenance, "versions", lambda: {"torch": "9.9"})
    prepare(asked, runs, 2, code=CODE)
    assert len(built) == 5
    save_plan(runs, prepare(asked, runs, 2))
    prepare(asked, runs, 2, code=CODE)
    assert len(built) == 7


def test_files_and_data_are_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "w.safetensors"
    asked = design(tmp_path, STUDY, init_from=str(file))
    assert inputs_digest(asked, [0], CODE) == "", "building the plan names the missing file"
    found = set[str]()
    for classes in (10, 9):
        safetensors.torch.save_file(
            build(Config(**design(tmp_path, STUDY, classes=classes).reference)).state_dict(), file
        )
        found.add(inputs_digest(asked, [0], CODE))
    for name in ("one", "other"):  # a relative path means another file in another folder
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Path("w.npz").write_bytes(b"the same")
        found.add(inputs_digest(design(tmp_path, STUDY, init_from="w.npz"), [0], CODE))
    staged = design(tmp_path, STUDY, **{"pretrain.data": "cifar100"})
    for images in ("of then", "of now"):
        about = {"cifar100": replace(describe("cifar100"), fingerprint={"sha256": images})}
        monkeypatch.setattr(vit_data, "describe", lambda name, about=about: about.get(name) or describe(name))
        found.add(inputs_digest(staged, [0], CODE))
    assert len(found - {""}) == 6


def test_data_of_arms_no_longer_asked_for_are_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, folder = tmp_path / "runs", photographs(tmp_path / "images", {"a": 5, "b": 5}, (8, 8))
    on_digits = f"{STUDY[:-1]}, curves: {{data: [digits]}}}}"
    on_both = on_digits.replace("[digits]", f"[digits, 'imagefolder:{folder}']")
    for study in (on_both, on_digits):
        save_plan(runs, prepare(design(tmp_path, study), runs, 1, code=CODE))
    built = builds(monkeypatch)
    before = prepare(design(tmp_path, on_digits), runs, 1, code=CODE)
    assert len(built) == 0
    assert before.arms[-1].config["data"] == f"imagefolder:{folder}"
    Image.new("RGB", (8, 8)).save(next(folder.rglob("*.png")))
    describe_files.cache_clear()
    after = prepare(design(tmp_path, on_digits), runs, 1, code=CODE)
    assert len(built) == 1
    assert before.arms[-1].trials != after.arms[-1].trials


OTHER = {
    "baseline": ({"recipe": RECIPE.replace("steps: 4", "steps: 8")}, "another baseline .*steps 4 -> 8"),
    "arms": ({"study": STUDY.replace("none", "2d")}, "give the command again"),
    "seeds": ({"recipe": RECIPE.replace("seeds: 2", "seeds: 3")}, "give the command again"),
    "margin": ({"recipe": RECIPE.replace("seeds: 2", "margin: 0.1")}, "give the command again"),
}


@pytest.mark.parametrize(("changed", "why"), OTHER.values(), ids=OTHER)
def test_a_plan_that_changed_meanwhile_is_not_overwritten(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    """Of two plans that extend one plan, the second is refused. Prepared again, it may extend the first."""
    runs = tmp_path / "runs"
    if "again" in why:  # else planning on top of it is refused already
        save_plan(runs, prepare(design(tmp_path, STUDY.replace("question: q", "question: which")), runs, 1))
    first = prepare(design(tmp_path, STUDY), runs, None)
    asked = {"study": STUDY, **changed}
    second = prepare(design(tmp_path, **asked), runs, None)
    save_plan(runs, first)
    kept = (runs / "studies" / "s@r" / "plan.json").read_bytes()
    with pytest.raises(ValueError, match=why):
        save_plan(runs, second)
    assert (runs / "studies" / "s@r" / "plan.json").read_bytes() == kept
    if "again" in why:
        save_plan(runs, prepare(design(tmp_path, **asked), runs, None))


def test_two_runs_with_equal_plans_both_go_on(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for plan in [prepare(design(tmp_path, STUDY), runs, None) for _ in range(2)]:
        save_plan(runs, plan)
    assert "extends" not in store.read_json(runs / "studies" / "s@r" / "plan.json")


def test_a_run_prints_the_table_of_its_own_plan(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    own = prepare(design(tmp_path, STUDY), runs, None)
    publish_ended = run_command.publisher([own], ["*"], runs)
    expected = layout.render(study_table.table(load_plans(runs, [own])[0]), "md")
    save_plan(runs, prepare(design(tmp_path, STUDY.replace("none", "2d")), runs, None))
    printed = "".join(publish_ended(job) for job in jobs([own]))
    assert printed.strip() == expected.strip()
