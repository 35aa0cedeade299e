"""Which files, splits and columns are read, and how labels become class numbers."""

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np

from vitcore.data.imagefolder import TESTS, TRAIN, Listing, StoredImage, fixed_split, is_hidden, part_name
from vitcore.data.shuffle import Indices

LABELS = ("label", "labels", "class", "cls", "target")  # names of label columns, also after a _, as in fine_label
NUMBERING = re.compile(r"-?\d+(-of-\d+)?(-[0-9a-f]{16})?$")  # -00000-of-00010, the hash is of older versions
MOST_CLASSES = 2**20
MOST_FILES = 10**6
BRACES = re.compile(r"\{([^{}]+)\}")
WILDCARD = re.compile(r"[*?[]")
RANGE = re.compile(r"(\d+)\.\.(\d+)")

File = tuple[Path, str]  # a file, and its name in messages


@dataclass(frozen=True)
class Selection:
    """The columns and splits that are asked for; "" for the only one, or the one with the usual name."""

    image: str = ""
    label: str = ""
    train: str = ""
    test: str = ""

    @classmethod
    def parse(cls, text: str) -> tuple[str, Self]:
        """Return the text before '#', and the choice after it. Raises ValueError if a key is unknown."""
        before, _, after = text.partition("#")
        chosen = dict(item.partition("=")[::2] for item in after.split(",") if item)
        keys = [field.name for field in fields(cls)]
        for key, value in chosen.items():
            if key not in keys or not value:
                raise ValueError(f"#{key}={value}: one of {', '.join(f'{name}=NAME' for name in keys)}")
        return before, cls(**chosen)

    def splits(self, names: Sequence[str]) -> list[str]:
        """Return the splits of training and of test images, which may be one; raise ValueError if one is not clear."""
        for key, name in (("train", self.train), ("test", self.test)):
            if name and name not in names:
                raise ValueError(f"#{key}={name}: no such split; there is {', '.join(names)}")
        train = self.train or part_name(names, TRAIN) or (names[0] if len(names) == 1 else "")
        others = [name for name in names if name != train]
        test = self.test or part_name(others, TESTS) or ("" if others else train)
        for key, name in (("train", train), ("test", test)):
            if not name:
                raise ValueError(f"no {key} split among {', '.join(names)}: choose one by #{key}=NAME")
        return list(dict.fromkeys((train, test)))

    def column(self, key: str, candidates: Sequence[str], columns: Iterable[str]) -> str:
        """Return the column of images or labels. key: image or label. Raises ValueError if it has to be chosen."""
        chosen: str = getattr(self, key)
        if chosen:
            if chosen not in columns:
                raise ValueError(f"#{key}={chosen}: one of {', '.join(columns)}")
            return chosen
        if key in candidates:
            return key
        if not candidates:
            raise ValueError(f"no {key} column among {', '.join(columns)}: choose one by #{key}=NAME")
        if len(candidates) > 1:
            raise ValueError(f"several {key} columns, {', '.join(candidates)}: choose one by #{key}=NAME")
        return candidates[0]


def is_label_name(name: str) -> bool:
    return name.casefold().rpartition("_")[2] in LABELS


def expand(pattern: str, suffix: str) -> list[Path]:
    """Return the files of a pattern, or with the suffix in a folder, sorted; raise ValueError if one is missing."""
    files: set[str] = set()
    for each in braces(pattern):
        root = os.path.dirname(WILDCARD.split(each)[0])  # which may lie in a hidden folder, as ~/.cache does
        if os.path.isdir(each):
            root = each
            each = os.path.join(glob.escape(each), "**", f"*{suffix}")
        matches = glob.glob(each, recursive=True)
        visible = [name for name in matches if not any(map(is_hidden, Path(os.path.relpath(name, root)).parts))]
        if not visible:
            raise ValueError(f"{each}: no such file" if each != pattern else "no such file")
        files.update(visible)
    return [Path(name) for name in sorted(files)]


