"""`list` and `check all` know every study, recipe, part, option and setting."""

import re
from pathlib import Path

import pytest
from in_process import Ablate, json_output, refusal

from ablations.cli import check
from vitcore.config import Config
from vitcore.variants import VARIANTS


def test_list_names_every_study_and_recipe(ablate: Ablate) -> None:
    (status, output, _), listing = ablate("list"), json_output(ablate, "list")
    assert status == 0
    assert all(f"  {one['name']} " in output for one in [*listing["studies"], *listing["recipes"]])


MINE = """
from vitcore.config import Options
from vitcore.training.optimization.schedules import SCHEDULE, Schedule
class Mine(Schedule):
    'Goes down.'
    class Options(Options):
        by: float
        to: int = 3
SCHEDULE['mine'] = Mine
"""


def test_list_names_every_variant_and_option(ablate: Ablate, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    request.addfinalizer(lambda: VARIANTS["schedule"].pop("mine", None))
    slots = json_output(ablate, "list", "--variants", "--plugin", "mine.py")["variants"]
    output = ablate("list", "--variants")[1]
    named = {slot["slot"]: [one["name"] for one in slot["entries"]] for slot in slots}
    assert named == {slot: list(variants) for slot, variants in VARIANTS.items()}
    found = {f"{slot['slot']}={one['name']}": one for slot in slots for one in slot["entries"]}
    assert found["schedule=mine"] == {"name": "mine", "about": "Goes down.", "options": {"by": None, "to": 3}}
    assert found["optimizer=sgd"]["options"] == {"momentum": 0.9, "nesterov": False}
    assert all(one["about"] and one["about"] in output for one in found.values())
    assert "optimizer.momentum=0.9  optimizer.nesterov=False" in output


def test_every_setting_is_listed_with_its_meaning(ablate: Ablate) -> None:
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in ablate("list", "--settings")[1].splitlines())
    assert list(lines) == list(Config.model_fields)
    assert all(text.endswith((".", ")")) for text in lines.values())
    assert lines["depth"].startswith("[12] Number of encoder blocks")
    assert json_output(ablate, "list", "--settings")["settings"] == lines


def test_check_all_is_every_packaged_part_study_and_recipe(ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "contracts", lambda slot, name: [("is tried", lambda slot, name: None)])
    few = {"studies": ["pooling"], "recipes": ["digits", "imagenet"]}
    assert "unknown recipe 'nowhere'" in refusal(ablate, "check", "all", "--recipe", "nowhere")
    monkeypatch.setattr(check, "packaged_names", few.__getitem__)
    status, output, _ = ablate("check", "all")
    lines = [f"ok      {slot}={name}: is tried" for slot, parts in VARIANTS.items() for name in parts]
    for line in (*lines, "\npooling on recipe digits", ": baseline\n", "\ndigits\n  ok", "\nimagenet\n  skipped"):
        assert line in output
    assert status == 0
    few["studies"] = ["nothing"]
    status, output, _ = ablate("check", "all")
    assert status == 1
    assert all(line in output for line in ("nothing\n  FAILED  unknown study 'nothing'", "digits\n  ok"))
