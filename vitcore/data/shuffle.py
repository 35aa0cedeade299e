"""Random orders and draws as pure functions of a key, the same on every machine and in every version.

NumPy promises that seed sequences and the raw output of PCG64 never change; it promises nothing of its
`permutation`.
"""

import hashlib
from typing import Any

import numpy as np

Indices = np.ndarray[Any, np.dtype[np.int64]]


def order(n: int, *key: object) -> Indices:
    """A random order of 0 .. n - 1."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    seeds = np.random.SeedSequence(int.from_bytes(digest[:16], "big"))
    return np.argsort(np.random.PCG64(seeds).random_raw(n), kind="stable")


def by_class(labels: Indices, places: Indices, *key: object) -> list[Indices]:
    """`places` of each class in a random order of its own; `labels` are those of all images."""
    own = labels[places]
    sorted_places = places[np.argsort(own, kind="stable")]
    groups = np.split(sorted_places, np.unique(np.sort(own), return_index=True)[1][1:])
    return [group[order(len(group), *key, label)] for label, group in enumerate(groups)]


def stratified(labels: Indices, places: Indices, share: float, *key: object) -> tuple[Indices, Indices]:
    """The first `share` of each class, in a random order, and the rest. A larger share contains a smaller one.

    At least one image of each class is in the first part, and one in the rest where the class has two.
    """
    groups = by_class(labels, places, *key)
    cuts = [max(1, round(share * len(group))) for group in groups]
    cuts = [min(cut, max(1, len(group) - 1)) for cut, group in zip(cuts, groups, strict=True)]
    first = [group[:cut] for cut, group in zip(cuts, groups, strict=True)]
    rest = [group[cut:] for cut, group in zip(cuts, groups, strict=True)]
    return np.concatenate(first), np.concatenate(rest)


def folds(labels: Indices, count: int, *key: object) -> list[Indices]:
    """All images in `count` stratified folds: sizes, those of each class too, differ by at most one."""
    dealt = np.concatenate(by_class(labels, np.arange(len(labels)), *key))
    return [np.sort(dealt[fold::count]) for fold in range(count)]


def generator(*key: object) -> np.random.RandomState:
    """Draws from distributions. It is NumPy's legacy generator: its streams, and its alone, are promised for ever."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, np.uint32))
