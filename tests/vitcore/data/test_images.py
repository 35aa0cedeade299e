"""Images: values of 16 bits are scaled, unreadable files are named, and images and pickles of others run no program."""

import copy
import dataclasses
import hashlib
import io
import itertools
import os
import pickle
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torchvision
from photographs import packed, photographs, stored_images
from PIL import EpsImagePlugin, Image
from torchvision.datasets import CIFAR10

from commonfloor.options import ConfigError
from vitcore import Config
from vitcore.data.builtin import BUILT_IN
from vitcore.data.imagefolder import list_images, read_images
from vitcore.data.pack_sources import find_source
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
    """Make a folder of 8 x 8 images. `save` writes the first `count` images."""
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
    "pipe": ("png", os.mkfifo, "is not a regular file"),
    "device": ("png", lambda file: file.symlink_to("/dev/zero"), "is not a regular file"),
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


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # timm's
def test_eps_named_png_starts_no_ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders, tars and timm's data sets open only an allow-list of formats, and replace no damaged image."""
    counts = {f"{part}/{name}": 4 for part in ("train", "validation") for name in ("cat", "dog")}
    images, program = photographs(tmp_path / "images", counts, (8, 8)), tmp_path / "gs"
    (images / "train/dog/0001.png").write_bytes(EPS)
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    refused = r"cannot be read as an image \(none of BMP, GIF"
    with pytest.raises(ValueError, match=refused):
        find_source("timm:", images).open(5)  # after four cats and a dog
    (images / "validation").rename(images / "test")
    with pytest.raises(ConfigError, match=r"dog/0001.png: cannot be read as an image"):
        read_images(list_images(images), (8, 8), 3)
    with tarfile.open(tmp_path / "images.tar", "w") as tar:
        tar.add(images, "")
    source = find_source(str(tmp_path / "images.tar"), None)
    for place, name in enumerate(source.names):
        with pytest.raises(ValueError, match=refused) if "train/dog/0001.png" in name else nullcontext():
            source.open(place).load()
    assert not (tmp_path / "started").exists()


def test_allowed_formats_are_read_whatever_their_suffix(tmp_path: Path) -> None:
    for number, form in enumerate(("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP", "MPO")):
        (tmp_path / f"class{number}").mkdir()
        for name in "abcde":
            content = io.BytesIO()
            Image.new("RGB", (8, 8), (200, 100, 50)).save(content, form)
            (tmp_path / f"class{number}" / f"{name}.png").write_bytes(content.getvalue())
    images = read_images(list_images(tmp_path), (8, 8), 3).images
    assert len(images) == 40
    assert np.ptp(images.astype(int), axis=0).max() <= 3  # JPEG and WebP lose a little


class Touch:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def as_python_2(pixels: np.ndarray, key: str, labels: list[int]) -> bytes:
    """Return a pickle as CIFAR's authors wrote theirs: protocol 2, text for bytes, and NumPy's names of that time."""
    content, (rows, columns) = pixels.tobytes(), pixels.shape
    size = b"(J%bJ%bt" % (struct.pack("<i", rows), struct.pack("<i", columns))
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    state = b"(K\x01%b%b\x89T%b%bt" % (size, dtype, struct.pack("<i", len(content)), content)
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R%bb" % state
    items = b"U\x04data%bU%c%b](%be" % (array, len(key), key.encode(), b"".join(b"K%c" % label for label in labels))
    return b"\x80\x02}(%bu." % items


def write_batches(kind: type[CIFAR10], home: Path, contents: Iterator[bytes]) -> None:
    """Write files in torchvision's layout, and set the names and sums of `kind` to theirs."""
    (home / kind.base_folder).mkdir(parents=True)
    for entry, content in zip(itertools.chain(kind.train_list, kind.test_list), contents, strict=False):
        (home / kind.base_folder / entry[0]).write_bytes(content)
        entry[1] = hashlib.md5(content).hexdigest()


@pytest.fixture(params=["cifar10", "cifar100"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[CIFAR10]:
    """Return torchvision's class for files of 20 images, whose sums a test may change."""
    name = request.param
    kind: type[CIFAR10] = getattr(torchvision.datasets, name.upper())
    for files in ("train_list", "test_list"):
        monkeypatch.setattr(kind, files, copy.deepcopy(getattr(kind, files)))
    about = dataclasses.replace(BUILT_IN[name].about, train_size=20 * len(kind.train_list), test_size=20)
    monkeypatch.setattr(BUILT_IN[name], "about", about)
    return kind


def test_cifar_is_read_as_by_torchvision(kind: type[CIFAR10], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images, labels and order are equal, although only arrays of the pickles are read."""
    random, key = np.random.default_rng(0), "labels" if kind is CIFAR10 else "fine_labels"
    batches = (
        as_python_2(random.integers(0, 256, (20, 3072), np.uint8), key, random.integers(0, 10, 20).tolist())
        for _ in itertools.count()
    )
    write_batches(kind, tmp_path, batches)
    found = BUILT_IN[kind.__name__.lower()].read(tmp_path)
    monkeypatch.setattr(kind, "_check_integrity", lambda self: True)  # which asks for a file with the names of classes
    monkeypatch.setattr(kind, "_load_meta", lambda self: None)
    for train, places in ((True, found.train), (False, found.test)):
        theirs = kind(tmp_path, train=train)
        assert np.array_equal(found.images[places], theirs.data.transpose(0, 3, 1, 2))
        assert found.labels[places].tolist() == theirs.targets


def test_cifar_pickle_calls_nothing(kind: type[CIFAR10], tmp_path: Path) -> None:
    """Nothing runs, whether the md5 sum matches or not."""
    write_batches(kind, tmp_path, itertools.repeat(pickle.dumps({"data": Touch(tmp_path / "ran")})))
    with pytest.raises(ValueError, match=r"holds .*, which is no part of an array"):
        BUILT_IN[kind.__name__.lower()].read(tmp_path)
    with open(tmp_path / kind.base_folder / kind.train_list[0][0], "ab") as file:
        file.write(b" ")
    with pytest.raises(ValueError, match=f"{kind.train_list[0][0]}: damaged"):
        BUILT_IN[kind.__name__.lower()].read(tmp_path)
    assert not (tmp_path / "ran").exists()
