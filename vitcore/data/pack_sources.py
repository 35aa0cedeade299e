"""Sources of packs: a folder of images, tar files, or a dataset of timm.

    SOURCE                     train/<class>/*, and test/ or val/; or class folders alone, a fifth of which is the test
    SOURCE.tar                 the same inside; a class may be a tar, as in ImageNet's ILSVRC2012_img_train.tar
    SOURCE/train.tar, val.tar  (or test.tar) one tar per part
    timm:NAME                  timm.data.create_dataset(NAME, root=data_dir), splits train and validation

Tars are read in place; compressed ones are not supported.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from vitcore.data.datasets import too_small
from vitcore.data.decode import LARGEST, SUFFIXES, eight_bits, open_image, opened
from vitcore.data.files import open_regular
from vitcore.data.imagefolder import TEST_SHARE, list_folder
from vitcore.data.shuffle import Indices, stratified
from vitcore.options import ConfigError

if TYPE_CHECKING:
    from PIL.Image import Image

TIMM = "timm:"
TESTS = ("test", "val", "validation")


@dataclass(frozen=True)
class Source:
    """Images in order: `train` training images, then test images. names: what identifies each image."""

    classes: tuple[str, ...]
    labels: Indices
    train: int
    names: Sequence[str]
    open: Callable[[int], Image]

    @property
    def digest(self) -> str:
        """A digest of what will be read: another digest means another pack."""
        total = hashlib.sha256("\0".join(self.classes).encode() + self.labels.tobytes())
        for name in self.names:
            total.update(name.encode() + b"\0")
        return total.hexdigest()


def find_source(source: str, data_dir: Path | None) -> Source:
    """Find the source of that name. Raises ValueError for none of the above, or a class of too few images."""
    found = read_source(source, data_dir)
    if why := too_small(found.labels, np.arange(found.train), found.classes):
        raise ValueError(f"source {source}: {why}")
    return found


def read_source(source: str, data_dir: Path | None) -> Source:
    if source.startswith(TIMM):
        return from_timm(source.removeprefix(TIMM), data_dir)
    path = Path(os.path.expanduser(source)).resolve()
    if path.is_file():
        return from_members(members(path), str(path))
    parts = {name: path / f"{name}.tar" for name in ("train", *TESTS) if (path / f"{name}.tar").is_file()}
    if "train" in parts:
        found = [replaced(one, part) for part, tar in parts.items() for one in members(tar)]
        return from_members(found, str(path))
    try:
        return from_folder(path)
    except ConfigError as error:  # which speaks of data=imagefolder:PATH
        raise ValueError(f"source {source}: {str(error).removeprefix('data=imagefolder:')}") from None


# -- folders -----------------------------------------------------------------------------------------------------------


def from_folder(root: Path) -> Source:
    """Return the images that data=imagefolder:ROOT reads."""
    listing = list_folder(root)
    places = np.concatenate([listing.train, listing.test])
    files = [listing.files[place] for place in places]
    names = [f"{file.relative_to(root)} {file.stat().st_size}" for file in files]
    return Source(
        listing.classes,
        listing.labels[places],
        len(listing.train),
        names,
        lambda place: open_image(files[place]),
    )


# -- tars --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    """An image in a tar: its path, and its range of bytes in the file."""

    path: PurePosixPath
    file: Path
    offset: int
    size: int


@dataclass
class Section(io.RawIOBase):
    """A range of a file, as a file."""

    file: Any
    offset: int
    size: int
    place: int = field(default=0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.place, os.SEEK_END: self.size}[whence]
        self.place = start + place
        return self.place

    def tell(self) -> int:
        return self.place

    def readinto(self, buffer: Any) -> int:
        self.file.seek(self.offset + self.place)
        content = self.file.read(min(len(buffer), max(0, self.size - self.place)))
        buffer[: len(content)] = content
        self.place += len(content)
        return len(content)


def members(path: Path) -> list[Member]:
    """Return the images in a tar and in tars inside it, each as if in a folder of that tar's name."""
    with open_regular(path) as file:
        return list(inside(path, file, 0, path.stat().st_size, PurePosixPath()))


def inside(path: Path, file: Any, offset: int, size: int, folder: PurePosixPath) -> Iterable[Member]:
    try:
        with tarfile.open(fileobj=Section(file, offset, size), mode="r:") as tar:
            for one in tar:
                place, name = offset + one.offset_data, PurePosixPath(one.name)
                if not one.isfile() or name.name.startswith("."):
                    continue
                if name.suffix == ".tar":
                    yield from inside(path, file, place, one.size, folder / name.with_suffix(""))
                elif name.suffix.lower() in SUFFIXES:
                    yield Member(folder / name, path, place, one.size)
    except tarfile.TarError as error:
        raise ValueError(
            f"{path}: cannot be read as a tar ({error}); a compressed one has to be unpacked first"
        ) from None


