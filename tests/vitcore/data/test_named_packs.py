"""A pack is data by its name: where it is looked for, and what a command says where it is not."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
from in_process import Ablate, refusal
from photographs import packed
from run_trials import called_serially

from ablations.cli.inputs.directories import data_folders
from commonfloor.options import ConfigError
from vitcore import Config
from vitcore.data.lookup import STATED, describe
from vitcore.data.pack import manifest
from vitcore.data.splits import load
from vitcore.identity import identity, trial_id


def test_a_misspelt_pack_is_named(folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate) -> None:
    elsewhere = packed(folder, root.parent.parent, "birds")
    monkeypatch.setenv("ABLATE_PACKS", json.dumps({"birds": str(elsewhere), "birdy": "/nowhere"}))
    for wrong, right in (("photo", "photos"), ("bird", "birds")):
        with pytest.raises(ConfigError, match=rf"data={wrong}: .*; did you mean '{right}'\?$"):
            Config(data=wrong)
        assert refusal(ablate, "data", "verify", wrong).endswith(f"; did you mean '{right}'?\n")


def test_a_pack_is_data_by_its_name(home: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes come from the manifest; the identity has the name and the fingerprint, and no path."""
    config = Config(data="photos", patch=2)
    assert (config.data, config.image_size, config.channels, config.classes) == ("photos", 10, 3, 2)
    assert identity(config)["data"] == {"pack": "photos", "sha256": manifest(root, "photos").fingerprint}
    monkeypatch.setenv("ABLATE_DATA", str(home.rename(home.with_name("moved"))))
    assert trial_id(Config(data="photos", patch=2)) == trial_id(config)


def test_a_missing_pack_says_where_it_was_looked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=rf"data=imagenet: .*\({home}/imagenet: no such folder\)"):
        Config(data="imagenet")
    with pytest.raises(ConfigError, match=r"data=Pets: .*a pack \(small letters, digits and \. _ -\)"):
        Config(data="Pets")
    monkeypatch.delenv("ABLATE_DATA")
    with pytest.raises(ConfigError, match=r"none without --data-dir or ABLATE_DATA\); `ablate data pack imagenet"):
        Config(data="imagenet")


RECIPE = """{
    description: Of a pack., config: {data: photos, width: 8, depth: 1, heads: 2, patch: 2, epochs: 3, batch: 4},
    pack: {train: 17, test: 7, classes: 2, image_size: 10},
    seeds: 2, cost: {gpu: {how: cited, source: a paper, device: A GPU, seconds: 7}}
}"""
STUDY = "{question: 'Which?', baseline: {pool: gap}, factors: {pool: [gap, cls]}}"


