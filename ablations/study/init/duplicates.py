"""Finding images that a data set holds more than once, by their content."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from results.units import amount_text
from vitcore.data.decode import read_end
from vitcore.data.files import open_regular
from vitcore.data.imagefolder import in_threads
from vitcore.data.pack import Pack, Records
from vitcore.data.shuffle import Indices

END = 4096  # bytes at the end of a file that tell most files of one size apart

Group = list[int]  # indices of equal images


def equal_files(files: Sequence[Path]) -> list[Group]:
    """Return the groups of files with equal content. Reads whole files only if their sizes and ends are equal."""
    groups = [list(range(len(files)))]
    keys: tuple[Callable[[Path], Hashable], ...] = (file_size, file_end, file_sha256)
    for key in keys:
        places = [place for group in groups for place in group]
        values = dict(zip(places, in_threads(key, [files[place] for place in places]), strict=True))
        groups = [part for group in groups for part in divided(group, values)]
    return groups


def file_size(file: Path) -> int:
    return file.stat().st_size


def file_end(file: Path) -> bytes:
    with open_regular(file) as stream:
        return read_end(stream, END)


def file_sha256(file: Path) -> bytes:
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def divided(group: Group, values: dict[int, Hashable]) -> list[Group]:
    """Return the parts of a group whose members have equal values, without parts of one member."""
    parts: defaultdict[Hashable, Group] = defaultdict(list)
    for place in group:
        parts[values[place]].append(place)
    return [part for part in parts.values() if len(part) > 1]


def equal_images(records: Records, open_pack: Callable[[], Pack]) -> list[Group]:
    """Return the groups of equal images of a pack. Reads only images whose checksums and sizes are equal.

    records (M,): the pack's index. Raises the errors of `open_pack` and `Pack.read`.
    """
    _, first, counts = np.unique(records[["crc", "size"]], return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(counts[first] > 1).tolist()
    groups = divided(candidates, {place: int(first[place]) for place in candidates})
    return [part for group in groups for part in divided(group, image_contents(group, open_pack()))]


def image_contents(group: Group, pack: Pack) -> dict[int, Hashable]:
    images = np.empty((len(group), *pack.shape), np.uint8)
    pack.read(np.array(group), images)
    return {place: image.tobytes() for place, image in zip(group, images, strict=True)}


def notes(groups: Iterable[Group], names: Callable[[int], str], labels: Indices, test: Indices) -> Iterator[str]:
    """Yield a line on equal images in the training and the test set, in one of them, and in two classes.

    names: index of an image -> its name. labels (M,). test: indices of the test images.
    """
    tested = set(test.tolist())
    leaks, copies, contradictions = [], [], []
    for group in groups:
        parts = [[place for place in group if (place in tested) == is_test] for is_test in (False, True)]
        if all(parts):
            leaks += [(place, parts[0][0]) for place in parts[1]]
        for part in parts:
            copies += [(place, part[0]) for place in part[1:]]
        others = [place for place in group if labels[place] != labels[group[0]]]
        contradictions += [(place, group[0]) for place in others[:1]]
    for word, pairs, noun, said, why in (
        ("leak", leaks, "test image", "also in the training set", ": accuracies are too high"),
        ("twice", copies, "image", "stored again in the same set", ""),
        ("labels", contradictions, "image", "in more than one class", ""),
    ):
        if pairs:
            one, other = map(names, pairs[0])
            yield f"{word:8} {amount_text(len(pairs), noun)} {said}, such as {one} = {other}{why}"
