"""Packs: written once whatever happens, the same images as the source's, and refused by name where damaged."""

import json
import multiprocessing
import os
import shutil
import signal
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import called
from photographs import photographs
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms.functional import center_crop, resize

from vitcore import Config
from vitcore.config import ConfigError
from vitcore.data import describe
from vitcore.identity import identity, trial_id
from vitcore.pack import Pack, find, manifest, opened, verify
from vitcore.packing import Options, pack
from vitcore.sources import find_source

COUNTS = {"train/cat": 9, "train/dog": 8, "test/cat": 3, "test/dog": 4}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photographs that are none, 24 x 16 pixels."""
    return photographs(tmp_path / "photos", COUNTS)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ABLATE_DATA says."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("ABLATE_PACKS", raising=False)
    return tmp_path / "data"


def packed(source: Path | str, home: Path, name: str = "photos", **options: Any) -> Path:
    return pack(name, find_source(str(source), home), home, Options(**({"size": 12} | options)), jobs=2)


def everything(folder: Path) -> np.ndarray[Any, Any]:
    """All images, as they are stored: (M, S, S, C)."""
    one = opened(folder, manifest(folder, folder.name).fingerprint)
    into = np.empty((one.manifest.images, *one.shape), np.uint8)
    one.read(np.arange(len(into)), into)
    return into


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != ".lock"}


@pytest.mark.parametrize(("grey", "channels"), [(1, 3), (24, 1)])
def test_a_pack_is_grey_where_all_its_images_are(folder: Path, home: Path, grey: int, channels: int) -> None:
    """One grey photograph in front makes no others grey."""
    for file in sorted(folder.rglob("*.*"), key=lambda path: ("test" in path.parts, path))[:grey]:
        with Image.open(file) as picture:
            picture.convert("L").save(file)
    assert everything(packed(folder, home)).shape[3] == channels


def test_images_are_those_of_the_folder_resized_and_cut(folder: Path, home: Path) -> None:
    """In torchvision's order, as its Resize and CenterCrop make them, but that Pillow rounds once instead of twice."""
    images, one = everything(packed(folder, home)), manifest(home / "photos", "photos")
    assert (one.train, one.test, one.classes, one.size, one.image_size) == (17, 7, ["cat", "dog"], 12, 10)
    expected = [sample for part in ("train", "test") for sample in ImageFolder(str(folder / part))]
    labels = Pack(home / "photos", one).labels
    assert labels.tolist() == [label for _, label in expected]
    for image, (theirs, _) in zip(images, expected, strict=True):
        whole = np.asarray(center_crop(resize(theirs, 12), [12, 12]))
        assert np.abs(image.astype(int) - whole).mean() < 3
    assert one.mean == pytest.approx(images[:17].mean(axis=(0, 1, 2)))
    assert one.std == pytest.approx(images[:17].std(axis=(0, 1, 2)))


def test_jpeg_is_smaller_and_close(folder: Path, home: Path) -> None:
    """The same images within what quality 95 loses on noise; and another pack, for the bytes are others."""
    plain, small = packed(folder, home), packed(folder, home, "small", format="jpeg", size=12)
    assert np.abs(everything(plain).astype(int) - everything(small)).mean() < 12
    assert describe("photos").fingerprint != describe("small").fingerprint


def tar_of(folder: Path, target: Path, root: Path) -> None:
    with tarfile.open(target, "w") as tar:
        for path in sorted(folder.rglob("*.png")):
            tar.add(path, path.relative_to(root))


def as_one_tar(folder: Path, work: Path) -> Path:
    tar_of(folder, work / "all.tar", folder)
    return work / "all.tar"