def braces(pattern: str) -> list[str]:
    """Return the patterns that one with braces stands for; raise ValueError if they are too many or none."""
    match = BRACES.search(pattern)
    if match is None:
        return [pattern]
    ends = RANGE.fullmatch(match[1])
    choices = match[1].split(",")
    if ends:
        first, last = int(ends[1]), int(ends[2])
        if not 0 <= last - first < MOST_FILES:
            raise ValueError(f"{match[0]}: from the smaller to the larger, at most {MOST_FILES:,}")
        choices = [f"{number:0{len(ends[1])}}" for number in range(first, last + 1)]
    patterns: list[str] = []
    for choice in choices:
        patterns += braces(pattern[: match.start()] + choice + pattern[match.end() :])
    return patterns


def splits_of(files: Sequence[Path]) -> dict[str, list[File]]:
    """Return the files of each split. A file's name says its split, as train-00000-of-00010, or else its folder's."""
    root = os.path.commonpath([file.parent for file in files])
    splits: dict[str, list[File]] = {}
    for file in files:
        relative = file.relative_to(root)
        splits.setdefault(split_name(relative), []).append((file, str(relative)))
    return splits


def split_name(file: Path) -> str:
    """Return the only usual name of a split in a file's name or else in its folders', or the name without numbers."""
    for text in (file.stem, *reversed(file.parent.parts)):
        words = {word for word in re.split(r"[^a-z]+", text.casefold()) if word in (*TRAIN, *TESTS)}
        if len(words) == 1:
            return words.pop()
    return NUMBERING.sub("", file.stem) or "all"


@dataclass(frozen=True)
class SplitImages:
    """The images of a split, and their labels: numbers, or the names of classes. classes: names of the numbers."""

    images: Sequence[StoredImage]
    labels: Sequence[int | str]
    classes: tuple[str, ...] = ()


def listing_of(parts: Mapping[str, SplitImages], origin: str) -> Listing:
    """Return the images of two splits, or of one with a fifth for testing; raise ValueError if a label is invalid."""
    images: list[StoredImage] = []
    raw: list[int | str] = []
    for part in parts.values():
        images += part.images
        raw += part.labels
    names = {part.classes for part in parts.values()}
    if len(names) > 1:
        raise ValueError(f"the splits {' and '.join(parts)} differ in the names of their classes")
    classes, labels = numbered(raw, images, names.pop())
    train, test = np.split(np.arange(len(images)), [len(next(iter(parts.values())).images)])
    if len(parts) == 1:
        train, test = fixed_split(labels)
        order = np.concatenate([train, test])  # as in a pack, so that both train alike
        images = [images[place] for place in order]
        labels = labels[order]
        train, test = np.split(np.arange(len(images)), [len(train)])
    splits = list(parts)
    for split, indices in ((splits[0], train), (splits[-1], test)):
        if not len(indices):
            raise ValueError(f"the split {split} has no images")
    header = "\0".join(classes).encode("utf-8", "surrogateescape") + labels.tobytes() + str(len(train)).encode()
    return Listing(images, labels, classes, train, test, tuple(parts), origin, header)


def numbered(
    raw: Sequence[int | str], images: Sequence[StoredImage], names: Sequence[str]
) -> tuple[tuple[str, ...], Indices]:
    """Return the names of the classes and the class numbers (M,). Without names, numbers are their own names."""
    if any(isinstance(label, str) for label in raw):
        texts = list(map(str, raw))
        classes = sorted(set(texts))
        number = {name: place for place, name in enumerate(classes)}
        return tuple(classes), np.array([number[text] for text in texts], np.int64)
    labels = np.array(raw, np.int64)
    classes = list(names) or [str(number) for number in range(min(labels.max(initial=0) + 1, MOST_CLASSES))]
    wrong = np.flatnonzero((labels < 0) | (labels >= len(classes)))
    if len(wrong):
        label, image = labels[wrong[0]], images[wrong[0]].name
        hint = ": a test set without labels? Choose another split by #test=NAME" if label == -1 else ""
        raise ValueError(f"{image}: has the label {label} of {len(classes)} classes, 0 to {len(classes) - 1}{hint}")
    return tuple(classes), labels
