"""Finding images that a data set holds more than once, by their content."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from ablations.trainables.vit.image_folders.findings import example
from vitcore.data.pack import Pack, Records
from vitcore.data.shuffle import Indices

Group = list[int]  # indices of equal images


def equal(contents: Mapping[int, bytes]) -> list[Group]:
    """Return the groups of images with equal content. contents: index of an image -> its content or a hash of it."""
    groups: defaultdict[bytes, Group] = defaultdict(list)
    for index, content in contents.items():
        groups[content].append(index)
    return [group for group in groups.values() if len(group) > 1]


def equal_images(records: Records, open_pack: Callable[[], Pack]) -> list[Group]:
    """Return the groups of equal images of a pack. Reads only images whose checksums and sizes are equal.

    records (M,): the pack's index. Raises the errors of `open_pack` and `Pack.read`.
    """
    checksums = {index: record.tobytes() for index, record in enumerate(records[["crc", "size"]])}
    groups: list[Group] = []
    for alike in equal(checksums):
        pack = open_pack()
        images = np.empty((len(alike), *pack.shape), np.uint8)
        pack.read(np.array(alike), images)
        groups += equal({index: image.tobytes() for index, image in zip(alike, images, strict=True)})
    return groups


def notes(groups: Iterable[Group], names: Callable[[int], str], labels: Indices, test: Indices) -> Iterator[str]:
    """Yield a line on equal images in the training and the test set, in one of them, and in two classes.

    names: index of an image -> its name. labels (M,). test: indices of the test images.
    """
    tested = set(test.tolist())
    leaks, copies, contradictions = [], [], []
    for group in groups:
        trained = [index for index in group if index not in tested]
        in_test = [index for index in group if index in tested]
        if trained:
            leaks += [(index, trained[0]) for index in in_test]
        for part in (trained, in_test):
            copies += [(index, part[0]) for index in part[1:]]
        others = [index for index in group if labels[index] != labels[group[0]]]
        contradictions += [(index, group[0]) for index in others[:1]]

    def pairs(found: list[tuple[int, int]]) -> list[str]:
        return [f"{names(one)} = {names(other)}" for one, other in found]

    yield from example("leak", pairs(leaks), "also in the training set", ": accuracies are too high", "test image")
    yield from example("twice", pairs(copies), "stored again in the same set")
    yield from example("labels", pairs(contradictions), "in more than one class")
