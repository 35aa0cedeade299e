"""The survey of a folder or a pack of images, from which a recipe is written."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitcore.data.decode import eight_bits, is_gray, open_image
from vitcore.data.imagefolder import list_images
from vitcore.data.pack import MANIFEST, manifest, read_index

SMALLEST_CLASS = 2  # minimum images per class to train and validate on
NAMED = 5
FEW = 0.02  # largest fraction of the images that can be outliers


@dataclass(frozen=True)
class Survey:
    """The result of a survey: the number of images, their split, classes, sizes and unreadable files."""

    data: str  # the value of `data` in a config
    name: str
    train: int
    test: int
    own_split: bool  # whether train/ and test/ are given; otherwise, a fifth of each class is the test set
    classes: dict[str, int]  # class -> number of training and validation images
    channels: int
    sides: Sequence[int]  # the shorter side of every readable image, in pixels; one value for a pack
    broken: Sequence[str]  # files that cannot be read
    odd: Sequence[str] = ()  # the few images much smaller or larger than the others, with their shorter side

    @property
    def side(self) -> int:
        """The 10th percentile of the images' shorter sides, in pixels."""
        return int(np.percentile(self.sides, 10, method="lower"))

    def lines(self) -> list[str]:
        counts = sorted(self.classes.values())
        each = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
        low, high = min(self.sides), max(self.sides)
        split = "train/ and test/ as given" if self.own_split else "a fifth of each class is the test set"
        lines = [
            f"images   {self.train:,} to train and validate, {self.test:,} to test ({split})",
            f"classes  {len(counts):,}, of {each} training images each",
            f"size     {low} to {high} pixels (shorter side); nine in ten have at least {self.side}",
            f"color    {'gray' if self.channels == 1 else 'RGB'}",
        ]
        if self.odd:
            lines.append(f"odd      {len(self.odd)} much smaller or larger than the others, such as {self.odd[0]}")
        if self.broken:
            some = "; ".join(self.broken[:NAMED])
            files, them = ("1 file", "it") if len(self.broken) == 1 else (f"{len(self.broken)} files", "them")
            lines.append(f"broken   {files}, which `ablate run` refuses: remove {them}: {some}")
        return lines


def survey(path: Path) -> Survey:
    """Return the survey of a folder or a pack of images.

    Raises ValueError if `path` is neither, the pack is damaged, no image can be read, or a class is too small to split.
    """
    return survey_pack(path) if (path / MANIFEST).is_file() else survey_folder(path)


def survey_pack(path: Path) -> Survey:
    """Return the survey of a pack from its index, without decoding images."""
    known = manifest(path, path.name)
    labels = read_index(path, known)["label"][: known.train]
    counts = np.bincount(labels, minlength=len(known.classes)).tolist()
    classes = dict(zip(known.classes, counts, strict=True))
    refuse_small(path, classes, counts, own_split=True)
    return Survey(known.name, known.name, known.train, known.test, True, classes, known.channels, [known.size], [])


def survey_folder(path: Path) -> Survey:
    """Return the survey of a folder after decoding every image. Raises the errors of `survey`."""
    if path.is_file():
        raise ValueError(f"{path}: is a file: a folder of class folders is needed")
    listing = list_images(path)
    counts = np.bincount(listing.labels[listing.train], minlength=len(listing.classes)).tolist()
    classes = dict(zip(listing.classes, counts, strict=True))
    refuse_small(path, classes, np.bincount(listing.labels).tolist(), listing.own_split)
    with ThreadPoolExecutor() as pool:
        looked = dict(zip(listing.files, pool.map(shorter_side, listing.files), strict=True))
    broken = [f"{file.relative_to(path)}: {why}" for file, why in looked.items() if isinstance(why, str)]
    sides = {file: side for file, side in looked.items() if isinstance(side, int)}
    if not sides:
        raise ValueError(f"{path}: none of its {len(looked)} images can be read ({broken[0]})")
    with open_image(next(iter(sides))) as first:
        channels = 1 if is_gray(first) else 3  # the same rule as in vitcore.data.imagefolder
    folder = path.resolve()
    return Survey(
        data=f"imagefolder:{folder}",
        name=folder.name,
        train=len(listing.train),
        test=len(listing.test),
        own_split=listing.own_split,
        classes=classes,
        channels=channels,
        sides=list(sides.values()),
        broken=broken,
        odd=[f"{file.relative_to(path)} ({side} pixels)" for file, side in outliers(sides).items()],
    )


def outliers(sides: dict[Path, int]) -> dict[Path, int]:
    """Return the images whose shorter side is below half or above twice the median.

    sides: file -> shorter side in pixels. Returns {} if these images are over 2% of all.
    """
    median = float(np.median(list(sides.values())))
    found = {file: side for file, side in sides.items() if not median / 2 <= side <= 2 * median}
    return found if len(found) <= FEW * len(sides) else {}


def refuse_small(path: Path, classes: dict[str, int], in_all: Sequence[int], own_split: bool) -> None:
    """Raise a ValueError that names the classes with too few images, if there are any.

    classes: class -> training images. in_all: training and test images in each class. own_split: as in `Survey`.
    """
    counts: Sequence[int] = [*classes.values()] if own_split else in_all
    pairs = zip(classes.items(), counts, strict=True)
    small = [f"{name} ({count})" for (name, train), count in pairs if train < SMALLEST_CLASS]
    if small:
        more = f" and {len(small) - NAMED} more" if len(small) > NAMED else ""
        whole = f"{SMALLEST_CLASS + 1} images in all, one of them to test on"
        raise ValueError(
            f"{path}: too few images in {len(small)} of {len(classes)} classes: {', '.join(small[:NAMED])}{more}; "
            f"each needs {f'{SMALLEST_CLASS} in train/' if own_split else whole}"
        )


def shorter_side(file: Path) -> int | str:
    """Return the shorter side of an image in pixels, or the reason why it cannot be decoded."""
    try:
        with open_image(file) as image:
            eight_bits(image).load()
            return min(image.size)
    except Exception as error:  # whatever Pillow's many decoders raise
        return str(error)
