"""Files of `datasets`, the Hub and WebDataset: the same images as the folder's, and refused in one line."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import other_formats
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from in_process import Ablate, refusal
from other_formats import as_parquet, as_samples, as_saved, table, write_tar
from photographs import flip_byte, packed, stored_images

from ablations.trainables.vit.commands import data_folders
from ablations.trainables.vit.data import display_name
from vitcore.config import Config
from vitcore.data import lookup
from vitcore.data.formats import list_stored
from vitcore.data.formats.layout import Selection, braces, expand, split_name
from vitcore.data.formats.tables import TableFile
from vitcore.data.lookup import describe
from vitcore.data.pack import manifest
from vitcore.data.splits import load

FORMATS = {"hf": as_saved, "parquet": as_parquet, "wds": as_samples}
Write = Callable[[Path, Path], str]


def packed_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != ".lock"}


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_a_pack_equals_that_of_the_folder(write: Write, folder: Path, home: Path, tmp_path: Path) -> None:
    name = write(folder, tmp_path / "other")
    assert packed_files(packed(name, tmp_path / "again")) == packed_files(packed(folder, home))


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_training_sees_what_it_sees_of_a_pack(write: Write, folder: Path, home: Path, tmp_path: Path) -> None:
    """Images, labels, order, means and standard deviations are equal, so weights are."""
    packed(folder, home, crop=12)
    sizes: dict[str, Any] = {"patch": 4, "width": 16, "heads": 2, "depth": 1}
    ours = load(Config(data=write(folder, tmp_path / "other"), image_size=12, **sizes))
    theirs = load(Config(data="photos", **sizes))
    for part in ("train", "val", "test"):
        got, wanted = getattr(ours, part), getattr(theirs, part)
        assert np.array_equal(got.index, wanted.index)
        assert got.labels.equal(wanted.labels)
        assert got.pixels.equal(next(wanted.batches(len(wanted))))
    assert ours.mean.allclose(theirs.mean)
    assert ours.std.allclose(theirs.std)


def test_the_id_is_that_of_the_content(folder: Path, tmp_path: Path) -> None:
    """It depends on images, labels, order and names of classes; not on the format, shards or place."""
    prints = {describe(write(folder, tmp_path / key)).fingerprint["sha256"] for key, write in FORMATS.items()}
    whole = tmp_path / "whole"
    whole.mkdir()
    for split in ("train", "test"):
        pq.write_table(table(other_formats.images(folder, split)), whole / f"{split}.parquet")
    prints.add(describe(f"parquet:{whole}").fingerprint["sha256"])
    assert len(prints) == 1
    rows = other_formats.images(folder, "train")
    changes = {
        "order": table(rows[::-1]),
        "names": table(rows, ("cat", "hound")),
        "label": table([(*rows[0][:2], 1), *rows[1:]]),
        "image": table([rows[1], *rows[1:]]),
    }
    for key, changed in changes.items():
        shutil.copytree(whole, tmp_path / key)
        pq.write_table(changed, tmp_path / key / "train.parquet")
        pq.write_table(
            table(other_formats.images(folder, "test"), ("cat", "hound" if key == "names" else "dog")),
            tmp_path / key / "test.parquet",
        )
        prints.add(describe(f"parquet:{tmp_path / key}").fingerprint["sha256"])
    assert len(prints) == 1 + len(changes)


def test_threads_read_each_others_row_groups(folder: Path, tmp_path: Path) -> None:
    """Rows in any order, at once: each is the image that was written there."""
    as_parquet(folder, tmp_path / "other")
    shard = TableFile(tmp_path / "other" / "train-00000-of-00002.parquet", "train")
    rows = list(range(shard.starts[-1])) * 20
    np.random.default_rng(0).shuffle(rows)
    wanted = [content for _, content, _ in other_formats.images(folder, "train")]
    assert len(shard.starts) == 4
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda row: shard.image("image", row), rows)) == [wanted[row] for row in rows]


def test_one_split_keeps_a_fifth_for_testing(folder: Path, tmp_path: Path) -> None:
    """Also where it is chosen twice. Every image is either trained on or tested, of each class."""
    name = as_saved(folder, tmp_path / "other")
    one = list_stored(f"hf:{tmp_path / 'other' / 'train'}")
    for listing in (one, list_stored(f"{name}#test=train")):
        assert (len(listing.train), len(listing.test)) == (13, 4)
        assert np.bincount(listing.labels[listing.test]).tolist() == [2, 2]
        content = {image.read() for image in listing.files}
        assert content == {content for _, content, _ in other_formats.images(folder, "train")}


@pytest.mark.parametrize(
    ("file", "split"),
    {
        "data/train-00000-of-00010.parquet": "train",
        "train-00000-of-00001-b42a775f407cee45.parquet": "train",
        "default/partial-train/0000.parquet": "train",
        "imagenet1k-validation-07.tar": "validation",
        "test/train-0.tar": "train",
        "matched_frequency-00000-of-00001.parquet": "matched_frequency",
        "train_val_test-0.tar": "train_val_test",
        "0003.parquet": "all",
    }.items(),
)
def test_a_files_name_says_its_split(file: str, split: str) -> None:
    assert split_name(Path(file)) == split


@pytest.mark.parametrize(
    ("choice", "names", "splits"),
    [
        ("", ["test", "train", "validation"], ["train", "test"]),
        ("", ["train", "validation"], ["train", "validation"]),
        ("", ["all"], ["all"]),
        ("", ["test"], ["test"]),
        ("test=validation", ["test", "train", "validation"], ["train", "validation"]),
        ("train=a,test=b", ["a", "b", "train"], ["a", "b"]),
        ("test=train", ["test", "train"], ["train"]),
    ],
)
def test_which_splits_are_read(choice: str, names: list[str], splits: list[str]) -> None:
    assert Selection.parse(f"x#{choice}")[1].splits(names) == splits


def test_patterns(tmp_path: Path) -> None:
    """Braces count with zeros and nest; a folder stands for its visible files, also below a hidden folder."""
    wanted = {f"{first}-{second}" for first in ("a", "b8", "b9", "b10") for second in ("00", "01")}
    assert set(braces("{a,b{8..10}}-{00..01}")) == wanted
    cache = tmp_path / ".cache"
    names = ["b.tar", "a.tar", "c/d.tar", ".e.tar", "__MACOSX/f.tar", "g.txt"]
    for name in names:
        (cache / name).parent.mkdir(exist_ok=True, parents=True)
        (cache / name).touch()
    for pattern in (f"{cache}", f"{cache}/**/*.tar"):
        found = [str(path.relative_to(cache)) for path in expand(pattern, ".tar")]
        assert found == ["a.tar", "b.tar", "c/d.tar"]
    assert len(expand(f"{cache}/{{a,?}}.tar", ".tar")) == 2
    with pytest.raises(ValueError, match="no such file"):
        expand(f"{cache}/__*/f.tar", ".tar")


def rewrite(folder: Path, split: str, rows: Any = None, edit: Any = lambda whole: whole, **changed: Any) -> str:
    """Write a split anew as one file, from other rows or with its table edited."""
    for file in (folder.parent / "other").glob(f"{split}-*"):
        file.unlink()
    whole = edit(table(rows or other_formats.images(folder, split), **changed))
    pq.write_table(whole, folder.parent / "other" / f"{split}-00000-of-00001.parquet")
    return f"parquet:{folder.parent / 'other'}"


def unlabelled(folder: Path) -> str:
    return rewrite(folder, "test", edit=lambda whole: whole.set_column(1, "label", [[-1] * len(whole)]))


def without_label(folder: Path) -> str:
    """Drop a column with pyarrow, which keeps its class names in the metadata."""
    return rewrite(folder, "test", edit=lambda whole: whole.drop_columns(["label"]))


def nested(folder: Path) -> str:
    """Put the struct of an image into the field `bytes` of another struct."""

    def wrap(whole: pa.Table) -> pa.Table:
        inner = whole["image"].combine_chunks()
        return whole.set_column(0, "image", pa.StructArray.from_arrays([inner], ["bytes"]))

    return f"{rewrite(folder, 'train', edit=wrap)}#image=image"


def without_bytes(folder: Path) -> str:
    return rewrite(folder, "test", [(path, None, label) for path, _, label in other_formats.images(folder, "test")])


def with_missing_label(folder: Path) -> str:
    rows: list[Any] = other_formats.images(folder, "test")
    rows[3] = (*rows[3][:2], None)
    return rewrite(folder, "test", rows)


def broken_image(folder: Path) -> str:
    rows = other_formats.images(folder, "test")
    rows[2] = ("x", b"no image", 0)
    return rewrite(folder, "test", rows)


def damaged(folder: Path) -> str:
    path = folder.parent / "other" / "train-00000-of-00002.parquet"
    os.truncate(path, path.stat().st_size - 9)
    return f"parquet:{path.parent}"


REFUSED: dict[str, tuple[Callable[[Path], str], str]] = {
    "no labels": (
        unlabelled,
        "test-00000-of-00001.parquet row 0: has the label -1 of 2 classes, 0 to 1: a test set without labels? "
        "Choose another split by #test=NAME",
    ),
    "several": (
        lambda folder: rewrite(folder, "test", column="fine_label", classes=(), coarse_label=[0] * 7),
        "several label columns, fine_label, coarse_label: choose one by #label=NAME",
    ),
    "nested": (nested, "#image=image: holds struct<bytes: struct<"),
    "dropped": (without_label, "no label column among image: choose one by #label=NAME"),
    "none": (
        lambda folder: rewrite(folder, "test", column="breed", classes=()),
        "no label column among image, breed: choose one by #label=NAME",
    ),
    "paths": (
        without_bytes,
        "test-00000-of-00001.parquet row 0: cannot be read as an image (the file holds no bytes of this image, "
        "or only its path: save_to_disk embeds images) (6 more files are broken)",
    ),
    "null": (with_missing_label, "test-00000-of-00001.parquet row 3: has no label"),
    "names": (
        lambda folder: rewrite(folder, "test", classes=("dog", "cat")),
        "the splits train and test differ in the names of their classes",
    ),
    "damaged": (damaged, "train-00000-of-00002.parquet: cannot be read (Parquet magic bytes not found in footer. "),
    "broken": (
        broken_image,
        "test-00000-of-00001.parquet row 2: cannot be read as an image (none of BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP)",
    ),
    "missing": (lambda folder: f"parquet:{folder}/*.parquet", "no such file"),
    "shard": (
        lambda folder: f"parquet:{folder.parent}/other/train-0000{{0..2}}-of-00002.parquet",
        "train-00002-of-00002.parquet: no such file",
    ),
    "no range": (lambda folder: f"parquet:{folder}/{{3..0}}", "{3..0}: from the smaller to the larger, at most 1,000"),
    "many": (lambda folder: f"parquet:{folder}/{{0..999999999}}", "{0..999999999}: from the smaller to the larger"),
    "split": (
        lambda folder: f"parquet:{folder.parent}/other#test=dev",
        "#test=dev: no such split; there is test, train",
    ),
    "unknown": (lambda folder: f"parquet:{folder.parent}/other#split=dev", "#split=dev: one of image=NAME, label=NAME"),
    "no image": (lambda folder: f"parquet:{folder.parent}/other#image=label", "#image=label: holds int64, not encoded"),
    "label": (lambda folder: f"parquet:{folder.parent}/other#label=image", "neither whole numbers nor text"),
    "folder": (lambda folder: f"hf:{folder}", "has no dataset_dict.json and no state.json"),
    "nowhere": (lambda folder: f"hf:{folder}/x", "no such folder"),
}


@pytest.mark.parametrize(("arrange", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_said_in_one_line(arrange: Callable[[Path], str], message: str, folder: Path) -> None:
    as_parquet(folder, folder.parent / "other")
    name = arrange(folder)
    with pytest.raises(ValueError) as refused:
        describe(name)
    assert str(refused.value).startswith(f"data={name}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


PNG = b"\x89PNG"
BAD_SAMPLES = {
    "no label": ([("a.png", PNG)], "t-0.tar: a: no label column among png: choose one by #label=NAME"),
    "no image": ([("a.cls", b"0"), ("a.npy", b"")], "t-0.tar: a: no image column among cls, npy"),
    "two images": ([("x/a.left.png", PNG), ("x/a.right.jpg", PNG)], "x/a: several image columns, left.png, right.jpg"),
    "json": ([("a.png", PNG), ("a.json", b"[1]")], "t-0.tar: a: .json is no object"),
    "no json": ([("a.png", PNG), ("a.json", b"{")], "t-0.tar: a: Expecting property name"),
    "keys": ([("a.png", PNG), ("a.json", b'{"x": 3, "y": true}')], "a: no label column among x: choose one by #label="),
    "deep json": ([("a.png", PNG), ("a.json", b"[" * 10**5)], "t-0.tar: a: maximum recursion"),
    "huge": ([("a.png", PNG), ("a.json", b'{"label": 9999999999}')], "has the label 9999999999 of 1048576 classes"),
    "huger": ([("a.png", PNG), ("a.json", b'{"label": 99999999999999999999}')], "too large"),
}


@pytest.mark.parametrize(("members", "message"), BAD_SAMPLES.values(), ids=BAD_SAMPLES)
def test_a_sample_that_cannot_be_read_is_named(members: list[tuple[str, bytes]], message: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "t-0.tar", members)
    with pytest.raises(ValueError) as refused:
        list_stored(f"wds:{tmp_path}")
    assert message in str(refused.value)


def test_a_damaged_header_is_not_the_end_of_a_tar(folder: Path, tmp_path: Path) -> None:
    """Python's tarfile takes it for the end, so the images after it would be missing."""
    name = as_samples(folder, tmp_path / "other")
    tar = tmp_path / "other" / "train-000.tar"
    flip_byte(tar, tar.read_bytes().rindex(b"000007.png"))
    with pytest.raises(ValueError, match=r"train-000.tar: cannot be read as a tar \(damaged header at byte "):
        list_stored(name)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("unpickled",)


