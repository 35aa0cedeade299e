"""Folders of images: what is hidden is no data, links are followed, and names that cannot be are refused."""

import hashlib
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from in_process import Ablate, refusal
from photographs import packed, photographs

from commonfloor.options import ConfigError
from vitcore.config import Config
from vitcore.data.imagefolder import list_images
from vitcore.data.lookup import describe
from vitcore.data.pack import manifest
from vitcore.data.pack_sources import find_source
from vitcore.data.splits import load
from vitcore.identity import trial_id

HIDDEN = (
    ".ipynb_checkpoints/0000-checkpoint.png",
    ".thumbnails/deep/0000.png",
    "@eaDir/0000.png",
    "__MACOSX/0000.png",
    ".git/0000.png",
    "deep/er/.cache/0000.png",
    "$RECYCLE.BIN/0000.png",
    "deep/._0000.png",
    ".0000.png",
)


def plain_folder(root: Path) -> Path:
    """Write twelve images of 4 x 4 pixels whose bytes no library chooses; return `root`."""
    for number in range(12):
        file = root / ("train" if number < 8 else "test") / "ab"[number % 2] / f"{number}.ppm"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"P6 4 4 255\n" + bytes((number + place) % 256 for place in range(48)))
    return root


def test_the_id_of_a_plain_folder_is_pinned(tmp_path: Path) -> None:
    """The fingerprint is the sha256 of names and contents, as in 0.23."""
    root, total = plain_folder(tmp_path), hashlib.sha256()
    for part in ("train", "test"):
        for file in sorted((root / part).rglob("*.ppm")):
            total.update(str(file.relative_to(root)).encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    assert describe(f"imagefolder:{root}").fingerprint == {"images": 12, "sha256": total.hexdigest()}
    assert trial_id(Config(data=f"imagefolder:{root}", patch=2)) == "fa99b2106007"


@pytest.mark.parametrize("where", ["train/cat", "test/dog", "train", "test", ""])
def test_hidden_files_are_no_data(where: str, folder: Path, home: Path, tmp_path: Path) -> None:
    """Copies of images in hidden folders change neither the images nor the id, in a folder, a pack and a tar."""
    clean = describe(f"imagefolder:{shutil.copytree(folder, tmp_path / 'clean')}")
    packs = [manifest(packed(folder, home), "photos")]
    for name in HIDDEN if where.count("/") else HIDDEN[:5]:
        copy = folder / where / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "test" / "cat" / "0000.png", copy)
    assert describe(f"imagefolder:{folder}") == clean
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        tar.add(folder, ".")
    for number, source in enumerate((folder, tmp_path / "photos.tar")):
        packs.append(manifest(packed(source, tmp_path / f"again{number}"), "photos"))
    assert packs[1:] == packs[:1] * 2


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # timm's
@pytest.mark.parametrize("name", [".ipynb_checkpoints/0000.png", "._0000.png"])
def test_timms_reader_of_a_folder_takes_no_hidden_file(name: str, folder: Path) -> None:
    (folder / "test").rename(folder / "validation")
    copy = folder / "train" / "cat" / name
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(folder / "train" / "cat" / "0000.png", copy)
    with pytest.raises(ValueError, match=rf"train: {copy} is hidden: remove it"):
        find_source("timm:", folder)


def test_links_are_followed_at_every_depth(folder: Path, tmp_path: Path) -> None:
    """A linked class, a linked folder below a class and a linked file hold the images that they lead to."""
    whole = list_images(shutil.copytree(folder, tmp_path / "whole"))
    (tmp_path / "elsewhere").mkdir()
    for name in ("train/cat", "test/dog/0001.png"):
        (folder / name).rename(target := tmp_path / "elsewhere" / Path(name).name)
        (folder / name).symlink_to(target)
    (folder / "train" / "dog").rename(tmp_path / "elsewhere" / "dogs")
    (folder / "train" / "dog").mkdir()
    (folder / "train" / "dog" / "more").symlink_to(tmp_path / "elsewhere" / "dogs")
    found = list_images(folder)
    assert (len(found.files), found.labels.tolist()) == (24, whole.labels.tolist())
    assert [file.read() for file in found.files] == [file.read() for file in whole.files]


@pytest.mark.parametrize("target", ["", "train", "train/cat", "train/cat/deep", ".."])
def test_a_link_to_a_folder_that_it_is_in_is_refused(target: str, folder: Path) -> None:
    link = folder / "train" / "cat" / "deep" / "again"
    link.parent.mkdir()
    link.symlink_to(folder / target)
    with pytest.raises(ConfigError, match=rf"again.*: is a link to {folder.parent}.*, a folder that it is in$"):
        describe(f"imagefolder:{folder}")


@pytest.mark.parametrize("target", ["/nowhere/cows", "itself"])
@pytest.mark.parametrize("place", ["train/itself", "train/cat/itself", "train/cat/0099.png", "itself"])
def test_a_link_to_nothing_is_named(place: str, target: str, folder: Path) -> None:
    """A class on a disk that is not mounted is not left out in silence, nor is a link to itself."""
    (folder / place).symlink_to(target)
    with pytest.raises(ConfigError, match=rf"{place}: is a link to {target}, which does not exist"):
        describe(f"imagefolder:{folder}")


@pytest.mark.parametrize(("kind", "name"), [("symlink", "0099.png"), ("hard link", "0099.png"), ("symlink", "more")])
def test_a_link_in_a_tar_is_not_left_out_in_silence(kind: str, name: str, folder: Path, tmp_path: Path) -> None:
    target, link = folder / "train" / "cat" / "0000.png", folder / "train" / "dog" / name
    link.symlink_to(target) if kind == "symlink" else link.hardlink_to(target)
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        tar.add(folder, ".")
    with pytest.raises(ValueError, match=r"photos\.tar: train/\w+/.* is a link: make the tar with --dereference"):
        find_source(str(tmp_path / "photos.tar"), None)


