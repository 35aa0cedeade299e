"""Packs whose checksums hold but whose content is wrong, damaged notes, pipes and bombs: one line of error."""

import hashlib
import io
import json
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hostile import ended, mutations
from in_process import Ablate
from photographs import packed, photographs
from PIL import Image

from commonfloor.options import ConfigError
from vitcore.data import builtin, pack_writer
from vitcore.data.formats.tars import Member
from vitcore.data.pack import Pack, manifest, verify
from vitcore.data.pack_sources import from_members

Json = dict[str, Any]
COUNTS = {"train/cat": 3, "train/dog": 2, "test/cat": 1, "test/dog": 1}
CONFIG = {"data": "photos", "width": 8, "depth": 1, "heads": 1, "patch": 4, "steps": 2, "batch": 2}
STUDY = {"question": "Which?", "baseline": {"position": "1d"}, "factors": {"position": ["1d", "none"]}}
READING = (("data", "verify", "photos"), ("plan", "s.yaml", "--recipe", "r.yaml"), ("init", "data/photos"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pack in the data directory, beside a study and a recipe that use it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ABLATE_PACKS", "")
    (tmp_path / "s.yaml").write_text(json.dumps(STUDY))
    (tmp_path / "r.yaml").write_text(json.dumps({"description": "Small.", "config": CONFIG}))
    return packed(photographs(tmp_path / "photos", COUNTS), tmp_path / "data", size=8)


def seal(root: Path, content: object) -> None:
    """Write a manifest with the fingerprint of its content, as json and hashlib alone compute it."""
    if isinstance(content, dict) and isinstance(content.get("fingerprint"), str):
        plain = {key: value for key, value in content.items() if key != "fingerprint"}
        content = {**plain, "fingerprint": hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()}
    (root / "manifest.json").write_text(json.dumps(content))


def read(root: Path) -> Json:
    content: Json = json.loads((root / "manifest.json").read_text())
    return content


def seal_index(root: Path, whole: Json, content: bytes) -> None:
    (root / "index.npy").write_bytes(content)
    seal(root, whole | {"index": hashlib.sha256(content).hexdigest()})


def npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda one: {"shards": []}, "hold 0 images"),
        (lambda one: {"shards": [*one["shards"], one["shards"][0]]}, "two entries of one file"),
        (lambda one: {"train": one["train"] + 1}, "hold 7 images"),
        (lambda one: {"size": 11}, "have not"),
        (lambda one: {"image_size": one["size"] + 1}, "at most size="),
        (lambda one: {"std": [0.0, 1.0, 1.0]}, "std above 0"),
        (lambda one: {"std": [1.0]}, "3 channels"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(edit: Callable[[Json], Json], said: str, root: Path) -> None:
    seal(root, read(root) | edit(read(root)))
    with pytest.raises(ConfigError, match=rf"manifest\.json: damaged.*{said}"):
        manifest(root, "photos")


def changed(records: Any, field: str, value: int) -> Any:
    records[field][0] = value
    return records


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda records: records["label"].astype(np.int64), "holds int64"),
        (lambda records: records[:-1], "(6,), not "),
        (lambda records: records.reshape(7, 1), "(7, 1), not "),
        (lambda records: changed(records, "label", 2), "label 2 of 2 classes"),
        (lambda records: changed(records, "offset", 7), "end to end"),
    ],
)
def test_an_index_that_contradicts_its_manifest_is_refused(edit: Callable[[Any], Any], said: str, root: Path) -> None:
    seal_index(root, read(root), npy(edit(np.load(root / "index.npy"))))
    known = manifest(root, "photos")
    assert said in verify(root, known)["index.npy"]
    with pytest.raises(ValueError, match=re.escape(said)):
        Pack(root, known)


def test_a_jpeg_of_another_size_is_not_stretched(root: Path) -> None:
    small = packed(root.parent.parent / "photos", root.parent, "small", format="jpeg")
    one, content = Pack(small, manifest(small, "small")), io.BytesIO()
    Image.new("RGB", (1, 1)).save(content, "JPEG")
    (small / "shard-00000.jpeg").write_bytes(content.getvalue())
    one.records["size"][0] = len(content.getvalue())
    one.checked[0] = True
    with pytest.raises(ValueError, match=r"shard-00000\.jpeg: image 0 .*1 x 1 pixels, not 12 x 12"):
        one.read(np.arange(1), np.empty((1, *one.shape), np.uint8))


