"""Reading a folder of images as a dataset: which files are its images, their split, and the fingerprint.

The images are PATH/train/<class>/* and PATH/test/<class>/* (or val/), or PATH/<class>/*, split 80/20 within each class.
Links are followed. Hidden files and folders are left out at every depth.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np
from PIL.Image import Image

from commonfloor.files import read_bytes
from commonfloor.messages import reason
from commonfloor.options import ConfigError
from vitcore.data.dataset import About, Bytes, Raw
from vitcore.data.decode import (
    DECODING,
    LARGEST,
    SUFFIXES,
    Facts,
    facts,
    is_translucent,
    middle_window,
    open_content,
    unreadable_error,
)
from vitcore.data.shuffle import Indices, stratified_split
from vitcore.settings import Shape

TEST_SHARE = 0.2
TRAIN = ("train", "training")  # names of the folder of training images, in small or large letters
TESTS = ("test", "val", "testing", "validation", "valid")  # the first that exists holds the test images
SYSTEM_FOLDERS = frozenset(  # of macOS archives, network drives, Windows and disks, beside names that begin with a dot
    {"__macosx", "@eadir", "@recycle", "@recently-snapshot", "#recycle", "#snapshot", "$recycle.bin"}
    | {"system volume information", "lost+found", "__pycache__"}
)
NO_IMAGES = f"has no images ({', '.join(sorted(SUFFIXES))})"
File = TypeVar("File")
Folder = tuple[int, int]  # device and inode, which identify a folder
PART = 32  # files that a thread takes at once, because handing over one takes as long as reading a small one
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in a file. name: for messages. size: bytes of its file.

    read: returns the encoded image; may raise OSError or ValueError. identity: belongs to the id beside the content.
    """

    name: str
    size: int
    read: Callable[[], bytes]
    identity: bytes = b""

    def open(self) -> Image:
        """Open the image without decoding it; raise ValueError if it is unreadable or in no known format."""
        try:
            return open_content(self.read())
        except OSError as error:
            raise unreadable_error(reason(error)) from None


@dataclass(frozen=True)
class Listing:
    """The image files of a dataset, with their labels (M,) and the indices of the training and the test images.

    parts: the names of the folders of training and test images, or () if a fifth of each class is for testing. origin:
    prefix of an image's name in messages. header: a part of the fingerprint.
    """

    files: Sequence[StoredImage]
    labels: Indices
    classes: tuple[str, ...]
    train: Indices
    test: Indices
    parts: tuple[str, ...] = ()
    origin: str = ""
    header: bytes = b""


def list_images(root: Path) -> Listing:
    """Return the images in a folder with their labels and split; raise ConfigError if its layout is invalid."""
    if not root.is_dir():
        refuse(root, "no such folder")
    if not is_utf8(str(root.resolve())):
        refuse(root, "the path of a folder has to be UTF-8; give it another name")
    names = folder_names(root)
    train = part_name(names, TRAIN)
    return list_flat(root) if train is None else list_parts(root, train, part_name(names, TESTS))


