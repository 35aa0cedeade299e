"""What a survey of images reports: classes, shapes, duplicates, and what a data set leaves out."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from commonfloor.files import open_regular
from results.units import amount_text
from vitcore.data.decode import SUFFIXES, Facts, open_stream
from vitcore.data.imagefolder import TESTS, TRAIN, Listing, folder_names, in_threads, is_hidden, visible_files
from vitcore.data.pack import Pack, Records
from vitcore.data.shuffle import Indices

LEAST_CUT = 0.1  # share of the median image outside the middle square from which on it is reported
LEAST_RATIO = 3  # of the largest and the smallest class
MOST_OUTLIERS = 0.02  # largest fraction of the images that can be outliers
FEW_TESTS = 10  # test images of a class


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


Group = list[int]  # indices of equal images


def equal_groups(contents: Mapping[int, bytes]) -> list[Group]:
    """Return the groups of images with equal content. contents: index of an image -> its content or a hash of it."""
    groups: defaultdict[bytes, Group] = defaultdict(list)
    for index, content in contents.items():
        groups[content].append(index)
    return [group for group in groups.values() if len(group) > 1]


def equal_images(records: Records, open_pack: Callable[[], Pack]) -> list[Group]:
    """Return the groups of equal images of a pack. Reads only images whose checksums and sizes are equal.

    records (M,): the pack's index.
    """
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
    """Yield a line on equal images in the training and the test set, in one of them, and in two classes.

    names: index of an image -> its name. labels (M,). test: indices of the test images.
    """
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


BRANDS = {b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC", b"msf1": "HEIC", b"avif": "AVIF", b"avis": "AVIF"}
STARTS = {b"\0\0\0\x0cJXL ": "JPEG XL", b"\xff\x0a": "JPEG XL", b"\0\0\0\x0cjP  ": "JPEG 2000"}
UNSUPPORTED = frozenset({*BRANDS.values(), *STARTS.values()})


def left_out_notes(root: Path, listing: Listing[Path]) -> Iterator[str]:
    parts = [root / part for part in listing.parts] or [root]
    yield from folder_notes(root, listing)
    odd: list[Path] = []
    for part in parts:
        odd += itertools.filterfalse(has_suffix, files_of_classes(part, listing, root))
    supported: list[str] = []
    unsupported: list[str] = []
    for file, kind in zip(odd, in_threads(image_kind, odd), strict=True):
        described = f"{file.relative_to(root)} ({kind})"
        if kind in UNSUPPORTED:
            unsupported.append(described)
        elif kind:
            supported.append(described)
    stray: list[Path] = []
    for folder in dict.fromkeys((root, *parts)):
        stray += stray_images(folder)
    yield from example("skipped", supported, "left out because of the ending", ": rename or convert them")
    yield from example("unread", unsupported, "left out because of the format", ": convert them")
    yield from example("stray", [str(file.relative_to(root)) for file in stray], "left out, in no class folder")


def folder_notes(root: Path, listing: Listing[Path]) -> Iterator[str]:
    names = folder_names(root)
    others = [name for name in names if name not in listing.parts]
    if listing.parts and others:
        yield f"ignored  {'/, '.join(others)}/: only {'/ and '.join(listing.parts)}/ are read"
    named = [name for name in listing.classes if name.casefold() in (*TRAIN, *TESTS)]
    if named and not listing.parts:
        yield f"names    '{named[0]}' is taken for a class, as there is no train/"


def files_of_classes(part: Path, listing: Listing[Path], root: Path) -> Iterator[Path]:
    for name in listing.classes:
        yield from visible_files(part / name, root)


def stray_images(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        if not is_hidden(file.name) and file.is_file() and (has_suffix(file) or image_kind(file)):
            yield file


def has_suffix(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES


def image_kind(file: Path) -> str:
    """Return the format of an image file by its content, or "" if the format is unknown."""
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
