"""Decoding: images are upright, on white and gray only if all are; ids change only where that changes pixels."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from photographs import packed, photographs, stored_images
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from commonfloor.options import ConfigError
from vitcore.config import Config
from vitcore.data.decode import DECODING, ORIENTATION, facts, middle_window, open_content, upright
from vitcore.data.lookup import describe, describe_files
from vitcore.data.pack import manifest
from vitcore.data.pack_sources import find_source
from vitcore.data.splits import load
from vitcore.identity import trial_id

PIXELS = np.random.default_rng(0).integers(0, 256, (10, 6, 3), np.uint8)
LOSSLESS = {"WEBP": {"lossless": True}}


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **LOSSLESS.get(form, {}), **options)
    return stream.getvalue()


def turned(orientation: int, form: str, image: Image.Image | None = None) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return encoded(image or Image.fromarray(PIXELS), form, exif=exif)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_by_pillow(orientation: int, form: str) -> None:
    content = turned(orientation, form)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    assert np.array_equal(upright(open_content(content)), expected)
    assert np.array_equal(upright(open_content(content).convert("RGB")), expected), (
        "as timm and torchvision give images"
    )
    once = upright(open_content(content)).convert("RGB")
    assert np.array_equal(upright(once), expected), "a second call turns nothing"
    assert facts(content).orientation == (1 if form == "TIFF" else orientation), "Pillow turns TIFFs"


@pytest.mark.parametrize("orientation", range(2, 9))
def test_an_orientation_in_xmp_behind_the_pixels_counts(orientation: int) -> None:
    info = PngInfo()
    info.add_itxt("XML:com.adobe.xmp", f'<x tiff:Orientation="{orientation}"/>', zip=True)
    content = encoded(Image.fromarray(PIXELS), "PNG", pnginfo=info)
    pixels, end = content.partition(b"IDAT")[0][:-4], content.index(b"IDAT") - 4
    moved = content[:33] + content[end:-12] + pixels[33:] + content[-12:]  # the text stands before IEND
    assert facts(moved).orientation == orientation
    assert np.array_equal(upright(open_content(moved)), ImageOps.exif_transpose(Image.open(io.BytesIO(moved))))


def test_damaged_exif_data_turn_nothing() -> None:
    exif = b"Exif\0\0MM\0*" + bytes([0, 0, 0, 8, 255, 255]) + bytes(4)
    content = encoded(Image.fromarray(PIXELS), "WEBP", exif=exif)
    with pytest.warns(UserWarning, match="Corrupt EXIF"):
        assert np.array_equal(upright(open_content(content)), PIXELS)


def on_white(values: np.ndarray) -> np.ndarray:
    """Composite pixels (H, W, 4) from the definition."""
    alpha = values[..., 3:] / 255
    return values[..., :3] * alpha + 255 * (1 - alpha)


@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF"])
def test_translucent_pixels_are_laid_on_white(form: str) -> None:
    values = np.random.default_rng(1).integers(0, 256, (8, 8, 4), np.uint8)
    values[0, 0, 3], values[0, 1, 3] = 0, 255
    found = middle_window(
        open_content(encoded(Image.fromarray(values), form, **{"exact": True} if form == "WEBP" else {})), (8, 8), 3
    )
    assert np.abs(found - on_white(values)).max() <= 1
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[0, 1].tolist() == values[0, 1, :3].tolist()


@pytest.mark.parametrize(
    ("mode", "clear"), [("L", 7), ("RGB", (7, 7, 7)), ("P", 7), ("P", bytes([255] * 7 + [0])), ("I;16", 7)]
)
def test_a_transparent_color_is_white(mode: str, clear: Any) -> None:
    """Palettes, gray images, images in color and those of 16 bits may name a color that is transparent."""
    values = np.full((8, 8), 60000 if mode == "I;16" else 60, np.uint16 if mode == "I;16" else np.uint8)
    values[0, 0] = 7
    image = Image.fromarray(values)
    if mode == "P":
        image.putpalette([value for value in range(256) for _ in "RGB"])
    elif mode == "RGB":
        image = image.convert("RGB")
    found = middle_window(open_content(encoded(image, "PNG", transparency=clear)), (8, 8), 1)
    assert found[0, 0] == 255
    assert set(found.ravel()[1:].tolist()) == {233 if mode == "I;16" else 60}


def one_in(folder: Path, content: bytes, place: str = "train/dog/0003.png") -> Path:
    (folder / place).write_bytes(content)
    return folder


def rgba(alpha: int) -> Image.Image:
    image = Image.fromarray(PIXELS)
    image.putalpha(255)
    image.putpixel((3, 4), (9, 9, 9, alpha))
    return image


def test_only_a_folder_whose_pixels_change_gets_another_id(folder: Path, tmp_path: Path) -> None:
    """The fingerprint has the version of the decoding where an image is turned or translucent, and nowhere else."""
    contents = {
        "plain": encoded(Image.fromarray(PIXELS), "PNG"),
        "upright": turned(1, "JPEG"),
        "opaque": encoded(rgba(255), "PNG"),
        "turned TIFF": turned(6, "TIFF"),  # which were always turned
        "turned": turned(6, "JPEG"),
        "turned PNG": turned(3, "PNG"),
        "translucent": encoded(rgba(254), "PNG"),
        "palette": encoded(Image.fromarray(PIXELS).quantize(), "PNG", transparency=0),
    }
    prints = {}
    for name, content in contents.items():
        root = one_in(shutil.copytree(folder, tmp_path / name), content)
        about = describe(f"imagefolder:{root}")
        prints[name] = about.fingerprint.pop("decoding", 1)
        assert set(about.fingerprint) == {"images", "sha256"}
    assert prints == {name: 2 if number > 3 else 1 for number, name in enumerate(contents)}
    assert trial_id(Config(data=f"imagefolder:{root}", patch=2))


def test_folder_and_pack_hold_upright_images(folder: Path, home: Path) -> None:
    square = Image.fromarray(PIXELS).resize((12, 12))
    one_in(folder, turned(6, "JPEG", square), "train/cat/0000.png")
    content = (folder / "train/cat/0000.png").read_bytes()
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))))
    data = load(Config(data=f"imagefolder:{folder}", patch=2, image_size=12))
    images = {
        int(place): image
        for part in (data.train, data.val)
        for place, image in zip(part.index, part.pixels, strict=True)
    }
    assert np.array_equal(images[0].permute(1, 2, 0), expected)
    assert np.array_equal(stored_images(packed(folder, home))[0], expected)


@pytest.mark.parametrize("colored", ["train/cat/0000.png", "train/dog/0005.png", "test/dog/0003.png", None])
def test_a_set_is_gray_if_all_its_images_are(colored: str | None, folder: Path, home: Path) -> None:
    """Neither the first image nor a sample decides, in a folder and in a pack; gray with alpha is gray."""
    for file in folder.glob("*/*/*.png"):
        if str(file.relative_to(folder)) != colored:
            with Image.open(file) as picture:
                picture.convert("LA" if "dog" in str(file) else "L").save(file)
    channels = 1 if colored is None else 3
    assert describe(f"imagefolder:{folder}").channels == channels
    assert manifest(packed(folder, home), "photos").channels == channels


def test_one_image_in_color_among_many_makes_a_pack_colored(home: Path, tmp_path: Path) -> None:
    root = photographs(tmp_path / "many", {"a": 1, "b": 1}, (4, 4))
    for number in range(200):
        Image.new("L", (4, 4), number).save(root / "ab"[number % 2] / f"{number:04}.png")
    Image.new("RGB", (4, 4)).save(root / "a" / "0077.png")
    assert manifest(packed(root, home, size=4), "photos").channels == 3


@pytest.mark.parametrize("place", ["train/cat/0000.png", "test/dog/0003.png"])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_file_that_is_cut_short_is_found_when_data_are_described(form: str, place: str, folder: Path) -> None:
    """A plan does not count a broken image; JPEG and PNG are not decoded for that."""
    content = encoded(Image.fromarray(np.tile(PIXELS, (20, 20, 1))), form)
    one_in(folder, content, place)
    assert describe_files(f"imagefolder:{folder}").train_size == 17
    describe_files.cache_clear()
    one_in(folder, content[: len(content) // 2], place)
    one_in(folder, b"", "train/cat/0003.png")
    with pytest.raises(ConfigError, match=r"train/cat/000.\.png: cannot be read .*\(1 more file is broken\)"):
        describe_files(f"imagefolder:{folder}")


def test_a_file_with_bytes_behind_its_image_is_whole(folder: Path) -> None:
    """Cameras write films behind a JPEG; then decoding decides."""
    one_in(folder, encoded(Image.fromarray(PIXELS), "JPEG") + b"ftypmp4" * 9)
    assert describe(f"imagefolder:{folder}").train_size == 17


def test_a_pack_begun_by_an_earlier_version_is_not_finished_by_this_one(folder: Path, home: Path) -> None:
    """Half its images would be turned and half would not."""
    begun = {"version": 2, "name": "photos", "size": 12, "crop": 10, "format": "bytes"}
    (home / "photos").mkdir()
    note = begun | {"source": find_source(str(folder), None).digest}
    (home / "photos" / "begun.json").write_text(json.dumps(note))
    with pytest.raises(ValueError, match="photos: a pack by an earlier version was begun here"):
        packed(folder, home)
    (home / "photos" / "begun.json").write_text(json.dumps(note | {"decoding": DECODING}))
    assert manifest(packed(folder, home), "photos").images == 24
