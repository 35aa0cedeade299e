"""Checkpoints of the papers' .npz format: read as timm reads them, or refused in one line, however hostile."""

import os
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vit_checkpoints import official, timm_model

from commonfloor.options import ConfigError
from vitcore.config import Config
from vitcore.interop import npz
from vitcore.training.pretrained import weights_for


def stacked(arrays: dict[str, np.ndarray[Any, Any]], layers: int) -> dict[str, np.ndarray[Any, Any]]:
    """Stack the arrays of all blocks, as big_vision's scan=True does."""
    first = "Transformer/encoderblock_0/"
    rest = {name: values for name, values in arrays.items() if "encoderblock_" not in name}
    for name in [name.removeprefix(first) for name in arrays if name.startswith(first)]:
        blocks = [arrays[f"Transformer/encoderblock_{layer}/{name}"] for layer in range(layers)]
        rest[f"Transformer/encoderblock/{name}"] = np.stack(blocks)
    return rest


def saved(folder: Path, arrays: dict[str, np.ndarray[Any, Any]], prefix: str = "") -> Path:
    np.savez(path := folder / "model.npz", **{prefix + name: values for name, values in arrays.items()})
    return path


BIG_VISION_POOLS: dict[str, dict[str, Any]] = {
    "average": {"class_token": False, "global_pool": "avg", "fc_norm": False},
    "class token": {"no_embed_class": True},
    "attention pooling": {"class_token": False, "global_pool": "map"},
}
CHECKPOINTS: dict[str, tuple[str, str, bool, dict[str, Any]]] = {
    "vit_jax": ("vit_jax", "", False, {}),
    "vit_jax, hybrid": ("vit_jax", "", False, {"stem": [2, 2]}),
    "vit_jax in an optimiser": ("vit_jax", "opt/target/", False, {}),
    **{f"big_vision, {pool}": ("big_vision", "params/", False, it) for pool, it in BIG_VISION_POOLS.items()},
    **{f"big_vision, {pool}, scan": ("big_vision", "params/", True, it) for pool, it in BIG_VISION_POOLS.items()},
}


@pytest.mark.parametrize(("layout", "prefix", "scan", "settings"), CHECKPOINTS.values(), ids=CHECKPOINTS)
@torch.no_grad()
def test_official_checkpoint_is_read_as_timm_reads_it(
    layout: str, prefix: str, scan: bool, settings: dict[str, Any], tmp_path: Path
) -> None:
    theirs = timm_model(**settings)
    arrays = official(layout, theirs)
    path = saved(tmp_path, stacked(arrays, 2) if scan else arrays, prefix)
    theirs.load_pretrained(str(path))
    ours = npz.load_npz(path)
    images = torch.randn(2, 3, ours.config.image_size, ours.config.image_size)
    torch.testing.assert_close(ours(images), theirs.eval()(images), rtol=1e-5, atol=1e-5)
    assert torch.equal(ours.head.bias, torch.from_numpy(arrays["head/bias"]))


@torch.no_grad()
def test_official_hidden_layer_is_the_tanh_head(tmp_path: Path) -> None:
    """pre_logits, which timm's loader ignores, is a dense layer and tanh before the head."""
    arrays = official("vit_jax", theirs := timm_model(), pre_logits=True)
    ours, images = npz.load_npz(path := saved(tmp_path, arrays)), torch.randn(2, 3, 32, 32)
    theirs.load_pretrained(str(path))
    vector = theirs.eval().forward_head(theirs.forward_features(images), pre_logits=True).numpy()
    hidden = np.tanh(vector @ arrays["pre_logits/kernel"] + arrays["pre_logits/bias"])
    expected = torch.from_numpy(hidden @ arrays["head/kernel"] + arrays["head/bias"])
    torch.testing.assert_close(ours(images), expected, rtol=1e-5, atol=1e-5)


