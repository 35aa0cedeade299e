"""Packs: written once whatever happens, the same images as the source's, and refused by name where damaged."""

import json
import multiprocessing
import os
import shutil
import signal
import tarfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from in_process import Ablate, refusal
from photographs import cut_short, flip_byte, packed, stored_images
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms.functional import center_crop, resize

from ablations.cli import data as data_commands
from commonfloor.options import ConfigError
from vitcore.data.decode import DECODING
from vitcore.data.lookup import describe
from vitcore.data.pack import Pack, find_pack, manifest, verify
from vitcore.data.pack_sources import find_source
from vitcore.data.pack_writer import PackOptions, pack

FORK = multiprocessing.get_context("fork")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != ".lock"}


def test_images_are_those_of_the_folder_resized_and_cut(folder: Path, home: Path) -> None:
    """The images have torchvision's order, and the pixels of its Resize and CenterCrop to rounding."""
    images, one = stored_images(packed(folder, home)), manifest(home / "photos", "photos")
    as_jpeg = stored_images(packed(folder, home, "small", format="jpeg"))
    assert np.abs(images.astype(int) - as_jpeg).mean() < 12  # the loss of quality 95 on noise
    assert (one.train, one.test, one.classes, one.size, one.image_size) == (17, 7, ["cat", "dog"], 12, 10)
    expected = [sample for part in ("train", "test") for sample in ImageFolder(str(folder / part))]
    labels = Pack(home / "photos", one).labels
    assert labels.tolist() == [label for _, label in expected]
    for image, (theirs, _) in zip(images, expected, strict=True):
        whole = np.asarray(center_crop(resize(theirs, 12), [12, 12]))
        assert np.abs(image.astype(int) - whole).mean() < 3
    assert one.mean == pytest.approx(images[:17].mean(axis=(0, 1, 2)))
    assert one.std == pytest.approx(images[:17].std(axis=(0, 1, 2)))


def tar_of(folder: Path, target: Path) -> Path:
    with tarfile.open(target, "w") as tar:
        for path in sorted(folder.rglob("*.png")):
            tar.add(path, path.relative_to(folder))
    return target


def as_one_tar(folder: Path, work: Path) -> Path:
    work.mkdir(exist_ok=True)
    return tar_of(folder, work / "all.tar")


def as_a_tar_a_part(folder: Path, work: Path) -> Path:
    """Return tars like ImageNet's: train.tar holds a tar per class, val.tar holds class folders."""
    (work / "parts").mkdir()
    with tarfile.open(work / "parts" / "train.tar", "w") as outer:
        for name in ("cat", "dog"):
            inner = tar_of(folder / "train" / name, work / f"{name}.tar")
            content = inner.read_bytes().rstrip(b"\0")
            inner.write_bytes(content + bytes(-len(content) % 512))  # without its end mark
            outer.add(inner, inner.name)
    tar_of(folder / "test", work / "parts" / "val.tar")
    return work / "parts"


def as_timms_dataset(folder: Path, work: Path) -> str:
    (folder / "test").rename(folder / "validation")
    return "timm:"


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # timm's
@pytest.mark.parametrize("arrange", [as_one_tar, as_a_tar_a_part, as_timms_dataset])
def test_other_sources_hold_the_same_images_as_the_folder(
    arrange: Callable[[Path, Path], Path | str], folder: Path, home: Path, tmp_path: Path
) -> None:
    from_folder = contents(packed(folder, home))
    assert contents(packed(arrange(folder, tmp_path), tmp_path / "other", data_dir=folder)) == from_folder


def pack_until_killed(folder: Path, home: Path, images: int) -> None:
    """Pack, and kill this process after so many images."""
    left = iter(range(images))

    def advance(count: int) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    pack("photos", find_source(str(folder), home), home, PackOptions(size=12), 2, advance)


