"""Finding the images of a folder: its training and test folders, classes, links and hidden files.

The images are PATH/train/<class>/* and PATH/test/<class>/*. If there is no test/, val/ serves as the test set. A folder
that holds the class folders directly is split 80/20 within each class, in the same way for every seed. Links are
followed. Hidden files and folders are left out at every depth.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

import numpy as np

from vitcore.data.dataset import small_class
from vitcore.data.decode import SUFFIXES
from vitcore.data.shuffle import Indices, stratified_split
from vitcore.options import ConfigError

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


@dataclass(frozen=True)
class Listing(Generic[File]):
    """The image files of a dataset, with their labels (M,) and the indices of the training and the test images.

    parts: the names of the folders of training and test images, or () if a fifth of each class is for testing.
    """

    files: Sequence[File]
    labels: Indices
    classes: tuple[str, ...]
    train: Indices
    test: Indices
    parts: tuple[str, ...] = ()


def list_folder(root: Path) -> Listing[Path]:
    """Return the images in a folder with their labels and split; raise ConfigError if its layout is invalid."""
    listing = list_images(root)
    why = small_class(listing.labels, listing.train, listing.classes)
    if why:
        refuse(root, why)
    return listing


def list_images(root: Path) -> Listing[Path]:
    """Return the images in a folder, also if a class is too small; raise ConfigError if its layout is invalid."""
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


def list_parts(root: Path, train: str, test: str | None) -> Listing[Path]:
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
    return Listing(train_files + test_files, labels, classes, train_places, test_places, (train, test))


def list_flat(root: Path) -> Listing[Path]:
    """Return the images in a folder that holds class folders directly, split by `fixed_split`."""
    classes = class_names(root)
    if all(name.casefold() in TESTS for name in classes):
        refuse(root, f"has {'/, '.join(classes)}/ but no train/ beside them")
    files, file_labels = list_classes(root, "", classes)
    labels = np.array(file_labels, np.int64)
    return Listing(files, labels, classes, *fixed_split(labels))


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
    """Return the sorted names of the folders in a folder, without hidden ones.

    Raises ConfigError if the folder cannot be read, or a name is a link to nothing or not UTF-8.
    """
    names = []
    try:
        for entry in folder.iterdir():
            if not is_hidden(entry.name) and is_folder(entry):
                names.append(entry.name)
    except OSError as error:
        refuse(folder, f"cannot be read ({error.strerror})")
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
) -> tuple[list[Path], list[int]]:
    """Return the images in each class folder of a part and its subfolders, sorted within each class, and their labels.

    part: the name of the training or test folder, or "". Raises ConfigError if a folder cannot be read or is in itself
    by a link, or has no image and `empty_allowed` is False.
    """
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        folder = root / part / name
        images = sorted(file for file in visible_files(folder, root) if file.suffix.lower() in SUFFIXES)
        if not images and not empty_allowed:
            refuse(folder, NO_IMAGES)
        files += images
        labels += [label] * len(images)
    return files, labels


def visible_files(folder: Path, root: Path) -> Iterator[Path]:
    """Yield the files in a class folder and its subfolders, through links, without hidden ones.

    Raises ConfigError if a folder cannot be read, a link leads to nothing, or a link leads to a folder that it is in.
    """
    try:
        yield from files_below(folder, frozenset(map(folder_identity, (root, folder.parent))))
    except OSError as error:
        refuse(Path(str(error.filename)), f"cannot be read ({error.strerror})")


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