def part_name(names: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the name of the training or the test folder, or None. 'train' takes precedence over 'Train'."""
    for wanted in known:
        matching = [name for name in names if name.casefold() == wanted]
        if matching:
            return wanted if wanted in matching else matching[0]
    return None


def list_parts(root: Path, train: str, test: str | None) -> Listing:
    """Return the images in a folder that has a training folder and a test folder."""
    if test is None:
        others = [name for name in folder_names(root) if name != train]
        hint = f"; if '{train}' is a class like '{others[0]}', give its folder another name" if others else ""
        refuse(root, f"has {train}/ but neither test/ nor val/ beside it{hint}")
    classes = class_names(root / train)
    tested = folder_names(root / test)
    unknown = set(tested) - set(classes)
    if unknown:
        refuse(root / test, f"class '{min(unknown)}' is not in {train}/")
    missing = sorted(set(classes) - set(tested))
    if missing:
        more = f" ({len(missing) - 1} more classes are missing)" if len(missing) > 1 else ""
        refuse(root / test, f"has no folder of the class '{missing[0]}', which is in {train}/{more}")
    train_files, train_labels = list_classes(root, train, classes)
    test_files, test_labels = list_classes(root, test, classes, empty_allowed=True)
    if not test_files:
        refuse(root / test, NO_IMAGES)
    labels = np.array(train_labels + test_labels, np.int64)
    train_places, test_places = np.split(np.arange(len(labels)), [len(train_labels)])
    parts = (train, test)
    return Listing(train_files + test_files, labels, classes, train_places, test_places, parts, f"imagefolder:{root}/")


def list_flat(root: Path) -> Listing:
    """Return the images in a folder that holds class folders directly, split by `fixed_split`."""
    classes = class_names(root)
    if all(name.casefold() in TESTS for name in classes):
        refuse(root, f"has {'/, '.join(classes)}/ but no train/ beside them")
    files, file_labels = list_classes(root, "", classes)
    labels = np.array(file_labels, np.int64)
    return Listing(files, labels, classes, *fixed_split(labels), origin=f"imagefolder:{root}/")


def fixed_split(labels: Indices) -> tuple[Indices, Indices]:
    """Return the indices of training and test images. A fixed random fifth of each class is for testing."""
    test, train = stratified_split(labels, np.arange(len(labels)), TEST_SHARE, "imagefolder")
    return np.sort(train), np.sort(test)


def class_names(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of the class folders; raise ConfigError if there are fewer than two."""
    names = folder_names(folder)
    if len(names) < 2:
        present = f"only the class folder '{names[0]}'" if names else "no class folders"
        refuse(folder, f"has {present}; at least 2 are needed, as in PATH/<class>/*.jpg or PATH/train/<class>/*.jpg")
    return names


def folder_names(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of the visible folders in a folder; raise ConfigError if it or a name cannot be read."""
    names = []
    try:
        for entry in folder.iterdir():
            if not is_hidden(entry.name) and is_folder(entry):
                names.append(entry.name)
    except OSError as error:
        refuse(folder, f"cannot be read ({reason(error)})")
    for name in names:
        if not is_utf8(name):
            refuse(folder / name, "the name of a class folder has to be UTF-8; give it another one")
    return tuple(sorted(names))


def is_utf8(name: str) -> bool:
    """Return whether a name that was read from disk is text, not bytes of another encoding."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def is_hidden(name: str) -> bool:
    """Return whether a file or folder belongs to a program or the system and not to the data."""
    return (name.startswith(".") and name != "..") or name.casefold() in SYSTEM_FOLDERS


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder or a link to one; raise ConfigError if it is a link to nothing."""
    if path.is_symlink() and not path.exists():
        refuse(path, f"is a link to {os.readlink(path)}, which does not exist")
    return path.is_dir()


def list_classes(
    root: Path, part: str, classes: Sequence[str], empty_allowed: bool = False
) -> tuple[list[StoredImage], list[int]]:
    """Return the images in each class folder of a part, "" or a folder's name, sorted, and their labels."""
    images: list[StoredImage] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        folder = root / part / name
        files = sorted(file for file in visible_files(folder, root) if file.suffix.lower() in SUFFIXES)
        if not files and not empty_allowed:
            refuse(folder, NO_IMAGES)
        for file in files:
            image_name = file.relative_to(root).as_posix()
            read = partial(read_bytes, file, LARGEST)
            images.append(StoredImage(image_name, file.stat().st_size, read, name_bytes(image_name)))
        labels += [label] * len(files)
    return images, labels


def visible_files(folder: Path, root: Path) -> Iterator[Path]:
    """Yield the visible files below a class folder, through links; raise ConfigError if one cannot be followed."""
    try:
        yield from files_below(folder, frozenset(map(folder_identity, (root, folder.parent))))
    except OSError as error:
        refuse(Path(str(error.filename)), f"cannot be read ({reason(error)})")


def files_below(folder: Path, above: frozenset[Folder]) -> Iterator[Path]:
    """Yield the files of `visible_files`. above: the folders that hold this one. Raises OSError if a read fails."""
    identity = folder_identity(folder)
    if identity in above:
        refuse(folder, f"is a link to {folder.resolve()}, a folder that it is in")
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            path = folder / entry.name
            holds_files = is_folder(path) if entry.is_symlink() else entry.is_dir()
            if holds_files:
                yield from files_below(path, above | {identity})
            else:
                yield path


def folder_identity(folder: Path) -> Folder:
    status = folder.stat()
    return status.st_dev, status.st_ino


def name_bytes(name: str) -> bytes:
    """Return a name as bytes, also if the name on disk is not UTF-8."""
    return name.encode("utf-8", "surrogateescape")


def refuse(path: Path, reason: str) -> NoReturn:
    raise ConfigError(f"data=imagefolder:{path}: {reason}")


def describe_images(listing: Listing) -> About:
    """Return the facts about images in files: the size of the first, gray if all are; raise ConfigError if broken."""
    total = hashlib.sha256(listing.header)
    images: list[Facts] = []
    broken: list[str] = []
    for image, (sha256, image_facts) in zip(listing.files, in_threads(read_facts, listing.files), strict=True):
        total.update(image.identity + b"\0" + sha256)
        if isinstance(image_facts, Facts):
            images.append(image_facts)
        else:
            broken.append(f"{image.name}: {image_facts}")
    refuse_broken(listing, broken)
    fingerprint: dict[str, str | int] = {"images": len(listing.files), "sha256": total.hexdigest()}
    if any(image.orientation != 1 for image in images) or has_translucent(listing, images):
        fingerprint["decoding"] = DECODING
    return About(
        image_size=min(images[0].size),
        channels=1 if all(image.gray for image in images) else 3,
        classes=len(listing.classes),
        train_size=len(listing.train),
        test_size=len(listing.test),
        fingerprint=fingerprint,
        class_names=listing.classes,
    )


def read_facts(image: StoredImage) -> tuple[bytes, Facts | str]:
    """Return the sha256 of an encoded image, and the facts about it or, if it is broken, the reason."""
    try:
        content = image.read()
    except (OSError, ValueError) as error:
        return b"", f"cannot be read as an image ({reason(error)})"
    digest = hashlib.sha256(content).digest()
    try:
        return digest, facts(content)
    except ValueError as error:
        return digest, str(error)


def has_translucent(listing: Listing, images: Sequence[Facts]) -> bool:
    """Return whether an image has a pixel that is not opaque. Decodes images with an alpha channel, up to the first."""

    def translucent(image: StoredImage) -> bool:
        try:
            with image.open() as opened:
                return is_translucent(opened)
        except ValueError as error:
            raise ConfigError(f"data={listing.origin}{image.name}: {error}") from None

    with_alpha = [image for image, image_facts in zip(listing.files, images, strict=True) if image_facts.alpha]
    return any(in_threads(translucent, with_alpha))


def in_threads(work: Callable[[File], Result], files: Sequence[File]) -> Iterator[Result]:
    """Yield the result of `work` for each file, in order."""
    parts = [files[first : first + PART] for first in range(0, len(files), PART)]
    with ThreadPoolExecutor() as pool:
        for results in pool.map(lambda part: [work(file) for file in part], parts):
            yield from results


def read_images(listing: Listing, shape: Shape, channels: int) -> Raw:
    """Read each image's largest centered window, resized to `shape`. Raises ConfigError if an image is invalid."""
    images = np.empty((len(listing.files), channels, *shape), np.uint8)
    for place, image in enumerate(listing.files):
        images[place] = read_image(image, listing.origin, shape, channels)
    return Raw(images, listing.labels, listing.train, listing.test)


def check_images(listing: Listing, channels: int) -> None:
    """Check that all images can be decoded; raise a ConfigError that names one broken image and counts the others."""

    def failure(image: StoredImage) -> str:
        try:
            read_image(image, "", (1, 1), channels)
        except ConfigError as error:
            return str(error).removeprefix("data=")
        return ""

    refuse_broken(listing, list(filter(None, in_threads(failure, listing.files))))


def refuse_broken(listing: Listing, broken: Sequence[str]) -> None:
    """Raise a ConfigError that names the first of the broken images and counts the others, if there are any."""
    if broken:
        more = {1: "", 2: " (1 more file is broken)"}.get(len(broken), f" ({len(broken) - 1} more files are broken)")
        raise ConfigError(f"data={listing.origin}{broken[0]}{more}")


def read_image(image: StoredImage, origin: str, shape: Shape, channels: int) -> Bytes:
    """Read an image as uint8 (C, *shape). Raises a ConfigError that names the image if it cannot be read."""
    try:
        with image.open() as opened:
            pixels = middle_window(opened, shape, channels)
    except ValueError as error:
        raise ConfigError(f"data={origin}{image.name}: {error}") from None
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