@pytest.mark.parametrize(
    ("train", "test"), [("Train", "Test"), ("training", "testing"), ("TRAIN", "Validation"), ("train", "valid")]
)
def test_other_names_of_train_and_test_are_known(
    train: str, test: str, folder: Path, home: Path, tmp_path: Path
) -> None:
    one = manifest(packed(folder, home), "photos")
    for old, new in (("train", train), ("test", test)):
        (folder / old).rename(folder / new)
    about = describe(f"imagefolder:{folder}")
    assert (about.classes, about.train_size, about.test_size) == (2, 17, 7)
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        tar.add(folder, ".")
    (tmp_path / "parts").mkdir()
    for part in (train, test):
        with tarfile.open(tmp_path / "parts" / f"{part}.tar", "w") as tar:
            tar.add(folder / part, ".")
    for source in (folder, tmp_path / "photos.tar", tmp_path / "parts"):
        assert manifest(packed(source, tmp_path / f"pack of {source.name}"), "photos") == one


def test_the_exact_name_goes_first(folder: Path) -> None:
    shutil.copytree(folder / "train", folder / "Training")
    (folder / "val" / "cat").mkdir(parents=True)
    assert describe(f"imagefolder:{folder}").train_size == 17


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"train": 3, "bus": 3, "car": 3}, "neither test/ nor val/ beside it; if 'train' is a class like 'bus', give"),
        ({"Training": 3, "Rest": 3}, "if 'Training' is a class like 'Rest', give its folder another name"),
        ({"Test/a": 3, "Test/b": 3, "val/a": 3, "val/b": 3}, "has Test/, val/ but no train/ beside them"),
        ({"train/a": 3, "train/b": 3, "test/a": 3}, "test: has no folder of the class 'b', which is in train/$"),
        ({"train/a": 3, "train/b": 3, "test/a": 0, "test/b": 0}, r"test: has no images \(\.bmp, "),
        ({f"train/{c}": 3 for c in "abcd"} | {"val/c": 1}, "val: has no folder of the class 'a', .* .2 more classes"),
        ({}, "has no class folders"),
        ({"cat": 3}, "only the class folder 'cat'; at least 2"),
        ({"cat": 3, "dog": 0}, "dog: has no images"),
        ({"train/cat": 3, "train/dog": 3}, "neither test/ nor val/"),
        ({"train/cat": 3, "train/dog": 3, "test/cow": 1, "test/cat": 1}, "class 'cow' is not in train/"),
        ({"cat": 5, "dog": 1}, "class 'dog' has 1 image, 0 outside the test set: it needs at least 2, one to train"),
        ({"cat": 5, "dog": 2, "fox": 1}, r"class 'dog' has 2 images, 1 outside .* \(1 more classes"),
        ({"train/cat": 3, "train/dog": 1, "test/cat": 1, "test/dog": 1}, "'dog' has 2 images, 1 outside the test set"),
    ],
)
def test_a_layout_that_cannot_be_is_said_plainly(counts: dict[str, int], message: str, tmp_path: Path) -> None:
    root = photographs(tmp_path, counts, (8, 6))
    with pytest.raises(ConfigError, match=f"{root}.*{message}"):
        describe(f"imagefolder:{root}")


def test_a_tar_with_a_class_named_train_gets_a_hint(tmp_path: Path) -> None:
    photographs(tmp_path / "all", {"vehicles/train": 3, "vehicles/bus": 3, "vehicles/train/x": 1}, (8, 6))
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        tar.add(tmp_path / "all", ".")
    with pytest.raises(ValueError, match=r"is in no class folder|no class may be named train"):
        find_source(str(tmp_path / "all.tar"), None)


LATIN_1 = os.fsdecode(b"caf\xe9")


def test_file_names_of_another_encoding_work(folder: Path, home: Path) -> None:
    """A name that is not UTF-8 is hashed by its bytes, and packs."""
    before = describe(f"imagefolder:{folder}").fingerprint
    (folder / "train" / "cat" / "0000.png").rename(folder / "train" / "cat" / f"0000{LATIN_1}.png")
    renamed = folder.rename(folder.with_name("renamed"))
    assert describe(f"imagefolder:{renamed}").fingerprint != before
    assert len(load(Config(data=f"imagefolder:{renamed}", patch=2)).test) == 7
    assert manifest(packed(renamed, home), "photos").images == 24


def test_a_path_of_another_encoding_is_refused(folder: Path, ablate: Ablate) -> None:
    folder.rename(folder.with_name(LATIN_1))
    data, there = f"data=imagefolder:{LATIN_1}", ("--data-dir", str(folder.parent))
    for words in (("init", LATIN_1), ("data", "pack", "cafe", LATIN_1, *there), ("plan", "demo", data)):
        assert "caf\\udce9" in refusal(ablate, *words)
    with pytest.raises(ConfigError, match=r"has to be UTF-8"):
        describe(f"imagefolder:{folder.with_name(LATIN_1)}")


@pytest.mark.parametrize("part", ["train", "test"])
def test_class_names_of_another_encoding_are_refused(part: str, folder: Path, tmp_path: Path) -> None:
    for one in ("train", "test"):
        (folder / one / "cat").rename(folder / one / (LATIN_1 if part in (one, "train") else "cat"))
    with pytest.raises(ConfigError, match=r"caf.: the name of a class folder has to be UTF-8"):
        describe(f"imagefolder:{folder}")
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        tar.add(folder, ".")
    with pytest.raises(ValueError, match=r"class folder caf. has to be UTF-8"):
        find_source(str(tmp_path / "photos.tar"), None)