@mock.patch.dict(STATED)
def test_a_plan_needs_no_pack_where_the_recipe_states_it(
    folder: Path, home: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan without the pack equals the plan with it, and names the command that packs; `run` ends with its name."""
    monkeypatch.chdir(home)
    Path("r.yaml").write_text(RECIPE)
    Path("s.yaml").write_text(STUDY)
    words = ("s.yaml", "--recipe", "r.yaml")
    status, stated, errors = ablate("plan", *words, "--json")
    assert (status, errors.count("\n")) == (0, 1)
    assert "data=photos: not packed here: `ablate data pack photos SOURCE --data-dir DIR` makes one" in errors
    with pytest.raises(ValueError, match="data=photos: not packed: `ablate data pack photos SOURCE"):
        load(Config(data="photos", patch=2))
    assert ablate("plan", *words, "--probe")[0] == 2
    STATED.clear()
    assert "`ablate data pack photos SOURCE --data-dir DIR` makes one" in refusal(ablate, "run", *words)
    packed(folder, home)
    known, errors = ablate("plan", *words, "--json")[1:]
    assert (json.loads(stated), errors) == (json.loads(known), "")


def test_where_data_lie_has_one_order(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is --data-dir, [data] of ablate.toml, the profile, ablate.toml, ABLATE_DATA; a place may lack it."""
    explicit, named, profile, toml, environment = places = [tmp_path / name for name in "abcde"]
    for size, place in enumerate(places, 12):
        packed(folder, place, "pets", size=size, crop=size)
    (tmp_path / "ablate.toml").write_text(f'data_dir = "{toml}"\n[data]\npets = "{named / "pets"}"\n')
    monkeypatch.chdir(tmp_path)
    for size, place in enumerate(places, 12):
        for name, value in (("ABLATE_DATA", str(environment)), ("ABLATE_PACKS", ""), ("ABLATE_MORE_DATA", "")):
            monkeypatch.setenv(name, value)
        for _ in range(2):  # a command may ask twice
            data_folders(explicit, str(profile)).use()
        assert describe("pets").image_size == size, place
        assert data_folders(explicit).resolve({"data": "pets"}) == {"data": "pets"}
        shutil.rmtree(place / "pets")
        (place / "pets").mkdir()
    looked_in = (named, explicit, profile, toml, environment)
    with pytest.raises(ConfigError, match=", ".join(f"{place}/pets: no manifest.json" for place in looked_in)):
        describe("pets")


def test_a_directory_given_to_load_is_where_packs_are_read(folder: Path, root: Path, tmp_path: Path) -> None:
    """The directory comes before ABLATE_DATA; a pack there with another fingerprint is refused."""
    shutil.copytree(root, tmp_path / "copy" / "photos")
    (root / "shard-00000.bytes").unlink()
    config = Config(data="photos", patch=2)  # needs the manifest alone
    assert len(load(config, tmp_path / "copy").test) == 7
    with pytest.raises(ValueError, match=r"photos/shard-00000\.bytes: cannot be read"):
        load(config)
    packed(folder, tmp_path / "other", size=14)
    with pytest.raises(ValueError, match="other/photos is not the pack that the config was made for"):
        load(config, tmp_path / "other")


def test_ablate_toml_names_packs_too(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate) -> None:
    """A name for a folder with a manifest stays a name; a name for another folder becomes imagefolder:FOLDER."""
    packed(folder, home, "pets")
    monkeypatch.chdir(home)
    monkeypatch.delenv("ABLATE_DATA")
    Path("ablate.toml").write_text(f'[data]\npets = "{home / "pets"}"\nplain = "{folder}"\n')
    words = ("train", "data=pets", "patch=2", "steps=1", "width=6", "--runs", "runs")
    assert called_serially(monkeypatch, *words)[0] == 0
    (config,) = Path("runs").glob("trials/*/config.json")
    assert json.loads(config.read_text())["config"]["data"] == "pets"
    assert data_folders().resolve({"data": "plain"}) == {"data": f"imagefolder:{folder}"}
    Path("ablate.toml").write_text(f'[data]\ndigits = "{folder}"\n')
    with pytest.raises(ValueError, match=r"^ablate\.toml: data\.digits=.*built-in data set"):
        data_folders()
    Path("ablate.toml").write_text('[data]\nmnst = "gone"\n')
    missing = refusal(ablate, "train", "data=mnst")
    assert f"(ablate.toml: data.mnst={home}/gone: no such folder); `ablate data pack mnst SOURCE" in missing


def test_check_finds_a_recipes_pack_by_its_folder(
    folder: Path, tmp_path: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    monkeypatch.setenv("ABLATE_MORE_DATA", "[]")  # restored after the test
    packed(folder, tmp_path / "elsewhere", "scans")
    (tmp_path / "scans.yaml").write_text(
        "{description: Of a pack., config: {data: scans, width: 8, depth: 1, heads: 2, patch: 2, steps: 2}}"
    )
    recipe = str(tmp_path / "scans.yaml")
    assert "data=scans" in refusal(ablate, "check", recipe)
    assert ablate("check", recipe, "--data-dir", str(tmp_path / "elsewhere"))[0] == 0