def test_packing_killed_ten_times_gives_identical_shards(folder: Path, home: Path, tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    ends = []
    for images in range(1, 60, 2):  # each attempt keeps the shards of the attempts before
        process = FORK.Process(target=pack_until_killed, args=(folder, tmp_path / "killed", images))
        process.start()
        process.join()
        ends.append(process.exitcode)
        if process.exitcode == 0:
            break
    assert ends.count(-signal.SIGKILL) >= 10
    assert contents(tmp_path / "killed" / "photos") == contents(packed(folder, home))


def test_a_second_packer_is_refused(folder: Path, home: Path) -> None:
    """A pack has one writer at a time, and none once it is finished or begun with other options."""
    source = find_source(str(folder), home)
    with pytest.raises(ValueError, match="another process is packing there"):
        pack("photos", source, home, PackOptions(size=12), advance=lambda count: packed(folder, home) and None)
    (home / "photos" / ".lock").unlink()
    with pytest.raises(ValueError, match="size=12 was begun here"):
        packed(folder, home, size=14)
    packed(folder, home)
    with pytest.raises(ValueError, match="exists already"):
        packed(folder, home)


def test_a_source_that_cannot_be_packed_is_named(folder: Path, home: Path, tmp_path: Path) -> None:
    flat, compressed = as_a_tar_a_part(folder, tmp_path), tmp_path / "compressed.tar"
    tar_of(folder / "test" / "cat", flat / "val.tar")  # without class folders, as ImageNet's
    stray, image = tmp_path / "stray", next(folder.glob("train/cat/*"))
    shutil.copytree(folder, stray)
    shutil.copy(image, stray / "train" / "stray.png")
    with tarfile.open(compressed, "w:gz") as tar:
        tar.add(folder, ".")
    (folder / "test" / "cat").rename(folder / "test" / "kat")
    for source, said in (
        (flat, r"val/.* is in no class folder"),
        (as_one_tar(stray, tmp_path / "more"), r"train/stray.png is in no class folder"),
        (compressed, r"compressed\.tar: .*unpacked first"),
        (as_one_tar(folder, tmp_path), "class 'kat' has no images to train on"),
    ):
        with pytest.raises(ValueError, match=said):
            packed(source, home)
    assert find_pack("photos") is None


def test_names_that_cannot_be(folder: Path, home: Path) -> None:
    for name in ("digits", "../up", "A", "", "a" * 65, "a/b"):
        with pytest.raises(ConfigError, match="a pack"):
            packed(folder, home, name)


@pytest.mark.parametrize(
    ("file", "damage"),
    [("shard-00003.bytes", cut_short), ("shard-00003.bytes", Path.unlink), ("index.npy", partial(flip_byte, place=-1))],
    ids=["cut short", "missing", "other index"],
)
def test_damage_is_named_before_anything_is_read(file: str, damage: Callable[[Path], None], root: Path) -> None:
    """Opening a pack checks the index and the size of each shard; `verify` reports progress to the end."""
    path, known, seen = root / file, manifest(root, "photos"), list[int]()
    damage(path)
    with pytest.raises(ValueError, match=str(path)):
        Pack(root, known)
    assert str(path) in verify(root, known, seen.append)[path.name]
    assert sum(seen) == known.bytes


@pytest.mark.parametrize("format", ["bytes", "jpeg"])
def test_a_flipped_byte_is_refused_when_it_is_read(format: str, folder: Path, home: Path) -> None:
    root = packed(folder, home, format=format)
    path = root / f"shard-00005.{format}"
    flip_byte(path, path.stat().st_size // 2)
    one = Pack(root, manifest(root, "photos"))
    into = np.empty((24, *one.shape), np.uint8)
    with pytest.raises(ValueError, match=rf"{path}: damaged, at byte \d+ \(image 5 of the pack\); the `ablate"):
        one.read(np.arange(24), into)
    one.read(np.delete(np.arange(24), 5), into[:23])
    assert verify(root, manifest(root, "photos")) == {path.name: f"{path}: damaged: its sha256 is not the manifest's"}


@pytest.mark.parametrize("format", ["bytes", "jpeg"])
def test_damaged_files_are_written_again(format: str, folder: Path, home: Path, ablate: Ablate) -> None:
    """The command that packed writes the damaged files alone, with their former bytes, and keeps the manifest."""
    root = packed(folder, home, format=format)
    whole, kept = contents(root), root / f"shard-00007.{format}"
    inode = kept.stat().st_ino
    (root / f"shard-00002.{format}").unlink()
    (root / f"shard-00004.{format}").write_bytes(b"other")
    flip_byte(root / "index.npy", -1)
    with mock.patch.object(data_commands, "progress") as progress:
        status, output, errors = ablate("data", "pack", "photos", str(folder))
    done = [call.args[0] for call in progress.return_value.__enter__.return_value.mock_calls]
    totals = dict(call.args for call in progress.mock_calls if len(call.args) == 2)
    assert sum(done) == sum(totals.values())
    assert (totals["images"] < 24) == (format == "bytes")
    assert (status, errors.count(": damaged"), errors.count(": cannot be read")) == (0, 2, 1)
    assert f"written again: index.npy, shard-00002.{format}, shard-00004.{format}" in output
    assert contents(root) == whole
    assert (kept.stat().st_ino == inode) == (format == "bytes")  # JPEGs tell no sizes


def test_a_changed_source_repairs_nothing(folder: Path, root: Path, ablate: Ablate) -> None:
    words = ("data", "pack", "photos", str(folder))
    (root / "shard-00000.bytes").write_bytes(b"")
    damaged = contents(root)
    Image.new("RGB", (24, 16)).save(folder / "train" / "cat" / "0000.png")
    status, _, errors = ablate(*words)
    assert (status, "shard-00000.bytes: cannot be made again: the images" in errors) == (2, True)
    shutil.copy(folder / "train" / "cat" / "0001.png", folder / "train" / "cat" / "more.png")
    assert "was packed from other images" in ablate(*words)[2]
    assert contents(root) == damaged


@pytest.mark.parametrize("whole", [True, False], ids=["finished", "begun"])
def test_other_options_than_those_of_a_pack_are_refused(whole: bool, folder: Path, home: Path, ablate: Ablate) -> None:
    root, words = packed(folder, home, crop=11), ("data", "pack", "photos", str(folder))
    if not whole:
        (root / "manifest.json").unlink()
        begun = {"version": 2, "name": "photos", "size": 12, "crop": 11, "format": "bytes", "decoding": DECODING}
        (root / "begun.json").write_text(json.dumps(begun | {"source": find_source(str(folder), None).digest}))
    for option, wanted, there in (("--size", "14", "12"), ("--crop", "448", "11"), ("--format", "jpeg", "bytes")):
        said = f"{option} {wanted}: {root} is packed with {option} {there}: give the other one another NAME"
        assert said in refusal(ablate, *words, option, wanted)
    assert ablate(*words)[0] == 0
    known = manifest(root, "photos")
    assert (known.size, known.image_size, known.format) == (12, 11, "bytes")


def test_the_manifest_of_another_set_is_refused(folder: Path, home: Path, root: Path) -> None:
    whole = contents(root)
    kept = whole["manifest.json"].decode()
    for wrong, said in (
        ((packed(folder, home, "other") / "manifest.json").read_text(), "is the manifest of 'other', not of 'photos'"),
        (kept.replace('"cat"', '"cow"'), "damaged.*; remove it, and"),
        (kept[:-30], "damaged.*; remove it, and"),
        (kept.replace('"version": 2', '"version": 1'), "of format 1, .* the `ablate data pack` that wrote it"),
    ):
        (root / "manifest.json").write_text(wrong)
        os.utime(root / "manifest.json", ns=(time.time_ns(), time.time_ns()))
        with pytest.raises(ConfigError, match=rf"photos/manifest\.json: {said}"):
            describe("photos")
    (root / "manifest.json").unlink()
    begun = {"name": "photos", "size": 12, "crop": 10, "format": "bytes", "source": "0" * 64}  # of format 1
    (root / "begun.json").write_text(json.dumps(begun))
    with pytest.raises(ValueError, match="a pack of another format was begun here"):
        packed(folder, home)
    (root / "begun.json").unlink()
    assert contents(packed(folder, home)) == whole


def test_the_command_packs_and_verifies(folder: Path, home: Path, ablate: Ablate) -> None:
    words = ("photos", str(folder), "--size", "12", "--crop", "12")
    assert ablate("data", "pack", *words)[:2] == (0, f"{home / 'photos'}\n")
    assert describe("photos").image_size == 12
    assert "is packed already, and nothing is damaged" in ablate("data", "pack", *words)[1]
    assert "24 images" in ablate("data", "verify", "photos", "--data-dir", str(home))[1]
    cut_short(path := home / "photos" / "shard-00003.bytes")
    for options in ("", f" --data-dir {home}"):
        status, output, _ = ablate("data", "verify", "photos", *options.split())
        assert (status, str(path) in output, f"pack photos SOURCE{options}` writes" in output) == (1, True, True)
    status, output, _ = ablate("data", "verify", "photos", "--json")
    assert (status, [*json.loads(output)["damaged"]]) == (1, [path.name])
    errors = refusal(ablate, "data", "pack", "p2", "nodir")
    assert (errors.startswith("ablate: source nodir: "), "imagefolder" in errors) == (True, False)


def test_a_pack_keeps_the_size_of_small_images(folder: Path, home: Path, ablate: Ablate) -> None:
    assert ablate("data", "pack", "own", str(folder))[::2] == (0, "")
    known = manifest(home / "own", "own")
    assert (known.size, known.image_size) == (16, 16)
    status, _, errors = ablate("data", "pack", "large", str(folder), "--size", "32")
    assert (status, manifest(home / "large", "large").size) == (0, 32)
    assert "24 of 24 images looked at are enlarged to --size 32, the smallest from 16 pixels" in errors
