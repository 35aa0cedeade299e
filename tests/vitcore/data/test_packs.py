"""Packs: written once whatever happens, the same images as the source's, and refused by name where damaged."""

import json
import multiprocessing
import os
import shutil
import signal
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest import mock

import numpy as np
import pytest
from in_process import called
from photographs import photographs
from PIL import Image
from serial import called_serially
from torchvision.datasets import ImageFolder
from torchvision.transforms.functional import center_crop, resize

from ablations.cli import data as data_commands
from ablations.cli.inputs.arguments import named_data
from ablations.cli.inputs.directories import data_folder
from vitcore import Config
from vitcore.data.lookup import STATED, describe
from vitcore.data.pack import Pack, find, manifest, opened, verify
from vitcore.data.pack_sources import find_source
from vitcore.data.pack_writer import Options, pack
from vitcore.data.splits import load
from vitcore.identity import identity, trial_id
from vitcore.options import ConfigError

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
    known, seen = manifest(root, "photos"), list[int]()
    assert str(path) in verify(root, known, seen.append)[path.name]
    assert sum(seen) == known.bytes  # what is told of the progress, whatever of it is missing


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
    assert verify(root, manifest(root, "photos")) == {path.name: f"{path}: damaged: its sha256 is not the manifest's"}


@pytest.mark.parametrize("format", ["bytes", "jpeg"])
def test_what_is_damaged_is_written_again_from_its_source(
    format: str, folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command: the damaged files alone, with the bytes that they had; ids stay, for the manifest does."""
    words = ("data", "pack", "photos", str(folder), "--size", "12", "--format", format)
    assert called(monkeypatch, *words)[0] == 0
    root = home / "photos"
    whole = contents(root)
    kept = (root / f"shard-00007.{format}").stat().st_ino
    (root / f"shard-00002.{format}").unlink()
    (root / f"shard-00004.{format}").write_bytes(b"other")
    other_index(root)
    done, totals, shown = Counter[str](), dict[str, int](), data_commands.progress

    @contextmanager
    def watched(what: str, total: int) -> Iterator[Callable[[int], None]]:
        totals[what] = total
        with shown(what, total) as advance:

            def counted(images: int) -> None:
                done[what] += images
                advance(images)

            yield counted

    monkeypatch.setattr(data_commands, "progress", watched)
    status, output, errors = called(monkeypatch, *words[:4])
    assert done["images"] == totals["images"]
    assert (totals["images"] < 24) == (format == "bytes")
    assert (status, errors.count(": damaged"), errors.count(": cannot be read")) == (0, 2, 1)
    assert f"written again: index.npy, shard-00002.{format}, shard-00004.{format}" in output
    assert contents(root) == whole
    assert ((root / f"shard-00007.{format}").stat().st_ino == kept) == (format == "bytes")  # JPEGs tell no sizes


def test_a_changed_source_repairs_nothing(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line and status 2: for another image, and for one more."""
    words = ("data", "pack", "photos", str(folder))
    assert called(monkeypatch, *words, "--size", "12")[0] == 0
    root = home / "photos"
    (root / "shard-00000.bytes").write_bytes(b"")
    damaged = contents(root)
    Image.new("RGB", (24, 16)).save(folder / "train" / "cat" / "0000.png")
    status, _, errors = called(monkeypatch, *words)
    assert (status, "shard-00000.bytes: cannot be made again: the images" in errors) == (2, True)
    shutil.copy(folder / "train" / "cat" / "0001.png", folder / "train" / "cat" / "more.png")
    status, _, errors = called(monkeypatch, *words)
    assert (status, "was packed from other images" in errors) == (2, True)
    assert contents(root) == damaged


@pytest.mark.parametrize("whole", [True, False], ids=["finished", "begun"])
@pytest.mark.parametrize("other", [("--size", "14", "12"), ("--crop", "448", "11"), ("--format", "jpeg", "bytes")])
def test_other_options_than_those_of_a_pack_are_refused(
    other: tuple[str, str, str], whole: bool, folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are named, and what to do; options that are not given are those of the pack that is there or was begun."""
    source, root = find_source(str(folder), home), home / "photos"

    def advance(images: int) -> None:
        if not whole:
            raise InterruptedError

    with suppress(InterruptedError):
        pack("photos", source, home, Options(size=12, crop=11), advance=advance)
    assert (root / "manifest.json").exists() == whole
    option, wanted, there = other
    words = ("data", "pack", "photos", str(folder))
    status, _, errors = called(monkeypatch, *words, option, wanted)
    what_to_do = "give the other one another NAME, or remove that folder first"
    assert (status, errors) == (
        2,
        f"ablate: {option} {wanted}: {root} is packed with {option} {there}: {what_to_do}\n",
    )
    assert called(monkeypatch, *words)[0] == 0
    known = manifest(root, "photos")
    assert (known.size, known.image_size, known.format) == (12, 11, "bytes")


def test_a_pack_without_its_manifest_is_made_again(folder: Path, home: Path) -> None:
    """Shards without the notes that a half-made pack has beside them are not trusted."""
    root = packed(folder, home)
    whole = contents(root)
    (root / "manifest.json").unlink()
    assert contents(packed(folder, home)) == whole


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
        with pytest.raises(ConfigError, match=r"photos/manifest\.json: damaged.*; remove it, and"):
            describe("photos")
    (root / "manifest.json").unlink()
    packed(folder, home)
    assert (root / "manifest.json").read_text() == kept


def test_a_misspelt_pack_is_told_its_name(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a config and to `verify`, of packs in a data directory and of names in [data]."""
    packed(folder, home)
    elsewhere = packed(folder, home.parent, "birds")
    monkeypatch.setenv("ABLATE_PACKS", json.dumps({"birds": str(elsewhere), "birdy": "/nowhere"}))
    for wrong, right in (("photo", "photos"), ("bird", "birds")):
        with pytest.raises(ConfigError, match=rf"data={wrong}: .*; did you mean '{right}'\?$"):
            Config(data=wrong)
        status, _, errors = called(monkeypatch, "data", "verify", wrong)
        assert (status, errors.endswith(f"; did you mean '{right}'?\n")) == (2, True)


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
    with pytest.raises(ConfigError, match=rf"data=imagenet: .*\({home}/imagenet: no such folder\)"):
        Config(data="imagenet")
    monkeypatch.delenv("ABLATE_DATA")
    with pytest.raises(
        ConfigError, match=r"none without --data-dir or ABLATE_DATA\); `ablate data pack imagenet SOURCE"
    ):
        Config(data="imagenet")


RECIPE = """
    description: Of a pack.
    config: {data: photos, width: 8, depth: 1, heads: 2, patch: 2, epochs: 3, batch: 4}
    pack: {train: 17, test: 7, classes: 2, image_size: 10}
    seeds: 2
    cost: {gpu: {how: cited, source: a paper, device: A GPU, seconds: 7}}
"""
STUDY = "{question: 'Which?', baseline: {pool: gap}, factors: {pool: [gap, cls]}}"


@mock.patch.dict(STATED)
def test_a_plan_needs_no_pack_where_the_recipe_states_it(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same trials, hours and disk as with the pack, and one line on what to do, which `run` ends with."""
    monkeypatch.chdir(home)
    Path("r.yaml").write_text(dedent(RECIPE))
    Path("s.yaml").write_text(STUDY)
    words = ("s.yaml", "--recipe", "r.yaml")
    status, stated, errors = called(monkeypatch, "plan", *words, "--json")
    assert (status, errors.count("\n")) == (0, 1)
    assert "data=photos: not packed here: `ablate data pack photos SOURCE --data-dir DIR` makes one" in errors
    with pytest.raises(ValueError, match="data=photos: not packed: `ablate data pack photos SOURCE"):
        load(Config(data="photos", patch=2))
    assert called(monkeypatch, "plan", *words, "--probe")[0] == 2
    STATED.clear()
    status, _, errors = called(monkeypatch, "run", *words)
    assert (status, "`ablate data pack photos SOURCE --data-dir DIR` makes one" in errors) == (2, True)
    packed(folder, home)
    known, errors = called(monkeypatch, "plan", *words, "--json")[1:]
    assert (json.loads(stated), errors) == (json.loads(known), "")


def test_the_command_packs_and_verifies(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ablate data pack` prints where, and again says that it is there; `verify` names what is damaged."""
    words = ("photos", str(folder), "--data-dir", str(home), "--size", "12", "--crop", "12")
    assert called(monkeypatch, "data", "pack", *words)[:2] == (0, f"{home / 'photos'}\n")
    assert describe("photos").image_size == 12
    status, output, _ = called(monkeypatch, "data", "pack", *words)
    assert (status, "is packed already, and nothing is damaged" in output) == (0, True)
    status, output, _ = called(monkeypatch, "data", "verify", "photos", "--data-dir", str(home))
    assert (status, "24 images" in output) == (0, True)
    path = cut_short(home / "photos")
    status, output, _ = called(monkeypatch, "data", "verify", "photos", "--data-dir", str(home))
    assert (status, str(path) in output, "`ablate data pack photos SOURCE` writes" in output) == (1, True, True)
    status, output, _ = called(monkeypatch, "data", "verify", "photos", "--data-dir", str(home), "--json")
    assert (status, [*json.loads(output)["damaged"]]) == (1, [path.name])
    status, _, errors = called(monkeypatch, "data", "pack", "p2", "nodir", "--data-dir", str(home))
    assert (status, errors.startswith("ablate: source nodir: "), "imagefolder" in errors) == (2, True, False)


@pytest.mark.parametrize("given", [True, False])
def test_where_data_lie_has_one_order(
    given: bool, folder: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--data-dir, [data] of ablate.toml, the profile, ablate.toml, ABLATE_DATA: each pack gone, the next counts.

    given: a place without its pack is still named, and passed over, by processes too; else it is not named.
    """
    places = [tmp_path / name for name in ("explicit", "named", "profile", "toml", "environment")]
    for size, place in enumerate(places, 12):
        packed(folder, place, "pets", size=size, crop=size)
    toml, data_dir = tmp_path / "ablate.toml", f'data_dir = "{places[3]}"\n'
    toml.write_text(f'{data_dir}[data]\npets = "{places[1] / "pets"}"\n')
    monkeypatch.chdir(tmp_path)
    for size, place in enumerate(places, 12):
        for name, value in (("ABLATE_DATA", str(places[4])), ("ABLATE_PACKS", ""), ("ABLATE_MORE_DATA", "")):
            monkeypatch.setenv(name, value)
        explicit = places[0] if given or size < 14 else None
        profile = str(places[2]) if given or size < 15 else None
        if size >= 14 and not given:
            toml.write_text(data_dir if size < 16 else "")
        for _ in range(2):  # a command may ask twice
            data_folder(explicit, profile)
        assert describe("pets").image_size == size, place
        assert named_data({"data": "pets"}, explicit) == {"data": "pets"}
        shutil.rmtree(place / "pets")
        (place / "pets").mkdir()
    named = (1, 0, 2, 3, 4) if given else (4,)
    with pytest.raises(ConfigError, match=", ".join(f"{places[at]}/pets: no manifest.json" for at in named)):
        describe("pets")


def test_a_directory_given_to_load_is_where_packs_are_read(folder: Path, home: Path, tmp_path: Path) -> None:
    """Before ABLATE_DATA, where the config was made; another pack there is refused."""
    packed(folder, home)
    config = Config(data="photos", patch=2)
    shutil.copytree(home, tmp_path / "copy")
    (home / "photos" / "shard-00000.bytes").unlink()
    assert len(load(config, tmp_path / "copy").test) == 7
    with pytest.raises(ValueError, match="cannot be read"):
        load(config)
    packed(folder, tmp_path / "other", size=14)
    with pytest.raises(ValueError, match="other/photos is another pack than the one that the config was made for"):
        load(config, tmp_path / "other")


def test_ablate_toml_names_packs_too(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name for a folder with a manifest stays a name; for one without it is a folder of images."""
    packed(folder, home, "pets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ABLATE_DATA")
    (tmp_path / "ablate.toml").write_text(f'[data]\npets = "{home / "pets"}"\nplain = "{folder}"\n')
    for name, meant in (("pets", "pets"), ("plain", f"imagefolder:{folder}")):
        words = ("train", f"data={name}", "patch=2", "steps=1", "width=6", "--runs", name)
        status, _, errors = called_serially(monkeypatch, *words)
        assert status == 0, errors
        (config,) = Path(name).glob("trials/*/config.json")
        assert json.loads(config.read_text())["config"]["data"] == meant


def test_a_pack_keeps_the_size_of_small_images(
    monkeypatch: pytest.MonkeyPatch, folder: Path, home: Path, tmp_path: Path
) -> None:
    """Unless told: then what is enlarged is said, with how many and from what."""
    status, _, errors = called(monkeypatch, "data", "pack", "own", str(folder))
    known = manifest(home / "own", "own")
    assert (status, errors.strip()) == (0, "")
    assert (known.size, known.image_size) == (16, 16)
    status, _, errors = called(monkeypatch, "data", "pack", "large", str(folder), "--size", "32")
    assert (status, manifest(home / "large", "large").size) == (0, 32)
    assert "24 of 24 images looked at are enlarged to --size 32, the smallest from 16 pixels" in errors
