"""The survey of a folder or a pack of images, from which a recipe is written.

It reports classes, shapes, duplicates, and what a data set leaves out.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from commonfloor.files import open_regular
from commonfloor.messages import listed, printable, reason
from results.units import amount_text
from vitcore.data.decode import SUFFIXES, Facts, eight_bits, open_stream
from vitcore.data.formats import FORMATS
from vitcore.data.imagefolder import (
    TESTS,
    TRAIN,
    Listing,
    StoredImage,
    folder_names,
    in_threads,
    is_hidden,
    list_images,
    read_facts,
    visible_files,
)
from vitcore.data.lookup import FOLDER
from vitcore.data.pack import MANIFEST, Pack, Records, find_pack, manifest, read_index
from vitcore.data.shuffle import Indices

SMALLEST_CLASS = 2  # minimum images per class to train and validate on
NAMED = 5
DECODED = 20_000  # most images of a folder of which all are decoded; of more, only those that `facts` decodes
LEAST_CUT = 0.1  # share of the median image outside the middle square from which on it is reported
LEAST_RATIO = 3  # of the largest and the smallest class
MOST_OUTLIERS = 0.02  # largest fraction of the images that can be outliers
FEW_TESTS = 10  # test images of a class
BRANDS = {b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC", b"msf1": "HEIC", b"avif": "AVIF", b"avis": "AVIF"}
STARTS = {b"\0\0\0\x0cJXL ": "JPEG XL", b"\xff\x0a": "JPEG XL", b"\0\0\0\x0cjP  ": "JPEG 2000"}
UNSUPPORTED = frozenset({*BRANDS.values(), *STARTS.values()})
Group = list[int]  # indices of equal images


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
        return list(map(printable, lines))


def survey(path: Path) -> Survey:
    """Return the survey of a folder or a pack of images. Raises ValueError if it is damaged, empty or too small."""
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
    pack = manifest(path, path.name)
    records = read_index(path, pack)
    labels = records["label"].astype(np.int64)
    train = class_counts(labels[: pack.train], pack.classes)
    test = class_counts(labels[pack.train :], pack.classes)
    classes = dict(zip(pack.classes, train, strict=True))
    refuse_small(path, classes, train, own_split=True)
    groups = equal_images(records, partial(Pack, path, pack))
    places = np.arange(pack.train, pack.images)
    notes = [
        *class_notes(pack.classes, train, test),
        *duplicate_notes(groups, "image {}".format, labels, places),
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
    train = class_counts(listing.labels[listing.train], listing.classes)
    test = class_counts(listing.labels[listing.test], listing.classes)
    classes = dict(zip(listing.classes, train, strict=True))
    refuse_small(path, classes, np.add(train, test).tolist(), bool(listing.parts))
    names = [image.name for image in listing.files]
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
            *image_notes(images),
            *class_notes(listing.classes, train, test),
            *duplicate_notes(equal_groups(contents), names.__getitem__, listing.labels, listing.test),
            *left_out_notes(path, listing),
        ],
    )


def class_counts(labels: Indices, classes: Sequence[str]) -> list[int]:
    counts: list[int] = np.bincount(labels, minlength=len(classes)).tolist()
    return counts


def inspect(image: StoredImage, decode: bool) -> tuple[bytes, Facts | str]:
    """Return the result of `read_facts`. decode: whether an image that cannot be decoded is broken too."""
    sha256, facts = read_facts(image)
    if decode and isinstance(facts, Facts):
        try:
            eight_bits(image.open()).load()
        except Exception as error:  # whatever Pillow's many decoders raise
            return sha256, reason(error)
    return sha256, facts


def refuse_small(path: Path, classes: dict[str, int], in_all: Sequence[int], own_split: bool) -> None:
    """Raise a ValueError that names the classes with too few images. own_split: whether test images have a folder."""
    counts: Sequence[int] = [*classes.values()] if own_split else in_all
    pairs = zip(classes.items(), counts, strict=True)
    small = [f"{name} ({count})" for (name, train), count in pairs if train < SMALLEST_CLASS]
    if small:
        whole = f"{SMALLEST_CLASS + 1} images in all, one of them to test on"
        raise ValueError(
            f"{path}: too few images in {len(small)} of {len(classes)} classes: {listed(small, NAMED)}; "
            f"each needs {f'{SMALLEST_CLASS} in train/' if own_split else whole}"
        )


def example(word: str, names: Sequence[str], said: str, then: str = "", noun: str = "image") -> list[str]:
    """Return a line on the number of some images, with the first as an example, or [] if there are none."""
    if not names:
        return []
    return [f"{word:8} {amount_text(len(names), noun)} {said}, such as {names[0]}{then}"]


def image_notes(images: Mapping[str, Facts]) -> Iterator[str]:
    gray = [name for name, image in images.items() if image.gray]
    turned = [name for name, image in images.items() if image.orientation != 1]
    alpha = [name for name, image in images.items() if image.alpha]
    if len(gray) < len(images):
        yield from example("mixed", gray, f"of {len(images):,} in gray", ": gray becomes RGB")
    yield from example("turned", turned, "with an EXIF orientation", ": turned upright")
    yield from example("alpha", alpha, "with an alpha channel", ": transparent pixels become white")
    yield from shape_notes(images)
    yield from example("odd", outliers(images), "much smaller or larger than the others")


def outliers(images: Mapping[str, Facts]) -> list[str]:
    """Return the images whose shorter side is below half or above twice the median, or [] if they are over 2%."""
    sides = {name: min(image.size) for name, image in images.items()}
    median = float(np.median(list(sides.values())))
    outside = [f"{name} ({side} pixels)" for name, side in sides.items() if not median / 2 <= side <= 2 * median]
    if len(outside) > MOST_OUTLIERS * len(sides):
        return []
    return outside


def shape_notes(images: Mapping[str, Facts]) -> Iterator[str]:
    cuts = {name: 1 - min(image.size) / max(image.size) for name, image in images.items()}
    median = float(np.median(list(cuts.values())))
    halved = [name for name, cut in cuts.items() if cut > 0.5]
    if median < LEAST_CUT and not halved:
        return
    line = f"shape    the middle square leaves out {median:.0%} of the median image"
    if halved:
        width, height = images[halved[0]].size
        more = f"more than half of {amount_text(len(halved), 'image')}"
        line += f", and {more}, such as {halved[0]} ({width} x {height} pixels)"
    yield line


def class_notes(classes: Sequence[str], train: Sequence[int], test: Sequence[int]) -> Iterator[str]:
    large, small = int(np.argmax(train)), int(np.argmin(train))
    answer = f"'{classes[large]}', the largest class,"
    if train[large] == train[small]:
        answer = "one class"
    yield f"chance   always answering {answer} is right on {test[large] / sum(test):.1%} of the test images"
    ratio = train[large] / train[small]
    if ratio >= LEAST_RATIO:
        yield (
            f"balance  '{classes[large]}' has {ratio:,.0f} times as many training images as '{classes[small]}': "
            "accuracy mostly reflects the large classes"
        )
    few = [place for place, count in enumerate(test) if count < FEW_TESTS]
    if few:
        least = min(few, key=lambda place: test[place])
        have = "class has" if len(few) == 1 else "classes have"
        yield (
            f"tests    {len(few):,} {have} fewer than {FEW_TESTS} test images, such as '{classes[least]}' with "
            f"{test[least]}: accuracy on them is coarse"
        )


def equal_groups(contents: Mapping[int, bytes]) -> list[Group]:
    """Return the groups of images with equal content. contents: index of an image -> its content or a hash of it."""
    groups: defaultdict[bytes, Group] = defaultdict(list)
    for index, content in contents.items():
        groups[content].append(index)
    return [group for group in groups.values() if len(group) > 1]


def equal_images(records: Records, open_pack: Callable[[], Pack]) -> list[Group]:
    """Return the groups of equal images of a pack. Reads only images whose checksums and sizes are equal."""
    checksums = {index: record.tobytes() for index, record in enumerate(records[["crc", "size"]])}
    groups: list[Group] = []
    for candidates in equal_groups(checksums):
        pack = open_pack()
        images = np.empty((len(candidates), *pack.shape), np.uint8)
        pack.read(np.array(candidates), images)
        groups += equal_groups({index: image.tobytes() for index, image in zip(candidates, images, strict=True)})
    return groups


def duplicate_notes(
    groups: Iterable[Group], names: Callable[[int], str], labels: Indices, test: Indices
) -> Iterator[str]:
    """Yield a line on equal images in the training and the test set, in one of them, and in two classes."""
    tested = set(test.tolist())
    leaks: list[tuple[int, int]] = []
    copies: list[tuple[int, int]] = []
    contradictions: list[tuple[int, int]] = []
    for group in groups:
        trained = [index for index in group if index not in tested]
        in_test = [index for index in group if index in tested]
        leaks += itertools.product(in_test, trained[:1])
        for part in (trained, in_test):
            copies += itertools.product(part[1:], part[:1])
        for index in group:
            if labels[index] != labels[group[0]]:
                contradictions.append((index, group[0]))
                break

    def pairs(equal_pairs: list[tuple[int, int]]) -> list[str]:
        return [f"{names(first)} = {names(second)}" for first, second in equal_pairs]

    yield from example("leak", pairs(leaks), "also in the training set", ": accuracies are too high", "test image")
    yield from example("twice", pairs(copies), "stored again in the same set")
    yield from example("labels", pairs(contradictions), "in more than one class")


def left_out_notes(root: Path, listing: Listing) -> Iterator[str]:
    parts = [root / part for part in listing.parts] or [root]
    yield from folder_notes(root, listing)
    odd: list[Path] = []
    for part, name in itertools.product(parts, listing.classes):
        odd += itertools.filterfalse(has_suffix, visible_files(part / name, root))
    supported: list[str] = []
    unsupported: list[str] = []
    for file, kind in zip(odd, in_threads(image_kind, odd), strict=True):
        described = f"{file.relative_to(root)} ({kind})"
        if kind in UNSUPPORTED:
            unsupported.append(described)
        elif kind:
            supported.append(described)
    stray: list[str] = []
    for folder in dict.fromkeys((root, *parts)):
        for file in sorted(folder.iterdir()):
            if not is_hidden(file.name) and file.is_file() and (has_suffix(file) or image_kind(file)):
                stray.append(str(file.relative_to(root)))
    yield from example("skipped", supported, "left out because of the ending", ": rename or convert them")
    yield from example("unread", unsupported, "left out because of the format", ": convert them")
    yield from example("stray", stray, "left out, in no class folder")


def folder_notes(root: Path, listing: Listing) -> Iterator[str]:
    names = folder_names(root)
    others = [name for name in names if name not in listing.parts]
    if listing.parts and others:
        yield f"ignored  {'/, '.join(others)}/: only {'/ and '.join(listing.parts)}/ are read"
    named = [name for name in listing.classes if name.casefold() in (*TRAIN, *TESTS)]
    if named and not listing.parts:
        yield f"names    '{named[0]}' is taken for a class, as there is no train/"


def has_suffix(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES


def image_kind(file: Path) -> str:
    try:
        with open_regular(file) as stream:
            start = stream.read(12)
            stream.seek(0)
            with open_stream(stream) as image:
                return image.format or ""
    except OSError:
        return ""
    except ValueError:  # of no format that is read
        if start[4:8] == b"ftyp":
            return BRANDS.get(start[8:], "")
        for mark, kind in STARTS.items():
            if start.startswith(mark):
                return kind
        return ""
