"""Pipes, bombs and damaged notes where weights and packs are read: one line of error, without blocking."""

import hashlib
import io
import json
import os
from functools import partial
from pathlib import Path, PurePosixPath
from unittest import mock

import numpy as np
import pytest
from photographs import packed, photographs

from vitcore.data import cifar, pack_writer
from vitcore.data.pack_sources import Member, open_member
from vitcore.options import ConfigError
from vitcore.training import parents, transfer


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_weights_that_are_a_pipe_are_refused(tmp_path: Path, suffix: str) -> None:
    """Neither the fingerprint nor the content of a pipe is read."""
    path = tmp_path / f"weights{suffix}"
    os.mkfifo(path)
    for read in (partial(parents.identified, "init_from"), transfer.read):
        with pytest.raises(ConfigError, match=r"init_from=.*weights.*: Not a regular file"):
            read(str(path))


def test_a_batch_of_cifar_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data_batch_1")
    with pytest.raises(OSError, match="Not a regular file"):
        cifar.read_batch(tmp_path / "data_batch_1", hashlib.md5(b"").hexdigest())


def test_a_member_of_a_tar_takes_no_more_memory_than_an_image(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"")
    member = Member(PurePosixPath("cat/a.png"), tmp_path / "a.tar", 0, 1 << 60)
    with pytest.raises(ValueError, match="larger than"):
        open_member(member)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A pack whose writing ended before the manifest."""
    photographs(tmp_path / "images", {f"{part}/{label}": 2 for part in ("train", "test") for label in "ab"}, (8, 8))
    with mock.patch.object(pack_writer, "finish", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        packed(tmp_path / "images", tmp_path)
    return tmp_path / "photos"


def go_on(begun: Path) -> Path:
    return packed(begun.parent / "images", begun.parent)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "1" * 5000, "[" * 100_000, '{"version": 2, "name": "photos", "size": "12"}', "pipe"]
)
def test_a_damaged_note_of_a_begun_pack_is_named(begun: Path, content: str) -> None:
    (begun / "begun.json").unlink()
    if content == "pipe":
        os.mkfifo(begun / "begun.json")
    else:
        (begun / "begun.json").write_text(content)
    for act in (lambda: go_on(begun), lambda: pack_writer.stored(begun, "photos")):
        with pytest.raises(ConfigError, match=r"begun\.json: damaged .*remove .*photos"):
            act()


def test_a_damaged_note_beside_a_shard_is_named(begun: Path) -> None:
    """A note that is truncated, compressed, of other arrays or a pipe is named; a whole note is read."""
    path = begun / "shard-00000.npz"
    whole = path.read_bytes()
    with np.load(io.BytesIO(whole)) as kept:
        arrays = dict(kept)
    compressed, others = io.BytesIO(), io.BytesIO()
    np.savez_compressed(compressed, **arrays)
    np.savez(others, **arrays | {"counts": np.zeros(3)})
    for content in (b"", whole[:-9], compressed.getvalue(), others.getvalue()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"shard-00000\.npz: .*remove it"):
            go_on(begun)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"shard-00000\.npz: .*Not a regular file"):
        go_on(begun)
    path.unlink()
    path.write_bytes(whole)
    assert json.loads((go_on(begun) / "manifest.json").read_text())["train"] == 4
