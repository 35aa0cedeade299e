"""The sources from which packs are made: folders of images, tar files, files of other libraries, timm's datasets.

    SOURCE                     train/<class>/*, and test/ or val/; or only class folders, a fifth of each for testing
    SOURCE.tar                 a tar of these folders; a class may be a tar, as in ILSVRC2012_img_train.tar of ImageNet
    SOURCE/train.tar, val.tar  (or test.tar, validation.tar) one tar for training images and one for test images
    hf: parquet: wds:          see vitcore/data/formats
    timm:NAME                  timm.data.create_dataset(NAME, root=data_dir), splits train and validation

Tars are read without unpacking. The names of folders and hidden files are those of vitcore/data/imagefolder.py.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL.Image import Image
from pydantic import TypeAdapter, ValidationError

from commonfloor.files import read_bytes
from commonfloor.messages import reason
from commonfloor.options import ConfigError
from vitcore.data.dataset import small_class
from vitcore.data.decode import LARGEST, is_gray, open_content, upright
from vitcore.data.formats import FORMATS, list_stored
from vitcore.data.formats.tars import Member, members
from vitcore.data.imagefolder import (
    NO_IMAGES,
    TESTS,
    TRAIN,
    Listing,
    StoredImage,
    fixed_split,
    is_hidden,
    is_utf8,
    list_images,
    name_bytes,
)
from vitcore.data.pack import check_label_sets
from vitcore.data.shuffle import Indices

TIMM = "timm:"
INSTEAD = {  # kind of timm's datasets -> sources that are read instead
    "hfds": "hf:FOLDER of save_to_disk or parquet:GLOB of downloaded files",
    "hfids": "hf:FOLDER of save_to_disk or parquet:GLOB of downloaded files",
    "wds": "wds:GLOB of its tars",
}
SAMPLE = 64  # number of images read to determine the size


@dataclass(frozen=True)
class Source:
    """The images to pack: `train` training images, then the test images, with their labels (M,).

    open: image number -> image; may raise OSError or ValueError. sizes: bytes of each file, which identify the images
    together with the names, or None. label_sets: the right labels of each test image, if they are not one each.
    """

    classes: tuple[str, ...]
    labels: Indices
    train: int
    names: Sequence[str]
    open: Callable[[int], Image]
    sizes: Sequence[int] | None = None
    label_sets: list[list[int]] | None = None

    @property
    def digest(self) -> str:
        """The sha256 of the classes, labels, names and sizes, which identifies the images."""
        total = hashlib.sha256("\0".join(self.classes).encode() + self.labels.tobytes())
        identities: Iterable[str] = self.names
        if self.sizes is not None:
            identities = map("{} {}".format, self.names, self.sizes)
        for text in identities:
            total.update(name_bytes(text) + b"\0")
        return total.hexdigest()

    @contextmanager
    def picture(self, place: int) -> Iterator[Image]:
        """Open image number `place` for the block. OSError and ValueError become a ValueError that names the image."""
        try:
            with self.open(place) as image:
                yield image
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.names[place]}: {reason(error)}") from None

    def pictures(self, places: Iterable[int]) -> Iterator[Image]:
        """Yield the images with these numbers. Raises as `picture` does."""
        for place in places:
            with self.picture(place) as image:
                yield image

    def all_gray(self) -> bool:
        """Return whether all images are gray. Reads up to the first in color."""
        return all(map(is_gray, self.pictures(range(len(self.labels)))))

    def with_label_sets(self, path: Path) -> Source:
        """Return this source with the label sets of the test images, sorted by file name, from a JSON file.

        Its form is that of real.json of https://github.com/google-research/reassessed-imagenet, or it is a ValueError.
        """
        try:
            label_sets = TypeAdapter(list[list[int]]).validate_json(read_bytes(path, LARGEST), strict=True)
            check_label_sets(label_sets, len(self.labels) - self.train, len(self.classes))
        except ValidationError:
            raise ValueError(f"{path}: a JSON list with a list of labels for each test image") from None
        except ConfigError as error:
            raise ValueError(f"{path}: {error}") from None
        file_names = [os.path.basename(name) for name in self.names[self.train :]]
        for first, second in pairwise(sorted(file_names)):
            if first == second:
                raise ValueError(f"{path}: is sorted by file name, and two test images are called {first}")
        ranks = np.argsort(np.argsort(file_names, kind="stable"))
        return replace(self, label_sets=[label_sets[rank] for rank in ranks])

    def shorter_sides(self) -> list[int]:
        """Return the shorter side, in pixels, of up to 64 evenly spaced images."""
        places = np.unique(np.linspace(0, len(self.labels) - 1, SAMPLE).astype(int)).tolist()
        return [min(image.size) for image in self.pictures(places)]


def find_source(source: str, data_dir: Path | None, tests_alone: bool = False) -> Source:
    """Return the source that `source` names, in one of the forms listed at the start of this module.

    data_dir: root of timm's datasets. tests_alone: whether all images are test images. Raises ValueError if the source
    is missing or invalid, or a class has too few images, and OSError if a file or folder cannot be read.
    """
    path = Path(os.path.expanduser(source)).resolve()
    parts = part_tars(path)
    if source.startswith(TIMM):
        dataset = from_timm(source.removeprefix(TIMM), data_dir)
    elif path.is_file():
        dataset = from_members(list(members(path)), str(path))
    elif any(part.casefold() in TRAIN for part in parts):
        listed = []
        for part, tar in parts.items():
            for member in members(tar):  # as if each tar were a folder
                listed.append(replace(member, path=PurePosixPath(part, *member.path.parts[-2:])))
        dataset = from_members(listed, str(path))
    else:
        try:
            dataset = from_listing(list_stored(source) if source.startswith(FORMATS) else list_images(path))
        except ConfigError as error:
            why = str(error).removeprefix(f"data={source}: ").removeprefix("data=imagefolder:")
            raise ValueError(f"source {source}: {why}") from None
    if tests_alone:
        return replace(dataset, train=0)
    why = small_class(dataset.labels, np.arange(dataset.train), dataset.classes)
    if why:
        raise ValueError(f"source {source}: {why}")
    return dataset


def part_tars(folder: Path) -> dict[str, Path]:
    """Return name -> file for the tars of a folder that are named like a training or test folder, as train.tar."""
    return {
        tar.stem: tar
        for tar in sorted(folder.glob("*.tar"))
        if tar.is_file() and tar.stem.casefold() in (*TRAIN, *TESTS)
    }


def from_listing(listing: Listing) -> Source:
    """Return a source with the listed images."""
    places = np.concatenate([listing.train, listing.test])
    images = [listing.files[place] for place in places]
    names = [image.name for image in images]
    sizes = [image.size for image in images]
    labels = listing.labels[places]
    return Source(listing.classes, labels, len(listing.train), names, lambda place: images[place].open(), sizes)


def from_members(images: list[Member], origin: str) -> Source:
    """Return a source with images of tars, whose folders are as in an image folder, or raise ValueError."""
    images = sorted(images, key=lambda image: str(image.path))
    if not images:
        raise ValueError(f"{origin}: {NO_IMAGES}")
    trains = [image.path.parent.parent.name.casefold() in TRAIN for image in images]
    tests = [image.path.parent.parent.name.casefold() in TESTS for image in images]
    divided = any(trains) or any(tests)
    parts = (*TRAIN, *TESTS) if divided else ()
    for image in images:
        name = image.path.parent.name
        if not name or name.casefold() in parts:
            raise ValueError(f"{origin}: {image.path} is in no class folder: an image's folder is its class")
    classes = tuple(sorted({image.path.parent.name for image in images}))
    if len(classes) < 2:
        raise ValueError(f"{origin}: has {len(classes)} class folders; at least 2 are needed")
    unnamed = next((name for name in classes if not is_utf8(name)), None)
    if unnamed:
        raise ValueError(f"{origin}: the name of the class folder {unnamed} has to be UTF-8; give it another one")
    number = {name: place for place, name in enumerate(classes)}  # an array of names would pad each to the longest
    labels = np.array([number[image.path.parent.name] for image in images], np.int64)
    if any(tests):
        train = np.flatnonzero(~np.array(tests))
        test = np.flatnonzero(tests)
        unknown = set(labels[test]) - set(labels[train])
        if unknown:
            raise ValueError(f"{origin}: class '{classes[min(unknown)]}' has no images to train on")
    elif divided:
        raise ValueError(f"{origin}: has train/ but none of {', '.join(TESTS)} beside it; no class may be named train")
    else:
        train, test = fixed_split(labels)
    stored = [StoredImage(str(image.path), image.size, image.read) for image in images]
    return from_listing(Listing(stored, labels, classes, train, test))


def from_timm(name: str, data_dir: Path | None) -> Source:
    """Return a source with a timm dataset. Raises ValueError if it cannot be read or, as webdataset, has no length."""
    kind = name.partition("/")[0].casefold()
    if kind in INSTEAD:
        raise ValueError(f"{TIMM}{name}: may use the network: give {INSTEAD[kind]} instead")
    from timm.data.dataset_factory import create_dataset

    root = str(data_dir) if data_dir else None
    parts = []
    for split in ("train", "validation"):
        try:
            parts.append(create_dataset(name, root=root, split=split, download=False))
            len(parts[-1])
        except Exception as error:  # whatever torchvision, datasets and others raise for missing files
            raise ValueError(f"{TIMM}{name}: {split}: cannot be read ({type(error).__name__}: {error})") from error
        refuse_hidden(reader_of(parts[-1]), f"{TIMM}{name}: {split}")
    places = [(part, place) for part in parts for place in range(len(part))]
    labels = np.array([label_of(part, place) for part, place in places], np.int64)
    names = [f"{name} {place}" for place in range(len(labels))]
    count = int(labels.max()) + 1
    class_numbers = getattr(reader_of(parts[0]), "class_to_idx", None) or {}
    if len(class_numbers) == count:
        classes = sorted(class_numbers, key=class_numbers.__getitem__)
    else:
        classes = list(map(str, range(count)))
    return Source(tuple(classes), labels, len(parts[0]), names, lambda place: image_of(*places[place]))


def refuse_hidden(reader: Any, origin: str) -> None:
    """Raise ValueError if timm's reader of a folder lists a hidden file, whose folder it would take for a class."""
    for file, *_ in getattr(reader, "samples", ()):
        if isinstance(file, str) and any(map(is_hidden, Path(os.path.relpath(file, reader.root)).parts)):
            raise ValueError(f"{origin}: {file} is hidden: remove it, or pack the folder itself without {TIMM}")


def reader_of(dataset: Any) -> Any:
    """Return timm's reader of a dataset, which would open any format and skip unreadable images, or the dataset."""
    return getattr(dataset, "reader", dataset)


def image_of(dataset: Any, place: int) -> Image:
    """Return image number `place` of a dataset; raise ValueError if timm's reader yields an unreadable file."""
    image: Any = reader_of(dataset)[place][0]
    if not hasattr(image, "read"):
        return image
    with image:
        return upright(open_content(image.read())).convert("RGB")


def label_of(dataset: Any, place: int) -> int:
    if hasattr(dataset, "targets"):  # otherwise, reading a label may decode its image
        return int(dataset.targets[place])
    image, label, *_ = reader_of(dataset)[place]
    image.close()
    return int(label)
