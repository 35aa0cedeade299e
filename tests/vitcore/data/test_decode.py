"""Decoding: values of 16 bits are scaled, and files that cannot be read are named."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from photographs import packed, photographs, stored_images
from PIL import Image

from vitcore import Config
from vitcore.config import ConfigError
from vitcore.data.splits import load

GRADIENT = np.linspace(0, 65535, 64).round().astype(np.uint16).reshape(8, 8)
SCALED = np.rint(GRADIENT / 65535 * 255).astype(np.uint8)
COUNTS = {f"{part}/{name}": 4 for part in ("train", "test") for name in ("cat", "dog")}
SIXTEEN_BITS: dict[str, Callable[[Path], object]] = {
    "png": lambda file: Image.fromarray(GRADIENT).save(file),
    "tif": lambda file: Image.fromarray(GRADIENT).save(file),
    "tiff": lambda file: Image.fromarray(GRADIENT.astype(">u2")).save(file),
    "pgm": lambda file: file.write_bytes(b"P5 8 8 65535\n" + GRADIENT.astype(">u2").tobytes()),
}


def folder_with(root: Path, suffix: str, save: Callable[[Path], object], count: int = 16) -> Path:
    """Make a folder of 8 x 8 images, of which `save` writes the first `count`."""
    photographs(root, COUNTS, (8, 8))
    for file in sorted(root.rglob("*.png"), key=lambda path: ("test" in path.parts, path))[:count]:
        file.unlink()
        save(file.with_suffix(f".{suffix}"))
    return root


@pytest.mark.parametrize("suffix", SIXTEEN_BITS)
def test_values_of_16_bits_are_scaled_to_bytes(suffix: str, tmp_path: Path) -> None:
    """Values become their rounded share of 65535, in a folder and in a pack."""
    root = folder_with(tmp_path / "gray", suffix, SIXTEEN_BITS[suffix])
    data = load(Config(data=f"imagefolder:{root}", patch=2))
    assert data.train.pixels.shape[1] == 1, "gray"
    assert (data.train.pixels[:, 0] == SCALED).all()
    assert (stored_images(packed(root, tmp_path, size=8)) == SCALED[..., None]).all()


def test_a_gray_image_of_16_bits_among_colored_ones_is_scaled(tmp_path: Path) -> None:
    root = photographs(tmp_path, COUNTS, (8, 8))
    for file in (root / "train" / "dog").iterdir():
        Image.fromarray(GRADIENT).save(file)
    data = load(Config(data=f"imagefolder:{root}", patch=2))
    assert (data.train.pixels[data.train.labels == 1].numpy() == SCALED).all()


def test_timms_reader_scales_too(tmp_path: Path) -> None:
    """Timm's datasets would clip the values."""
    root = folder_with(tmp_path / "gray", "png", SIXTEEN_BITS["png"])
    (root / "test").rename(root / "validation")
    assert (stored_images(packed("timm:", tmp_path, data_dir=root, size=8)) == SCALED[..., None]).all()


def bomb(file: Path) -> None:
    """Write a PNG of a few bytes whose header claims 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))


HOSTILE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "floats": ("tif", lambda file: Image.fromarray(GRADIENT.astype(np.float32)).save(file), "unknown range"),
    "integers": ("tif", lambda file: Image.fromarray(GRADIENT.astype(np.int32)).save(file), "unknown range"),
    "portable floats": ("ppm", lambda file: file.write_bytes(b"Pf\n8 8\n-1.0\n" + bytes(256)), "unknown range"),
    "bomb": ("png", bomb, "exceeds limit"),
    "pipe": ("png", os.mkfifo, "Not a regular file"),
    "device": ("png", lambda file: file.symlink_to("/dev/zero"), "Not a regular file"),
    "nothing": ("jpg", lambda file: file.write_bytes(b""), "cannot be read as an image"),
    "damaged": ("gif", lambda file: file.write_bytes(b"GIF89a\xff\xff\xff\xff\xf7"), "cannot be read as an image"),
}


@pytest.mark.parametrize("count", [1, 16])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_no_image_of_known_range_is_named(hostile: str, count: int, tmp_path: Path) -> None:
    suffix, save, why = HOSTILE[hostile]
    root = folder_with(tmp_path / "photos", suffix, save, count)
    with pytest.raises(ConfigError, match=rf"imagefolder:/.*/train/cat/0000\.{suffix}: .*{why}") as error:
        load(Config(data=f"imagefolder:{root}", patch=2))
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=rf"train/cat/0000\.{suffix}: .*{why}"):
        packed(root, tmp_path, "pack", size=8)
