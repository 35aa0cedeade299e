"""Packs on a node's own disk: copied once, completely, or read where they are."""

import json
import multiprocessing
import os
import shutil
from collections import namedtuple
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import synthetic
from photographs import packed, photographs

from ablations.cluster import staging
from ablations.jobs import Job
from results import store
from vitcore.data.lookup import describe
from vitcore.data.pack import find, manifest, open_pack

JOBS = [Job("0" * 12, {"data": name, "steps": 3, "batch": 4}, "", "") for name in ("photos", "photos", "digits")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a pack `photos` in ABLATE_DATA; nothing is staged yet."""
    folder = photographs(tmp_path / "photos", {f"{part}/{name}": 3 for part in ("train", "test") for name in "ab"})
    home = tmp_path / "shared"
    packed(folder, home, size=8)
    monkeypatch.setenv("ABLATE_DATA", str(home))
    monkeypatch.setenv("ABLATE_PACKS", "")
    return home


def stage(folder: Path | str, jobs: Sequence[Job] = JOBS, runs: Path = Path("nowhere")) -> list[str]:
    """Stage packs; return the messages."""
    said: list[str] = []
    staging.stage(jobs, runs, str(folder), said.append)
    return said


def test_a_staged_pack_is_the_same_data(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, name and identity are equal, also if a variable names the disk."""
    before = describe("photos")
    monkeypatch.setenv("NODE_DISK", str(tmp_path / "node"))
    (line,) = stage("$NODE_DISK/packs")
    assert "stage: photos: 0.0 GB copied to" in line
    there = find("photos")
    assert there.parent == tmp_path / "node" / "packs"
    assert describe("photos") == before
    for name in ("index.npy", "manifest.json", *(shard.file for shard in manifest(there, "photos").shards)):
        assert (there / name).read_bytes() == (home / "photos" / name).read_bytes()
    assert open_pack(there, manifest(there, "photos")).folder == there


def test_jobs_sent_from_a_node_ignore_its_disk(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last job, which a share submits, runs elsewhere and finds the pack where [data] says it is."""
    (home / "photos").rename(home / "elsewhere")
    named = json.dumps({"photos": str(home / "elsewhere")})
    monkeypatch.setenv("ABLATE_PACKS", named)
    for folder, there in ((str(tmp_path / "node"), tmp_path / "node"), (None, home)):
        with staging.staged(JOBS, Path("nowhere"), folder, str):
            found = find("photos")
            assert found.parent == there
        assert os.environ["ABLATE_PACKS"] == named


def test_complete_shards_are_not_copied_again(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(tmp_path / "node")
    (there,) = (tmp_path / "node").iterdir()
    kept = (there / "shard-00000.bytes").stat().st_ino
    (there / "manifest.json").unlink()
    (there / "shard-00001.bytes").unlink()
    (there / "shard-00002.part").write_bytes(b"cut short")
    os.truncate(there / "shard-00003.bytes", 5)
    monkeypatch.setenv("ABLATE_PACKS", "")
    assert len(stage(tmp_path / "node")) == 1
    assert stage(tmp_path / "node") == []
    assert (there / "shard-00000.bytes").stat().st_ino == kept
    assert (there / "shard-00003.bytes").read_bytes() == (home / "photos" / "shard-00003.bytes").read_bytes()
    for name in ("index.npy", "manifest.json"):  # as if the machine's cleaner of old files had removed it
        (there / name).unlink()
        monkeypatch.setenv("ABLATE_PACKS", "")
        assert len(stage(tmp_path / "node")) == 1
        assert (there / name).read_bytes() == (home / "photos" / name).read_bytes()
    shutil.rmtree(home)
    monkeypatch.setenv("ABLATE_PACKS", json.dumps({"photos": str(there)}))
    open_pack(there, manifest(there, "photos"))


def test_nothing_is_copied_for_less_than_an_epoch(home: Path, tmp_path: Path) -> None:
    """With fewer images left than the pack has, it is read where it is, and a message says so; a copy is used."""
    few = [Job("1" * 12, {"data": "photos", "steps": 11, "batch": 1}, "", "")]
    (line,) = stage(tmp_path / "node", few)
    where = f"stage: photos is read from {home / 'photos'}"
    assert line == f"{where}: only 11 images are left to train on, but a copy takes all 12"
    trial = store.trial(tmp_path, "1" * 12)
    trial.create({"config": few[0].config})
    with synthetic.claimed(trial) as attempt:
        attempt.log({"step": 4})
        (line,) = stage(tmp_path / "node", few, tmp_path)
        assert "7 images are left" in line
        attempt.save_weights(b"")
        attempt.publish({"status": "finished", "metrics": {}})
    assert stage(tmp_path / "node", few, tmp_path) == []
    assert find("photos") == home / "photos"
    stage(tmp_path / "node")
    assert stage(tmp_path / "node", few) == []
    assert find("photos") != home / "photos"


def test_jobs_of_a_node_copy_once(home: Path, tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, multiprocessing.get_context("fork")) as processes:
        said = [*processes.map(stage, [tmp_path / "node"] * 3)]
    assert sorted(map(len, said)) == [0, 0, 1]
    assert stage(tmp_path / "node") == []
    assert not list((tmp_path / "node").rglob("*.part"))


def test_a_pack_without_a_copy_is_read_where_it_is(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = namedtuple("disk", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: disk(10, 0, 10))
        (line,) = stage(tmp_path / "node")
    assert f"photos is read from {home / 'photos'}" in line
    assert "GB free" in line
    (tmp_path / "file").write_text("")
    for wrong, why in ((tmp_path / "file" / "x", "Not a directory"), ("$NO_SUCH_VARIABLE/x", "no absolute folder")):
        (line,) = stage(wrong)
        assert why in line
    path = home / "photos" / "shard-00002.bytes"
    path.write_bytes(b"\0" * path.stat().st_size)
    (line,) = stage(tmp_path / "node")
    assert f"{path}: damaged" in line
    assert find("photos") == home / "photos"
