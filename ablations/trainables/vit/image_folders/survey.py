"""The survey of a folder or a pack of images, from which a recipe is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ablations.trainables.vit.image_folders import findings
from commonfloor.messages import listed, printable, reason
from vitcore.data.decode import Facts, eight_bits
from vitcore.data.formats import FORMATS
from vitcore.data.imagefolder import in_threads, list_images, read_facts, stored_file
from vitcore.data.lookup import FOLDER, find_pack
from vitcore.data.pack import MANIFEST, Pack, manifest, read_index
from vitcore.data.shuffle import Indices

SMALLEST_CLASS = 2  # minimum images per class to train and validate on
NAMED = 5
DECODED = 20_000  # most images of a folder of which all are decoded; of more, only those that `facts` decodes


@dataclass(frozen=True)
class Survey:
    data: str  # the value of `data` in a config
    name: str
    train: int
    test: int
    split: str  # how the test images are chosen
    classes: dict[str, int]  # class -> number of training and validation images
    channels: int
    sides: Sequence[int]  # the shorter side of every readable image, in pixels; one value for a pack
    broken: Sequence[str]  # files that cannot be read
    notes: Sequence[str] = ()  # further lines, each on one property of the images that their owner should know

    @property
    def side(self) -> int:
        """The 10th percentile of the images' shorter sides, in pixels."""
        return int(np.percentile(self.sides, 10, method="lower"))

    def is_found_by_name(self) -> bool:
        return self.data.startswith(FOLDER) or find_pack(self.data) is not None

    def lines(self) -> list[str]:
        counts = sorted(self.classes.values())
        each = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
        low = min(self.sides)
        high = max(self.sides)
        lines = [
            f"images   {self.train:,} to train and validate, {self.test:,} to test ({self.split})",
            f"classes  {len(counts):,}, of {each} training images each",
            f"size     {low} to {high} pixels (shorter side); nine in ten have at least {self.side}",
            f"color    {'gray' if self.channels == 1 else 'RGB'}",
        ]
        lines += self.notes
        if self.broken:
            some = "; ".join(self.broken[:NAMED])
            files, them = ("1 file", "it") if len(self.broken) == 1 else (f"{len(self.broken)} files", "them")
            lines.append(f"broken   {files}, which `ablate run` refuses: remove {them}: {some}")
        return [printable(line) for line in lines]


def survey(path: Path) -> Survey:
    """Return the survey of a folder or a pack of images.

    Raises ValueError if `path` is neither, the pack is damaged, no image can be read, or a class is too small to split.
    """
    if (path / MANIFEST).is_file():
        return survey_pack(path)
    try:
        return survey_folder(path)
    except ValueError as error:
        if str(path).startswith(FORMATS) or any(path.rglob("*.parquet")):
            advice = "`ablate data pack NAME SOURCE` packs such files, and `ablate init` takes the pack's folder"
            raise ValueError(f"{path}: is no folder of images: {advice}") from error
        raise


def survey_pack(path: Path) -> Survey:
    """Return the survey of a pack from its index. Decodes only images whose checksums are equal."""
    pack = manifest(path, path.name)
    records = read_index(path, pack)
    labels = records["label"].astype(np.int64)
    train = class_counts(labels[: pack.train], pack.classes)
    test = class_counts(labels[pack.train :], pack.classes)
    classes = dict(zip(pack.classes, train, strict=True))
    refuse_small(path, classes, train, own_split=True)
    groups = findings.equal_images(records, partial(Pack, path, pack))
    places = np.arange(pack.train, pack.images)
    notes = [
        *findings.class_notes(pack.classes, train, test),
        *findings.duplicate_notes(groups, "image {}".format, labels, places),
    ]
    return Survey(
        data=pack.name,
        name=pack.name,
        train=pack.train,
        test=pack.test,
        split="as packed",
        classes=classes,
        channels=pack.channels,
        sides=[pack.size],
        broken=[],
        notes=notes,
    )


def survey_folder(path: Path) -> Survey:
    if path.is_file():
        raise ValueError(f"{path}: is a file: a folder of class folders is needed")
    listing = list_images(path)
    train, test = (class_counts(listing.labels[part], listing.classes) for part in (listing.train, listing.test))
    classes = dict(zip(listing.classes, train, strict=True))
    refuse_small(path, classes, np.add(train, test).tolist(), bool(listing.parts))
    names = [str(file.relative_to(path)) for file in listing.files]
    decode = len(names) <= DECODED
    images: dict[str, Facts] = {}
    broken: list[str] = []
    contents: dict[int, bytes] = {}  # index of a readable image -> its sha256
    for index, (sha256, facts) in enumerate(in_threads(partial(inspect, decode=decode), listing.files)):
        if isinstance(facts, Facts):
            images[names[index]] = facts
            contents[index] = sha256
        else:
            broken.append(f"{names[index]}: {facts}")
    if not images:
        raise ValueError(f"{path}: none of its {len(names)} images can be read ({broken[0]})")
    folder = path.resolve()
    return Survey(
        data=f"imagefolder:{folder}",
        name=folder.name,
        train=len(listing.train),
        test=len(listing.test),
        split=" and ".join(f"{part}/" for part in listing.parts) or "a fifth of each class is the test set",
        classes=classes,
        channels=1 if all(image.gray for image in images.values()) else 3,
        sides=[min(image.size) for image in images.values()],
        broken=broken,
        notes=[
            *findings.image_notes(images),
            *findings.class_notes(listing.classes, train, test),
            *findings.duplicate_notes(findings.equal_groups(contents), names.__getitem__, listing.labels, listing.test),
            *findings.left_out_notes(path, listing),
        ],
    )


def class_counts(labels: Indices, classes: Sequence[str]) -> list[int]:
    counts: list[int] = np.bincount(labels, minlength=len(classes)).tolist()
    return counts


def inspect(file: Path, decode: bool) -> tuple[bytes, Facts | str]:
    """Return the result of `read_facts`. decode: whether an image that cannot be decoded is broken too."""
    image = stored_file(file, file.name)
    sha256, facts = read_facts(image)
    if decode and isinstance(facts, Facts):
        try:
            eight_bits(image.open()).load()
        except Exception as error:  # whatever Pillow's many decoders raise
            return sha256, reason(error)
    return sha256, facts


def refuse_small(path: Path, classes: dict[str, int], in_all: Sequence[int], own_split: bool) -> None:
    """Raise a ValueError that names the classes with too few images, if there are any.

    classes: class -> training images. in_all: training and test images in each class.
    own_split: whether the test images have a folder of their own.
    """
    counts: Sequence[int] = [*classes.values()] if own_split else in_all
    pairs = zip(classes.items(), counts, strict=True)
    small = [f"{name} ({count})" for (name, train), count in pairs if train < SMALLEST_CLASS]
    if small:
        whole = f"{SMALLEST_CLASS + 1} images in all, one of them to test on"
        raise ValueError(
            f"{path}: too few images in {len(small)} of {len(classes)} classes: {listed(small, NAMED)}; "
            f"each needs {f'{SMALLEST_CLASS} in train/' if own_split else whole}"
        )
