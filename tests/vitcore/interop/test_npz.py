"""Untrusted checkpoints of the papers' format: an invalid member is one line of error, and none fills the memory."""

import io
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from vit_checkpoints import official, timm_model

from vitcore.config import Config
from vitcore.interop import npz
from vitcore.options import ConfigError
from vitcore.training.transfer import weights_for

SPOILT = "head/bias"


def as_npy(values: np.ndarray) -> bytes:
    written = io.BytesIO()
    np.save(written, values)
    return written.getvalue()


def header(shape: str) -> bytes:
    """Return an .npy file with a header and no data."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def write(path: Path, member: bytes, name: str = SPOILT, flags: int = 0, method: int = zipfile.ZIP_DEFLATED) -> None:
    """Write a checkpoint with one member of these bytes, whose zip entries have these flags and this method."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, values in official("vit_jax", timm_model()).items():
            if key != name:
                archive.writestr(f"{key}.npy", as_npy(values))
        archive.writestr(f"{name}.npy", member)
    content = bytearray(path.read_bytes())
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.rfind(signature)
        content[at + place] |= flags
        content[at + place + 2] = method
    path.write_bytes(content)


MEMBERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "encrypted": (lambda path: write(path, as_npy(np.zeros(10, np.float32)), flags=1), "cannot be read: .*encrypted"),
    "unknown compression": (lambda path: write(path, b"x", method=99), "cannot be read: .*compression"),
    "raw": (lambda path: write(path, b"no array"), "cannot be read: .*magic"),
    "empty": (lambda path: write(path, b""), "cannot be read"),
    "single number": (lambda path: write(path, as_npy(np.float32(1))), r"a single number: its shape is \(\)"),
    "zero width": (lambda path: write(path, as_npy(np.zeros((0, 48), np.float32))), r"its shape is \(0, 48\)"),
    "huge header": (lambda path: write(path, header("(10000000000000,)")), "cannot be read"),
    "overflowing header": (lambda path: write(path, header("(9223372036854775807, 9)")), "cannot be read"),
    "deep header": (lambda path: write(path, header("(" * 5000)), "cannot be read"),
    "single patches": (lambda path: write(path, as_npy(np.float32(1)), npz.PATCHES), "a single number"),
    "odd positions": (
        lambda path: write(path, as_npy(np.zeros((1, 17, 5), np.float32)), npz.VIT_JAX.positions),
        r"pos_embedding has shape \(1, 17, 5\)",
    ),
    "odd layer": (
        lambda path: write(path, as_npy(np.zeros(1, np.float32)), "Transformer/encoderblock_1000000000000/x"),
        "depth=1000000000001",
    ),
    "pipe": (os.mkfifo, "Not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "Not a regular file"),
    "folder": (Path.mkdir, "Not a regular file"),
}


@pytest.mark.parametrize(("make", "why"), MEMBERS.values(), ids=MEMBERS)
def test_an_odd_member_is_one_line(make: Callable[[Path], object], why: str, tmp_path: Path) -> None:
    """Within seconds, `init_from` names the file and the reason."""
    path = tmp_path / "w.npz"
    make(path)
    start = time.monotonic()
    with pytest.raises(ConfigError, match=rf"init_from={path}: .*{why}") as error:
        weights_for(Config(init_from=str(path)), None)
    assert "\n" not in str(error.value)
    assert time.monotonic() - start < 5


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members larger than half of the memory, by the archive's entries, are refused."""
    write(tmp_path / "w.npz", bytes(2**26))
    monkeypatch.setattr(npz, "host_limits", lambda: [2**27])
    with pytest.raises(ValueError, match=r"w\.npz: its arrays take 67,\d+,\d+ bytes; .* memory for 67,108,864"):
        npz.load_npz(tmp_path / "w.npz")
