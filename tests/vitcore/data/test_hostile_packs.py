"""Packs with every field of every file missing or wrong, their sums made anew: one line, never a traceback."""

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_files import ended, mutations
from photographs import photographs

from vitcore.data import pack_writer
from vitcore.data.pack_sources import find_source
from vitcore.data.pack_writer import Options, pack

COUNTS = {"train/cat": 3, "train/dog": 2, "test/cat": 1, "test/dog": 1}
RECIPE = {"description": "Small.", "config": {"data": "photos", "width": 8, "depth": 1, "heads": 1, "patch": 4}}
STUDY = {"question": "Which?", "baseline": {"position": "1d"}, "factors": {"position": ["1d", "none"]}}
READING = (("data", "verify", "photos"), ("plan", "s.yaml", "--recipe", "r.yaml"), ("init", "data/photos"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pack in a working directory, a study on it, and the photographs that it was made of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ABLATE_PACKS", "")
    (tmp_path / "s.yaml").write_text(json.dumps(STUDY))
    (tmp_path / "r.yaml").write_text(json.dumps({**RECIPE, "config": {**RECIPE["config"], "steps": 2, "batch": 2}}))
    source = find_source(str(photographs(tmp_path / "photos", COUNTS)), tmp_path)
    pack("photos", source, tmp_path / "data", Options(8), jobs=1)
    return tmp_path


def some(all_: list[Any], first: int, step: int) -> list[Any]:
    """All, where ABLATE_EVERY_MUTATION says so."""
    return all_ if os.environ.get("ABLATE_EVERY_MUTATION") else all_[first::step]


def sealed(content: object) -> str:
    """Recompute the fingerprint, as a forger of the manifest would."""
    if isinstance(content, dict) and isinstance(content.get("fingerprint"), str):
        plain = {key: value for key, value in content.items() if key != "fingerprint"}
        content = {**plain, "fingerprint": hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()}
    return json.dumps(content)


def complaints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str, *commands: tuple[str, ...]
) -> list[str]:
    found = ((words, ended(monkeypatch, capsys, *words)) for words in commands)
    return [f"{what}: {' '.join(words)}: {wrong}" for words, wrong in found if wrong]


def test_a_manifest_that_breaks_its_schema_ends_in_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every field of the manifest and of a shard's entry, by every command that reads it."""
    path = home / "data/photos/manifest.json"
    whole = json.loads(path.read_text())
    shards = [(f"shard {what}", whole | {"shards": [one]}) for what, one in mutations(whole["shards"][0])]
    bad = []
    for what, content in some([*mutations(whole), *shards], 3, 9):
        path.write_text(sealed(content))
        bad += complaints(monkeypatch, capsys, what, *READING)
    assert not bad


def test_an_index_that_breaks_its_records_ends_in_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every column missing, of another type or far too large; and what is no array at all."""
    folder = home / "data/photos"
    whole, records = json.loads((folder / "manifest.json").read_text()), np.load(folder / "index.npy")
    contents = [("empty", b""), ("pickle", npy(np.array([{}], object))), ("0-d", npy(np.array(5)))]
    names = list(records.dtype.names)
    for name in names:
        contents.append((f"no {name}", npy(records[[one for one in names if one != name]])))
        for value in (0, 2**31, 2**32 - 1):
            changed = records.copy()
            changed[name] = value
            contents.append((f"{name}={value}", npy(changed)))
    bad = []
    for what, content in contents:
        (folder / "index.npy").write_bytes(content)
        (folder / "manifest.json").write_text(sealed(whole | {"index": hashlib.sha256(content).hexdigest()}))
        bad += complaints(monkeypatch, capsys, what, *READING[::2])
    assert not bad


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def test_a_note_of_a_begun_pack_that_breaks_its_schema_ends_in_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is packed over what it was begun with."""
    folder = home / "data/photos"
    begun = pack_writer.Begun(version=2, name="photos", size=8, crop=8, format="bytes", source="0" * 64).model_dump()
    (folder / "manifest.json").unlink()
    bad = []
    for what, content in some(list(mutations(begun)), 1, 5):
        (folder / "begun.json").write_text(json.dumps(content))
        bad += complaints(monkeypatch, capsys, what, ("data", "pack", "photos", "photos"))
    assert not bad
    assert not (folder / "manifest.json").exists()
