"""A pack whose sums all hold, as its author wrote them, is still refused where its parts contradict each other."""

import hashlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from photographs import photographs
from PIL import Image

from vitcore.data.pack import Pack, manifest, verify
from vitcore.data.pack_sources import find_source
from vitcore.data.pack_writer import Options, pack
from vitcore.options import ConfigError

Json = dict[str, Any]


def packed(tmp_path: Path, format: Any = "bytes") -> Path:
    source = photographs(tmp_path / "photos", {"train/cat": 3, "train/dog": 2, "test/cat": 1, "test/dog": 1})
    return pack("photos", find_source(str(source), tmp_path), tmp_path / "data", Options(12, format=format), jobs=1)


def sign(root: Path, content: Json) -> None:
    """Write a manifest with the fingerprint of its content, as json and hashlib alone make it."""
    content = {key: value for key, value in content.items() if key != "fingerprint"}
    fingerprint = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (root / "manifest.json").write_text(json.dumps({**content, "fingerprint": fingerprint}))


def read(root: Path) -> Json:
    content: Json = json.loads((root / "manifest.json").read_text())
    return content


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda one: {"shards": []}, "hold 0 images"),
        (lambda one: {"shards": [*one["shards"], one["shards"][0]]}, "two entries of one file"),
        (lambda one: {"train": one["train"] + 1}, "hold 7 images"),
        (lambda one: {"size": 11}, "have not"),
        (lambda one: {"std": [0.0, 1.0, 1.0]}, "std above 0"),
        (lambda one: {"std": [1.0]}, "3 channels"),
        (lambda one: {"mean": [1.0, 1.0]}, "3 channels"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(edit: Callable[[Json], Json], said: str, tmp_path: Path) -> None:
    """Whatever its fingerprint says."""
    root = packed(tmp_path)
    content = read(root)
    sign(root, content | edit(content))
    with pytest.raises(ConfigError, match=rf"manifest\.json: damaged.*{said}"):
        manifest(root, "photos")


def with_label(records: Any) -> Any:
    records["label"][0] = 2
    return records


def with_offset(records: Any) -> Any:
    records["offset"][0] = 7
    return records


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda records: records["label"].astype(np.int64), "holds int64"),
        (lambda records: records[:-1], "(6,), not "),
        (lambda records: records.reshape(7, 1), "(7, 1), not "),
        (with_label, "label 2 of 2 classes"),
        (with_offset, "end to end"),
    ],
)
def test_an_index_that_contradicts_its_manifest_is_refused(
    edit: Callable[[Any], Any], said: str, tmp_path: Path
) -> None:
    """By `verify`, and before anything trains on it."""
    root = packed(tmp_path)
    buffer = io.BytesIO()
    np.save(buffer, edit(np.load(root / "index.npy")))
    (root / "index.npy").write_bytes(buffer.getvalue())
    sign(root, read(root) | {"index": hashlib.sha256(buffer.getvalue()).hexdigest()})
    known = manifest(root, "photos")
    assert said in verify(root, known)["index.npy"]
    with pytest.raises(ValueError, match=re.escape(said)):
        Pack(root, known)


def test_a_jpeg_of_another_size_is_not_stretched(tmp_path: Path) -> None:
    """One pixel would fill a whole image; the error names shard and image."""
    root = packed(tmp_path, "jpeg")
    one = Pack(root, manifest(root, "photos"))
    small = io.BytesIO()
    Image.new("RGB", (1, 1)).save(small, "JPEG")
    (root / "shard-00000.jpeg").write_bytes(small.getvalue())
    one.records = one.records.copy()
    one.records["size"][0] = len(small.getvalue())
    one.checked[0] = True
    with pytest.raises(ValueError, match=r"shard-00000\.jpeg: image 0 .*1 x 1 pixels, not 12 x 12"):
        one.read(np.arange(1), np.empty((1, *one.shape), np.uint8))