POSITIONS = "Transformer/posembed_input/pos_embedding"
ATTENTION = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1"


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("embedding/kernel", None, "there is no array embedding/kernel"),
        (f"{ATTENTION}/key/bias", None, "its arrays have 67,[0-9]+ values, and a ViT of these sizes has 67,258"),
        (f"{ATTENTION}/out/bias", np.zeros((6, 8)), "timm cannot read it: "),
        ("head/kernel", None, "there is no array head/kernel"),
        (POSITIONS, None, f"there is no array {POSITIONS}"),
        ("cls2", np.zeros(3), "its arrays have 67,[0-9]+ values"),
        ("head/bias", np.zeros(11), "its arrays have 67,[0-9]+ values"),
        ("head/bias", np.zeros(10, int), "array head/bias has dtype int64"),
        ("head/bias", np.array([{}] * 10), "array head/bias cannot be read: .*allow_pickle"),
        ("embedding/kernel", np.zeros((8, 4, 3, 48)), "array embedding/kernel has shape .* square"),
        ("embedding/kernel", np.zeros((192, 48)), "array embedding/kernel has shape .* 4 dimensions"),
        (POSITIONS, np.zeros((1, 16, 48)), "array .*pos_embedding .* square"),
        ("pre_logits/bias", np.zeros(48), "there is no array pre_logits/kernel"),
        ("pre_logits/kernel", np.zeros((48, 4)), r"array pre_logits/kernel has shape \(48, 4\), not \(48, 48\)"),
    ],
)
def test_spoilt_checkpoint_is_one_line_naming_the_array(name: str, values: Any, message: str, tmp_path: Path) -> None:
    """Values of None stand for an array that is missing."""
    arrays = official("vit_jax", timm_model()) | {name: values}
    path = saved(tmp_path, {key: array for key, array in arrays.items() if array is not None})
    with pytest.raises(ValueError, match=message) as error:
        npz.load_npz(path)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_file_that_is_no_checkpoint_is_one_line(content: bytes | None, tmp_path: Path) -> None:
    path = saved(tmp_path, official("vit_jax", timm_model()))
    path.write_bytes(path.read_bytes()[:-5000] if content is None else content)
    with pytest.raises(ValueError, match=r"model\.npz: no \.npz file, or one cut short$"):
        npz.load_npz(path)


SPOILT = "head/bias"


def header(shape: str) -> bytes:
    """Return an .npy file with a header and no data."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def write(path: Path, member: Any, name: str = SPOILT, flags: int = 0, method: int = zipfile.ZIP_DEFLATED) -> None:
    """Write a checkpoint with one array or one member of bytes, whose zip entries have these flags and this method."""
    members = official("vit_jax", timm_model())
    members.pop(name, None)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, values in [*members.items(), (name, member)]:
            with archive.open(f"{key}.npy", "w") as file:
                file.write(values) if isinstance(values, bytes) else np.save(file, values)
    content = bytearray(path.read_bytes())
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.rfind(signature)
        content[at + place] |= flags
        content[at + place + 2] = method
    path.write_bytes(content)


POSITION = np.zeros((1, 17, 5), np.float32)
LAYER = "Transformer/encoderblock_1000000000000/x"
MEMBERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "encrypted": (partial(write, member=np.zeros(10, np.float32), flags=1), "cannot be read: .*encrypted"),
    "unknown compression": (partial(write, member=b"x", method=99), "cannot be read: .*compression"),
    "raw": (partial(write, member=b"no array"), "cannot be read: .*magic"),
    "empty": (partial(write, member=b""), "cannot be read"),
    "single number": (partial(write, member=np.float32(1)), "its arrays have 67,249 values"),
    "zero width": (partial(write, member=np.zeros((0, 48), np.float32)), "its arrays have 67,248 values"),
    "huge header": (partial(write, member=header("(10000000000000,)")), "cannot be read"),
    "overflowing header": (partial(write, member=header("(9223372036854775807, 9)")), "cannot be read"),
    "deep header": (partial(write, member=header("(" * 5000)), "cannot be read"),
    "single patches": (
        partial(write, member=np.float32(1), name=npz.PATCHES),
        r"array embedding/kernel has shape \(\), not 4 dimensions",
    ),
    "wide patches": (
        partial(write, member=np.zeros((1, 1, 1, 39_999), np.float32), name=npz.PATCHES),
        "its arrays have",
    ),
    "odd positions": (partial(write, member=POSITION, name=POSITIONS), "its arrays have 66,527 values"),
    "odd layer": (partial(write, member=np.zeros(1, np.float32), name=LAYER), "its arrays have 67,259 values"),
    "pipe": (os.mkfifo, "is not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "folder": (Path.mkdir, "is not a regular file"),
}


@pytest.mark.parametrize(("make", "why"), MEMBERS.values(), ids=MEMBERS)
def test_an_odd_member_is_one_line(make: Callable[[Path], object], why: str, tmp_path: Path) -> None:
    """`init_from` names the file and the reason, and neither waits for a pipe nor reads a device without end."""
    path = tmp_path / "w.npz"
    make(path)
    with pytest.raises(ConfigError, match=rf"init_from={path}: .*{why}") as error:
        weights_for(Config(init_from=str(path)), None)
    assert "\n" not in str(error.value)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members larger than half of the memory, by the archive's entries, are refused."""
    write(tmp_path / "w.npz", bytes(2**26))
    monkeypatch.setattr(npz, "host_limits", lambda: [2**27])
    with pytest.raises(ValueError, match=r"w\.npz: its arrays take 67,\d+,\d+ bytes; .* memory for 67,108,864"):
        npz.load_npz(tmp_path / "w.npz")