def as_a_tar_a_part(folder: Path, work: Path) -> Path:
    """As ImageNet comes: train.tar holds a tar a class, those the images alone; val.tar has class folders."""
    (work / "parts").mkdir()
    with tarfile.open(work / "parts" / "train.tar", "w") as outer:
        for name in ("cat", "dog"):
            tar_of(folder / "train" / name, work / f"{name}.tar", folder / "train" / name)
            outer.add(work / f"{name}.tar", f"{name}.tar")
    tar_of(folder / "test", work / "parts" / "val.tar", folder / "test")
    return work / "parts"


@pytest.mark.parametrize("arrange", [as_one_tar, as_a_tar_a_part])
def test_tars_hold_the_same_images_as_the_folder(
    arrange: Callable[[Path, Path], Path], folder: Path, home: Path, tmp_path: Path
) -> None:
    """Read in place: bit for bit the shards that the folder gives."""
    from_folder = contents(packed(folder, home))
    (tmp_path / "other").mkdir()
    assert contents(packed(arrange(folder, tmp_path), tmp_path / "other")) == from_folder


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # timm's
def test_timms_datasets_are_packed(folder: Path, home: Path) -> None:
    """What timm.data.create_dataset reads, with the names of its classes."""
    from_folder = everything(packed(folder, home))
    (folder / "test").rename(folder / "validation")
    images = everything(pack("timms", find_source("timm:", folder), home, Options(size=12)))
    assert np.array_equal(images, from_folder)
    assert manifest(home / "timms", "timms").classes == ["cat", "dog"]


def pack_until_killed(folder: Path, home: Path, images: int) -> None:
    """In a process of its own: kills itself after so many images."""
    left = iter(range(images))

    def advance(count: int) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    pack("photos", find_source(str(folder), home), home, Options(size=12), 2, advance)


def test_packing_killed_ten_times_gives_identical_shards(folder: Path, home: Path, tmp_path: Path) -> None:
    """SIGKILL at ten different images, each going on where the one before was: the files of a process never killed."""
    whole = contents(packed(folder, home))
    (tmp_path / "killed").mkdir()
    context = multiprocessing.get_context("fork")
    killed = 0
    for images in range(1, 60, 2):
        process = context.Process(target=pack_until_killed, args=(folder, tmp_path / "killed", images))
        process.start()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        if process.exitcode == 0:
            break
    assert killed >= 10
    assert contents(tmp_path / "killed" / "photos") == whole


def test_a_second_packer_is_refused(folder: Path, home: Path) -> None:
    """One writer at a time, and none into a finished pack or one of other images or options."""
    source = find_source(str(folder), home)
    with pytest.raises(ValueError, match="another process is packing there"):
        pack("photos", source, home, Options(size=12), advance=lambda count: packed(folder, home) and None)
    (home / "photos" / ".lock").unlink()
    with pytest.raises(ValueError, match="size=12 was begun here"):
        packed(folder, home, size=14)
    packed(folder, home)
    with pytest.raises(ValueError, match="is there already"):
        packed(folder, home)


def test_an_image_that_cannot_be_read_is_named(folder: Path, home: Path) -> None:
    """No pack is made of what is not all there."""
    path = folder / "train" / "dog" / "0003.png"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"train/dog/0003\.png .*cannot be read as an image"):
        packed(folder, home)
    assert find("photos") is None


@pytest.mark.parametrize("name", ["digits", "../up", "A", "", "a" * 65, "a/b"])
def test_names_that_cannot_be(name: str, folder: Path, home: Path) -> None:
    """Of built-in data, and what no folder of the data directory may be called."""
    with pytest.raises(ConfigError, match="a pack"):
        packed(folder, home, name)


def test_a_tar_with_a_class_that_is_only_tested_is_refused(folder: Path, home: Path, tmp_path: Path) -> None:
    """As a folder of images is: its name is in the message."""
    (folder / "test" / "cat").rename(folder / "test" / "kat")
    with pytest.raises(ValueError, match="class 'kat' has no images to train on"):
        packed(as_one_tar(folder, tmp_path), home)


