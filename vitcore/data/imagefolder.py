"""Reading a folder of images as a dataset.

The images are PATH/train/<class>/* and PATH/test/<class>/*. If there is no test/, val/ serves as the test set. A folder
that holds the class folders directly is split 80/20 within each class, in the same way for every seed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

import numpy as np

from vitcore.data.dataset import About, Bytes, Raw, small_class
from vitcore.data.decode import SUFFIXES, is_gray, middle_square, open_image
from vitcore.data.files import open_regular
from vitcore.data.shuffle import Indices, stratified_split
from vitcore.options import ConfigError

TEST_SHARE = 0.2
File = TypeVar("File")


@dataclass(frozen=True)
class Listing(Generic[File]):
    """The image files of a dataset, with their labels (M,) and the indices of the training and the test images."""

    files: Sequence[File]
    labels: Indices
    classes: tuple[str, ...]
    train: Indices
    test: Indices


@cache
def describe_folder(root: Path) -> About:
    """Return the facts about a folder of images. The first image gives the channels and, by its shorter side, the size.

    Raises ConfigError if the folder or its first image is invalid. Raises OSError if another file cannot be read.
    """
    listing = list_folder(root)
    try:
        with open_image(listing.files[0]) as first:
            side, channels = min(first.size), 1 if is_gray(first) else 3
    except ValueError as error:
        refuse(listing.files[0], str(error))
    total = hashlib.sha256()
    for file in listing.files:
        total.update(file.relative_to(root).as_posix().encode() + b"\0")
        with open_regular(file) as content:
            total.update(hashlib.file_digest(content, "sha256").digest())
    return About(
        image_size=side,
        channels=channels,
        classes=len(listing.classes),
        train_size=len(listing.train),
        test_size=len(listing.test),
        fingerprint={"images": len(listing.files), "sha256": total.hexdigest()},
    )


def read_folder(root: Path, size: int, channels: int) -> Raw:
    """Read each image's middle square, resized to `size`; raise ConfigError if the folder or an image is invalid."""
    listing = list_folder(root)
    images = np.empty((len(listing.files), channels, size, size), np.uint8)
    for place, file in enumerate(listing.files):
        images[place] = read_image(file, size, channels)
    return Raw(images, listing.labels, listing.train, listing.test)


def check_images(root: Path, channels: int) -> None:
    """Check that all images can be decoded; raise a ConfigError that names one broken image and counts the others."""

    def failure(file: Path) -> str:
        try:
            read_image(file, 1, channels)
        except ConfigError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor() as pool:
        broken = list(filter(None, pool.map(failure, list_folder(root).files)))
    if broken:
        more = {1: "", 2: " (1 more file is broken)"}.get(len(broken), f" ({len(broken) - 1} more files are broken)")
        raise ConfigError(f"{broken[0]}{more}")


def list_folder(root: Path) -> Listing[Path]:
    """Return the images in a folder with their labels and split; raise ConfigError if its layout is invalid."""
    if not root.is_dir():
        refuse(root, "no such folder")
    listing = list_parts(root) if (root / "train").is_dir() else list_flat(root)
    if why := small_class(listing.labels, listing.train, listing.classes):
        refuse(root, why)
    return listing


def list_parts(root: Path) -> Listing[Path]:
    """Return the images in a folder that has train/ and test/, or train/ and val/ if there is no test/."""
    test = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
    if test is None:
        refuse(root, "has train/ but neither test/ nor val/ beside it")
    classes = class_names(root / "train")
    if unknown := set(class_names(test)) - set(classes):
        refuse(test, f"class '{min(unknown)}' is not in train/")
    train_files, train_labels = list_classes(root / "train", classes)
    test_files, test_labels = list_classes(test, classes, empty_allowed=True)
    labels = np.array(train_labels + test_labels, np.int64)
    places = np.split(np.arange(len(labels)), [len(train_labels)])
    return Listing(train_files + test_files, labels, classes, *places)


def list_flat(root: Path) -> Listing[Path]:
    """Return the images in a folder that holds class folders directly, split by `fixed_split`."""
    classes = class_names(root)
    files, known = list_classes(root, classes)
    labels = np.array(known, np.int64)
    return Listing(files, labels, classes, *fixed_split(labels))


def fixed_split(labels: Indices) -> tuple[Indices, Indices]:
    """Return the indices of training and test images. A fixed random fifth of each class is for testing."""
    test, train = stratified_split(labels, np.arange(len(labels)), TEST_SHARE, "imagefolder")
    return np.sort(train), np.sort(test)


def class_names(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of the class folders; raise ConfigError if there are fewer than two."""
    names = sorted(one.name for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))
    if len(names) < 2:
        there = f"only the class folder '{names[0]}'" if names else "no class folders"
        refuse(folder, f"has {there}; at least 2 are needed, as in PATH/<class>/*.jpg or PATH/train/<class>/*.jpg")
    return tuple(names)


def list_classes(folder: Path, classes: Sequence[str], empty_allowed: bool = False) -> tuple[list[Path], list[int]]:
    """Return the images in each class folder and its subfolders, sorted within each class, and the images' labels.

    Raises ConfigError if a folder cannot be read, or has no image and `empty_allowed` is False.
    """

    def unreadable(error: OSError) -> NoReturn:
        refuse(Path(str(error.filename)), f"cannot be read ({error.strerror})")

    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        walk = os.walk(folder / name, onerror=unreadable)
        below = (Path(path, file) for path, _, names in walk for file in names)
        found = sorted(file for file in below if file.suffix.lower() in SUFFIXES)
        if not found and not empty_allowed:
            refuse(folder / name, f"has no images ({', '.join(sorted(SUFFIXES))})")
        files += found
        labels += [label] * len(found)
    return files, labels


def read_image(file: Path, size: int, channels: int) -> Bytes:
    """Read an image as uint8 (C, size, size). Raises a ConfigError that names the file if it cannot be read."""
    try:
        with open_image(file) as image:
            pixels = middle_square(image, size, channels)
    except ValueError as error:
        refuse(file, str(error))
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def refuse(path: Path, reason: str) -> NoReturn:
    raise ConfigError(f"data=imagefolder:{path}: {reason}")
