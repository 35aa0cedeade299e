"""Images with a class for each pixel: a folder of images and masks, or shapes that are drawn from a key.

A folder has train/images, train/masks, val/images and val/masks. A mask is an image of class indices with the size and
the name of its image, apart from the ending. Pixels with index 255 count nowhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from commonfloor.files import read_bytes
from commonfloor.options import ConfigError
from vitcore.data.dataset import Bytes
from vitcore.data.decode import LARGEST, SUFFIXES, middle_window, open_image, upright
from vitcore.data.homes import data_homes
from vitcore.data.lookup import searched_folders
from vitcore.data.shuffle import generator

IGNORED = 255
SHAPES = "shapes"
KINDS = ("background", "disc", "square", "triangle")
CANVAS = 64  # pixels a side of the masks of shapes, unless images are larger
COUNTS = {"train": 200, "val": 50}  # images of shapes


@dataclass(frozen=True)
class Masked:
    """The images of one part of a dataset. Functions of an index give an image (C, S, S) and its mask (H, H).

    names: those of the masks, for messages. files: those of images and masks, none if they are drawn.
    """

    names: Sequence[str]
    image: Callable[[int], Bytes]
    mask: Callable[[int], Bytes]
    files: Sequence[Path] = ()


def find(name: str, data_dir: Path | None, size: int, channels: int) -> tuple[Masked, Masked]:
    """Return the training and validation images of a dataset; raise ConfigError if there is none, or it is wrong."""
    if name == SHAPES:
        return drawn("train", size, channels), drawn("val", size, channels)
    for root in data_homes(name, data_dir):
        if root.is_dir():
            return in_folder(root / "train", size, channels), in_folder(root / "val", size, channels)
    where = searched_folders(name, data_dir)
    raise ConfigError(f"eval dense@{name}: {SHAPES}, or a folder beside the packs ({where})")


def in_folder(part: Path, size: int, channels: int) -> Masked:
    """Return the images in a folder; raise ConfigError if an image has no mask or a mask no image."""
    images = files_by_name(part / "images")
    masks = files_by_name(part / "masks")
    for name in sorted(images.keys() ^ masks.keys()):
        lacking = part / ("masks" if name in images else "images")
        raise ConfigError(f"{images.get(name) or masks[name]}: {lacking} has no file {name}.*")
    pairs = [(images[name], masks[name]) for name in sorted(images)]
    return Masked(
        [str(mask) for _, mask in pairs],
        lambda index: read_image(pairs[index][0], size, channels),
        lambda index: read_mask(*pairs[index]),
        [file for pair in pairs for file in pair],
    )


def sha256_of(files: Sequence[Path]) -> str:
    """Return what identifies files by their names and contents."""
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode() + b"\0" + hashlib.sha256(read_bytes(file, LARGEST)).digest())
    return total.hexdigest()


def files_by_name(folder: Path) -> dict[str, Path]:
    """Return the image files in a folder by name without ending; raise ConfigError if there are none."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder: dense@DATA needs DATA/train and DATA/val with images/ and masks/")
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() not in SUFFIXES or file.name.startswith("."):
            continue
        if file.stem in files:
            raise ConfigError(f"{file}: {files[file.stem].name} has the same name")
        files[file.stem] = file
    if not files:
        raise ConfigError(f"{folder}: has no images")
    return files


def read_image(file: Path, size: int, channels: int) -> Bytes:
    """Return an image's middle square (C, S, S); raise ConfigError if it cannot be read."""
    try:
        with open_image(file) as opened:
            pixels = middle_window(opened, (size, size), channels)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def read_mask(image: Path, mask: Path) -> Bytes:
    """Return the middle square of a mask; raise ConfigError if it has other values or another size than its image."""
    try:
        with open_image(image) as opened:
            size = upright(opened).size
        with open_image(mask) as opened:
            mode = opened.mode
            indices = np.array(opened)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{mask}: {error}") from None
    if mode not in ("L", "P"):
        raise ConfigError(f"{mask}: is an image of mode {mode}: save class indices as 8-bit gray values or a palette")
    height, width = indices.shape
    if size != (width, height):
        raise ConfigError(f"{mask}: {width} x {height} pixels, and its image has {size[0]} x {size[1]}")
    side = min(height, width)
    top = (height - side) // 2
    left = (width - side) // 2
    return indices[top : top + side, left : left + side]


def drawn(part: str, size: int, channels: int) -> Masked:
    side = max(CANVAS, size)

    def image(index: int) -> Bytes:
        pixels, _ = draw(part, index, side)
        resized = F.interpolate(torch.from_numpy(pixels)[None, None], (size, size), mode="bilinear", antialias=True)
        return resized[0].expand(channels, size, size).round().byte().numpy()

    names = [f"{SHAPES} {index}" for index in range(COUNTS[part])]
    return Masked(names, image, lambda index: draw(part, index, side)[1])


def draw(part: str, index: int, side: int) -> tuple[np.ndarray, Bytes]:
    """Return a gray image (side, side) of float32 from 0 to 255 with up to three shapes, and its mask."""
    rng = generator(SHAPES, part, index)
    rows, columns = (np.mgrid[:side, :side] + 0.5) / side
    pixels = 60 + 30 * rng.random_sample() + 12 * rng.standard_normal((side, side))
    mask = np.zeros((side, side), np.uint8)
    for _ in range(1 + rng.randint(3)):
        kind = 1 + rng.randint(len(KINDS) - 1)
        radius = 0.2 + 0.15 * rng.random_sample()
        y, x = 0.2 + 0.6 * rng.random_sample(2)
        down = (rows - y) / radius
        right = (columns - x) / radius
        inside = {
            1: down**2 + right**2 < 1,
            2: np.maximum(abs(down), abs(right)) < 0.9,
            3: (abs(right) < (1 + down) / 2) & (down < 1),
        }[kind]
        pixels[inside] += 50 + 30 * kind
        mask[inside] = kind
    return pixels.clip(0, 255).astype(np.float32), mask