def test_a_flat_tar_of_test_images_is_told_as_such(folder: Path, home: Path, tmp_path: Path) -> None:
    """ImageNet's own val.tar has no class folders."""
    parts = as_a_tar_a_part(folder, tmp_path)
    tar_of(folder / "test" / "cat", parts / "val.tar", folder / "test" / "cat")
    with pytest.raises(ValueError, match=r"val/.* is in no class folder"):
        packed(parts, home)


def test_compressed_tars_say_what_to_do(folder: Path, home: Path, tmp_path: Path) -> None:
    """They cannot be read in place."""
    with tarfile.open(tmp_path / "all.tar", "w:gz") as tar:
        tar.add(folder, ".")
    with pytest.raises(ValueError, match=r"all\.tar: .*unpacked first"):
        packed(tmp_path / "all.tar", home)


# -- what is damaged ---------------------------------------------------------------------------------------------------


def cut_short(folder: Path) -> Path:
    path = folder / "shard-00003.bytes"
    os.truncate(path, path.stat().st_size - 1)
    return path


def missing(folder: Path) -> Path:
    (folder / "shard-00003.bytes").unlink()
    return folder / "shard-00003.bytes"


def other_index(folder: Path) -> Path:
    path = folder / "index.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    return path


@pytest.mark.parametrize("damage", [cut_short, missing, other_index])
def test_damage_is_named_before_anything_is_read(damage: Callable[[Path], Path], folder: Path, home: Path) -> None:
    """Sizes and sums of what is small are checked when a pack is opened."""
    root = packed(folder, home)
    path = damage(root)
    with pytest.raises(ValueError, match=str(path)):
        Pack(root, manifest(root, "photos"))
    assert str(path) in verify(root, manifest(root, "photos"))[0]


@pytest.mark.parametrize("format", ["bytes", "jpeg"])
def test_a_flipped_byte_is_refused_when_it_is_read(format: str, folder: Path, home: Path) -> None:
    """Wherever it is: the shard, and where in it; the others are read."""
    root = packed(folder, home, format=format)
    path = root / f"shard-00005.{format}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    one = Pack(root, manifest(root, "photos"))
    into = np.empty((24, *one.shape), np.uint8)
    with pytest.raises(ValueError, match=rf"{path}: damaged, at byte \d+ \(image 5 of the pack\)"):
        one.read(np.arange(24), into)
    one.read(np.delete(np.arange(24), 5), into[:23])
    assert verify(root, manifest(root, "photos")) == [
        f"{path}: damaged: {len(content):,} of {len(content):,} bytes, and their sum is another"
    ]


def test_shards_of_another_set_are_refused(folder: Path, home: Path) -> None:
    """Of the same sizes and count: no image of theirs passes for one of this pack's."""
    root = packed(folder, home)
    for path in (folder / "train").rglob("*.png"):
        Image.open(path).transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(path)
    other = packed(folder, home, "other")
    shutil.copy(other / "shard-00000.bytes", root)
    with pytest.raises(ValueError, match=r"photos/shard-00000\.bytes: damaged"):
        everything(root)
    shutil.copy(other / "index.npy", root)
    with pytest.raises(ValueError, match=r"photos/index\.npy: damaged, or of another pack"):
        Pack(root, manifest(root, "photos"))


def test_the_manifest_of_another_set_is_refused(folder: Path, home: Path) -> None:
    """By its name; and edited, by its fingerprint."""
    root, other = packed(folder, home), packed(folder, home, "other")
    kept = (root / "manifest.json").read_text()
    shutil.copy(other / "manifest.json", root)
    with pytest.raises(ConfigError, match=r"photos/manifest\.json: is the manifest of 'other', not of 'photos'"):
        describe("photos")
    for wrong in (kept.replace('"cat"', '"cow"'), kept[:-30], "[]", kept.replace("shard-00000", "../../x-00000")):
        (root / "manifest.json").write_text(wrong)
        os.utime(root / "manifest.json", ns=(time.time_ns(), time.time_ns()))
        with pytest.raises(ConfigError, match=r"photos/manifest\.json: damaged"):
            describe("photos")