def test_a_manifest_that_breaks_its_schema_ends_in_one_line(root: Path, ablate: Ablate) -> None:
    """With ABLATE_EVERY_MUTATION every wrong field, else every twelfth, is tried with every command that reads it."""
    whole = read(root)
    cases = [*mutations(whole), *((what, whole | {"shards": [one]}) for what, one in mutations(whole["shards"][0]))]
    for what, content in cases if os.environ.get("ABLATE_EVERY_MUTATION") else cases[3::12]:
        seal(root, content)
        for words in READING:
            assert not ended(ablate, *words), (what, words)


def test_an_index_that_breaks_its_records_ends_in_one_line(root: Path, ablate: Ablate) -> None:
    """A column is missing or far too large, or the file is no array of records."""
    whole, records = read(root), np.load(root / "index.npy")
    names = list(records.dtype.names)
    contents = [b"", npy(np.array([{}], object)), npy(np.array(5))]
    contents += [npy(records[[other for other in names if other != name]]) for name in names]
    contents += [npy(changed(records.copy(), name, value)) for name in names for value in (2**31, 2**32 - 1)]
    for content in contents:
        seal_index(root, whole, content)
        for words in READING[::2]:
            assert not ended(ablate, *words), (content, words)


def test_a_batch_of_cifar_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data_batch_1")
    with pytest.raises(OSError, match="is not a regular file"):
        builtin.read_batch(tmp_path / "data_batch_1", hashlib.md5(b"").hexdigest())


def test_a_member_of_a_tar_takes_no_more_memory_than_an_image(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"")
    member = Member(PurePosixPath("cat/a.png"), tmp_path / "a.tar", 0, 1 << 60)
    with pytest.raises(ValueError, match="larger than"):
        member.read()


def test_a_long_name_of_a_class_is_kept_once() -> None:
    paths = [PurePosixPath(name, f"{place}.png") for name in ("cat", "c" * 2**16) for place in range(500)]
    images = [Member(path, Path("a.tar"), 0, 1) for path in paths[:502]]
    tracemalloc.start()
    try:
        source = from_members(images, "a.tar")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (np.bincount(source.labels).tolist(), peak < 2**24) == ([500, 2], True)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A pack whose writing ended before the manifest."""
    photographs(tmp_path / "images", COUNTS, (8, 8))
    with mock.patch.object(pack_writer, "finish", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        packed(tmp_path / "images", tmp_path)
    return tmp_path / "photos"


def put(path: Path, content: bytes) -> None:
    """Replace a file by another content, or by a pipe."""
    path.unlink(missing_ok=True)
    os.mkfifo(path) if content == b"pipe" else path.write_bytes(content)


def go_on(begun: Path) -> Path:
    return packed(begun.parent / "images", begun.parent)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "1" * 5000, "[" * 100_000, '{"version": 2, "name": "photos", "size": "12"}', "pipe"]
)
def test_a_damaged_note_of_a_begun_pack_is_named(begun: Path, content: str) -> None:
    put(begun / "begun.json", content.encode())
    for act in (lambda: go_on(begun), lambda: pack_writer.complete_options("photos", begun, {}, [8])):
        with pytest.raises(ConfigError, match=r"begun\.json: damaged .*remove .*photos"):
            act()


def test_a_damaged_note_beside_a_shard_is_named(begun: Path) -> None:
    """A note may be truncated, of other counts or records, or a pipe; a whole note is read."""
    path = begun / "shard-00000.json"
    whole = path.read_bytes()
    others = [json.dumps(json.loads(whole) | wrong).encode() for wrong in ({"counts": [0] * 3}, {"records": [[1]]})]
    for content in (b"", whole[:-9], b"[" * 100_000, *others, b"pipe"):
        put(path, content)
        with pytest.raises(ValueError, match=r"shard-00000\.json: .*remove it"):
            go_on(begun)
    put(path, whole)
    assert json.loads((go_on(begun) / "manifest.json").read_text())["train"] == 5
