"""What `ablate init` says of images: copies, turned, translucent, gray and oblong ones, and those that are left out."""

import io
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import Ablate
from photographs import packed, photographs
from PIL import Image

from ablations.trainables.vit.image_folders import survey
from vitcore.data.imagefolder import list_images

COUNTS = {"train/cat": 12, "train/dog": 12, "test/cat": 10, "test/dog": 10}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of images about which there is nothing to say, 20 x 20 pixels."""
    return photographs(tmp_path / "pets", COUNTS, (20, 20))


def notes(root: Path) -> list[str]:
    return [line for line in survey.survey(root).lines() if not re.match("(images|classes|size|color) ", line)]


def test_plain_images_have_the_majority_rate_alone(root: Path) -> None:
    assert notes(root) == ["chance   always answering one class is right on 50.0% of the test images"]


def copy(source: str, target: str) -> Callable[[Path], None]:
    def run(root: Path) -> None:
        shutil.copy(root / source, root / target)

    return run


def save(target: str, image: Image.Image, **options: object) -> Callable[[Path], None]:
    return lambda root: image.save(root / target, **options)


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def unlike(target: str, form: str) -> Callable[[Path], None]:
    """Write an image in a format that its name does not tell."""

    def run(root: Path) -> None:
        content = io.BytesIO()
        Image.new("RGB", (20, 20), (1, 2, 3)).save(content, form)
        (root / target).write_bytes(content.getvalue())

    return run


def folder(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).mkdir()


def written(target: str, content: bytes) -> Callable[[Path], None]:
    return lambda root: (root / target).write_bytes(content) and None


SQUARE = Image.new("RGB", (20, 20), (3, 2, 1))
CASES = {
    "leak": (
        copy("test/cat/0003.png", "train/cat/copy.png"),
        "leak     1 test image also in the training set, such as test/cat/0003.png = train/cat/copy.png: "
        "accuracies are too high",
    ),
    "twice": (
        copy("train/cat/0003.png", "train/cat/again.png"),
        "twice    1 image stored again in the same set, such as train/cat/again.png = train/cat/0003.png",
    ),
    "two classes": (
        copy("test/cat/0003.png", "test/dog/copy.png"),
        "labels   1 image in more than one class, such as test/dog/copy.png = test/cat/0003.png",
    ),
    "turned": (
        save("train/dog/0005.png", SQUARE, exif=turned()),
        "turned   1 image with an EXIF orientation, such as train/dog/0005.png: turned upright",
    ),
    "alpha": (
        save("test/dog/0005.png", Image.new("RGBA", (20, 20))),
        "alpha    1 image with an alpha channel, such as test/dog/0005.png: transparent pixels become white",
    ),
    "mixed": (
        save("train/cat/0000.png", Image.new("L", (20, 20))),
        "mixed    1 image of 44 in gray, such as train/cat/0000.png: gray becomes RGB",
    ),
    "oblong": (
        save("train/dog/0005.png", Image.new("RGB", (50, 20))),
        "shape    the middle square leaves out 0% of the median image, and more than half of 1 image, such as "
        "train/dog/0005.png (50 x 20 pixels)",
    ),
    "few tests": (
        lambda root: (root / "test" / "dog" / "0000.png").unlink(),
        "tests    1 class has fewer than 10 test images, such as 'dog' with 9: accuracy on them is coarse",
    ),
    "jfif": (
        unlike("train/dog/photo.jfif", "JPEG"),
        "skipped  1 image left out because of the ending, such as train/dog/photo.jfif (JPEG): rename or convert them",
    ),
    "no suffix": (unlike("test/cat/photo", "WEBP"), "test/cat/photo (WEBP): rename or convert them"),
    "avif": (
        unlike("test/cat/photo.avif", "AVIF"),
        "unread   1 image left out because of the format, such as test/cat/photo.avif (AVIF): convert them",
    ),
    "heic": (written("train/cat/IMG_1.HEIC", b"\0\0\0\x18ftypheic" + bytes(12)), "train/cat/IMG_1.HEIC (HEIC)"),
    "stray": (
        unlike("train/photo.png", "PNG"),
        "stray    1 image left out, in no class folder, such as train/photo.png",
    ),
    "validation": (folder("val"), "ignored  val/: only train/ and test/ are read"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_an_owner_should_know_is_said(case: str, root: Path) -> None:
    change, said = CASES[case]
    change(root)
    assert [line for line in notes(root) if said in line], notes(root)


@pytest.mark.parametrize(
    "change",
    [
        written("train/cat/notes.txt", b"P5 of my notes"),
        written("train/cat/0003.json", b"{}"),
        written("train/Thumbs.db", b"\xd0\xcf\x11\xe0"),
        lambda root: shutil.copytree(root / "test" / "cat", root / "train" / "cat" / ".ipynb_checkpoints"),
        copy("test/cat/0003.png", "train/cat/._0003.png"),
    ],
)
def test_what_is_no_image_is_not_spoken_of(change: Callable[[Path], object], root: Path) -> None:
    before = notes(root)
    change(root)
    assert notes(root) == before


def test_unequal_classes_are_named(tmp_path: Path) -> None:
    """The majority rate is that of the test images of the largest training class."""
    root = photographs(tmp_path / "pets", {"train/cat": 12, "train/dog": 4, "test/cat": 30, "test/dog": 10}, (8, 8))
    chance, balance = notes(root)
    assert chance == "chance   always answering 'cat', the largest class, is right on 75.0% of the test images"
    assert balance.startswith("balance  'cat' has 3 times as many training images as 'dog': ")


def test_a_class_that_is_named_test_is_spoken_of(tmp_path: Path) -> None:
    root = photographs(tmp_path / "pets", {"cat": 50, "test": 50}, (8, 8))
    assert "names    'test' is taken for a class, as there is no train/" in notes(root)


def test_copies_across_the_split_of_flat_folders_are_found(tmp_path: Path) -> None:
    root = photographs(tmp_path / "pets", {"cat": 50, "dog": 50}, (8, 8))
    listing = list_images(root)
    test, train = (listing.files[part[0]].name for part in (listing.test, listing.train))
    shutil.copy(root / test, root / train)
    assert f"such as {test} = {train}" in next(line for line in notes(root) if line.startswith("leak"))


def test_copies_are_found_in_packs(root: Path, tmp_path: Path) -> None:
    """Also of images of another file, as long as the stored pixels are equal."""
    with Image.open(root / "test" / "dog" / "0002.png") as image:
        image.save(root / "train" / "dog" / "0011.bmp")
    lines = survey.survey(packed(root, tmp_path, "pack")).lines()
    leak = "leak     1 test image also in the training set, such as image 37 = image 23: accuracies are too high"
    assert [line for line in lines if line.startswith(("leak", "chance"))] == [
        "chance   always answering 'dog', the largest class, is right on 50.0% of the test images",
        leak,
    ]


def test_equal_checksums_of_unequal_images_are_no_copies(root: Path, tmp_path: Path) -> None:
    pack = packed(root, tmp_path, "pack")
    known = survey.manifest(pack, "pack")
    records = survey.read_index(pack, known)
    records["crc"] = 7
    assert survey.equal_images(records, lambda: unchecked(survey.Pack(pack, known))) == []


def unchecked(pack: survey.Pack) -> survey.Pack:
    pack.checked[:] = True
    return pack


@pytest.mark.parametrize("most", [10, 100])
def test_large_folders_are_not_decoded(most: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond some number of images, headers and ends tell what is broken, and pixels are left to `ablate run`."""
    monkeypatch.setattr(survey, "DECODED", most)
    flipped, cut = root / "train" / "cat" / "0001.png", root / "train" / "cat" / "0002.png"
    content = flipped.read_bytes()
    place = content.index(b"IDAT") + 8
    flipped.write_bytes(content[:place] + bytes(40) + content[place + 40 :])
    cut.write_bytes(cut.read_bytes()[:90])
    broken = [line.partition(": ")[0] for line in survey.survey(root).broken]
    assert broken == ["train/cat/0001.png", "train/cat/0002.png"][most < 44 :]


def test_a_file_that_is_no_regular_file_is_named_once(root: Path) -> None:
    os.mkfifo(root / "train" / "cat" / "pipe.png")
    why = "cannot be read as an image (pipe.png is not a regular file)"
    assert survey.survey(root).broken == [f"train/cat/pipe.png: {why}"]


def test_names_of_another_encoding_are_printed(root: Path, ablate: Ablate) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    shutil.copy(root / "train" / "cat" / "0001.png", root / "train" / "cat" / name)
    status, output, errors = ablate("init", str(root))
    assert (status, errors) == (0, "")
    assert "train/cat/caf\\udce9.png = train/cat/0001.png" in output