def test_a_pack_of_an_earlier_format_says_what_to_do(folder: Path, home: Path) -> None:
    """Whole or half made, it is refused by name: its images would be read with their channels in the wrong place."""
    root = packed(folder, home)
    content = json.loads((root / "manifest.json").read_text())
    (root / "manifest.json").write_text(json.dumps({**content, "version": 1}))
    again = "of format 1, and this program reads 2: remove .*photos and pack it again, `ablate data pack photos SOURCE`"
    with pytest.raises(ConfigError, match=rf"photos/manifest\.json: {again}"):
        describe("photos")
    (root / "manifest.json").unlink()
    begun = {"name": "photos", "size": 12, "crop": 10, "format": "bytes", "source": "0" * 64}
    (root / "begun.json").write_text(json.dumps(begun))
    with pytest.raises(ValueError, match="a pack of another format was begun here"):
        packed(folder, home)


# -- by name -----------------------------------------------------------------------------------------------------------


def test_a_pack_is_data_by_its_name(folder: Path, home: Path) -> None:
    """Sizes come from the manifest; the identity holds name and fingerprint, and no path."""
    packed(folder, home)
    config = Config(data="photos", patch=2)
    assert (config.data, config.image_size, config.channels, config.classes) == ("photos", 10, 3, 2)
    assert identity(config)["data"] == {"pack": "photos", "sha256": manifest(home / "photos", "photos").fingerprint}
    assert str(home.parent) not in json.dumps(identity(config))
    before = trial_id(config)
    home.rename(home.with_name("moved"))
    os.environ["ABLATE_DATA"] = str(home.with_name("moved"))
    assert trial_id(Config(data="photos", patch=2)) == before


def test_what_is_not_there_says_where_it_was_looked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a directory."""
    with pytest.raises(ConfigError, match=rf"data=imagenet: .*in {home} there is no imagenet/manifest\.json"):
        Config(data="imagenet")
    monkeypatch.delenv("ABLATE_DATA")
    with pytest.raises(ConfigError, match=r"data=imagenet: .*none without --data-dir or ABLATE_DATA"):
        Config(data="imagenet")


def test_the_command_packs_and_verifies(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ablate data pack` prints where, and again says that it is there; `verify` names what is damaged."""
    words = ("photos", str(folder), "--data-dir", str(home), "--size", "12", "--crop", "12")
    assert called(monkeypatch, "data", "pack", *words)[:2] == (0, f"{home / 'photos'}\n")
    assert describe("photos").image_size == 12
    status, _, errors = called(monkeypatch, "data", "pack", *words)
    assert (status, "is there already" in errors) == (2, True)
    status, output, _ = called(monkeypatch, "data", "verify", "photos", "--data-dir", str(home))
    assert (status, "24 images" in output) == (0, True)
    path = cut_short(home / "photos")
    status, output, _ = called(monkeypatch, "data", "verify", "photos", "--data-dir", str(home))
    assert (status, str(path) in output) == (1, True)
    assert "no nothing/manifest.json" in called(monkeypatch, "data", "verify", "nothing")[2]


def test_ablate_toml_names_packs_too(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name for a folder with a manifest stays a name; for one without it is a folder of images."""
    packed(folder, home, "pets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ABLATE_DATA")
    (tmp_path / "ablate.toml").write_text(f'[data]\npets = "{home / "pets"}"\nplain = "{folder}"\n')
    for name, data in (("pets", "pets"), ("plain", f"imagefolder:{folder}")):
        status, _, errors = called(
            monkeypatch, "train", f"data={name}", "patch=2", "steps=1", "width=6", "--runs", name
        )
        assert status == 0, errors
        (config,) = Path(name).glob("trials/*/config.json")
        assert json.loads(config.read_text())["config"]["data"] == data