def test_nothing_in_a_tar_is_unpickled(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members with pickles are left alone, as is what lies beside image and label."""
    monkeypatch.chdir(tmp_path)
    members = []
    for number, (_, content, label) in enumerate(other_formats.images(folder, "train")):
        members += [(f"./{number}.PNG", content), (f"./{number}.cls", b"%d\n" % label)]
        members += [(f"./{number}.{kind}", pickle.dumps(Bomb())) for kind in ("pyd", "pickle", "pth", "extra.pyd")]
    write_tar(tmp_path / "train.tar", members)
    listing = list_stored(f"wds:{tmp_path}/train.tar")
    assert listing.classes == ("0", "1")
    assert {image.read() for image in listing.files} == {member[1] for member in members[::6]}
    with pytest.raises(ValueError):
        list_stored(f"wds:{tmp_path}/train.tar#label=pyd")
    assert not (tmp_path / "unpickled").exists()


def test_damaged_arrow_files_end_in_one_line(folder: Path, tmp_path: Path) -> None:
    """A flipped byte gives an error or other images, never a crash."""
    as_saved(folder, tmp_path / "other")
    file = tmp_path / "other" / "train" / "data-00000-of-00002.arrow"
    errors = []
    for place in range(0, file.stat().st_size, 211):
        flip_byte(file, place)
        try:
            for image in list_stored(f"hf:{tmp_path / 'other'}").files:
                image.read()
        except ValueError as error:
            errors.append(str(error))
        flip_byte(file, place)
    assert errors
    assert not any("\n" in error for error in errors)


def test_names_in_state_json_stay_in_their_folder(folder: Path, tmp_path: Path) -> None:
    name = as_saved(folder, tmp_path / "other")
    state = {"_data_files": [{"filename": "../test/data-00000-of-00002.arrow"}]}
    (tmp_path / "other" / "train" / "state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match="is not the name of a file"):
        list_stored(name)


def test_half_copied_saved_data_is_refused(folder: Path, tmp_path: Path) -> None:
    """A missing file or split is named, rather than trained without."""
    name = as_saved(folder, tmp_path / "other")
    (tmp_path / "other" / "train" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(ValueError, match=r"train/data-00001-of-00002.arrow: cannot be read \(No such file"):
        list_stored(name)
    shutil.rmtree(tmp_path / "other" / "test")
    with pytest.raises(ValueError, match=r"test/state.json: cannot be read \(No such file"):
        list_stored(name)


def test_the_command_packs_and_names_what_cannot_be(folder: Path, home: Path, tmp_path: Path, ablate: Ablate) -> None:
    as_parquet(folder, tmp_path / "other")
    status, output, _ = ablate("data", "pack", "pets", f"parquet:{tmp_path}/other/*", "--size", "12")
    assert (status, Path(output.strip())) == (0, home / "pets")
    assert np.array_equal(stored_images(home / "pets"), stored_images(packed(folder, home)))
    assert manifest(home / "pets", "pets").classes == ["cat", "dog"]
    broken = broken_image(folder)
    error = refusal(ablate, "data", "pack", "broken", broken)
    assert "test-00000-of-00001.parquet row 2: cannot be read as an image" in error
    for kind, instead in (("hfds/user/pets", "hf:FOLDER"), ("wds/pets", "wds:GLOB")):
        assert instead in refusal(ablate, "data", "pack", "other", f"timm:{kind}")


def test_paths_are_made_absolute_and_shown_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = data_folders.DataFolders()
    assert data_folders.IN_FILES == lookup.IN_FILES
    for name, short in {
        "hf:pets#label=fine_label": "pets",
        "parquet:pets/data/*.parquet": "data",
        "wds:pets/{train,test}-*.tar": "pets",
        "imagefolder:pets": "pets",
    }.items():
        kind, _, path = name.partition(":")
        absolute = f"{kind}:{tmp_path}/{path}"
        assert folders.resolve({"data": name}) == {"data": absolute}
        assert display_name(absolute) == short