def replaced(member: Member, part: str) -> Member:
    """Member paths as if the tar were the folder `part`."""
    return Member(
        PurePosixPath(part) / member.path.parent.name / member.path.name, member.file, member.offset, member.size
    )


def from_members(found: list[Member], origin: str) -> Source:
    """Return a source from members: class by folder, part by the folder above. Raises ValueError."""
    found = sorted(found, key=lambda one: str(one.path))
    if not found:
        raise ValueError(f"{origin}: has no images ({', '.join(sorted(SUFFIXES))})")
    classes = tuple(sorted({one.path.parent.name for one in found}))
    if len(classes) < 2 or "" in classes:
        raise ValueError(f"{origin}: has {len(classes)} class folders; at least 2 are needed")
    number = {name: place for place, name in enumerate(classes)}
    labels = np.array([number[one.path.parent.name] for one in found], np.int64)
    tests = np.array([one.path.parent.parent.name in TESTS for one in found])
    if flat := next((one for one in found if str(one.path.parent) in TESTS), None):
        raise ValueError(f"{origin}: {flat.path} is in no class folder: an image's folder is its class")
    if tests.any():
        train, test = np.flatnonzero(~tests), np.flatnonzero(tests)
        if unknown := set(labels[test]) - set(labels[train]):
            raise ValueError(f"{origin}: class '{classes[min(unknown)]}' has no images to train on")
    elif any(one.path.parent.parent.name == "train" for one in found):
        raise ValueError(f"{origin}: has train/ but none of {', '.join(TESTS)} beside it")
    else:
        test, train = (np.sort(part) for part in stratified(labels, np.arange(len(labels)), TEST_SHARE, "imagefolder"))
    places = np.concatenate([train, test])
    chosen = [found[place] for place in places]
    return Source(
        classes,
        labels[places],
        len(train),
        [f"{one.path} {one.size}" for one in chosen],
        lambda place: open_member(chosen[place]),
    )


def open_member(member: Member) -> Image:
    if member.size > LARGEST:
        raise ValueError(f"larger than {LARGEST:,} bytes")
    with open_regular(member.file) as file:
        file.seek(member.offset)
        return opened(file.read(member.size))


# -- timm --------------------------------------------------------------------------------------------------------------


def from_timm(name: str, data_dir: Path | None) -> Source:
    """Return a source from a timm dataset with a length and random access (not webdataset or TFDS)."""
    from timm.data.dataset_factory import create_dataset

    parts = []
    for split in ("train", "validation"):
        try:
            parts.append(create_dataset(name, root=str(data_dir) if data_dir else None, split=split, download=False))
            len(parts[-1])
        except Exception as error:  # of torchvision, datasets, ...: whatever they say is why it cannot be read
            raise ValueError(f"{TIMM}{name}: {split}: cannot be read ({type(error).__name__}: {error})") from error
    labels = np.array([label_of(part, place) for part in parts for place in range(len(part))], np.int64)
    count = len(parts[0])

    def opened_image(place: int) -> Image:
        part, own = (parts[0], place) if place < count else (parts[1], place - count)
        return image_of(part, own)

    return Source(
        classes_of(parts[0], int(labels.max()) + 1),
        labels,
        count,
        [f"{name} {place}" for place in range(len(labels))],
        opened_image,
    )


def image_of(dataset: Any, place: int) -> Image:
    """Return an image from timm's own reader, if the dataset has one.

    The dataset itself opens any format, clips 16-bit values and skips unreadable images.
    """
    found = getattr(dataset, "reader", dataset)[place][0]
    if not hasattr(found, "read"):
        image: Image = found
        return image
    with found:
        return eight_bits(opened(found.read())).convert("RGB")


def label_of(dataset: Any, place: int) -> int:
    """Return a label from a list or timm's own reader, if there is one; else the image is decoded for it."""
    if hasattr(dataset, "targets"):
        return int(dataset.targets[place])
    found, label, *_ = getattr(dataset, "reader", dataset)[place]
    found.close()
    return int(label)


def classes_of(dataset: Any, count: int) -> tuple[str, ...]:
    """Class names in the order of labels; numbers if there are no names."""
    known = getattr(getattr(dataset, "reader", dataset), "class_to_idx", None)
    if not known or len(known) != count:
        return tuple(map(str, range(count)))
    return tuple(sorted(known, key=known.__getitem__))
