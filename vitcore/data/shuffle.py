"""Random orders and draws as pure functions of a key, the same on every machine and in every version.

NumPy guarantees seed sequences, the raw output of PCG64 and the streams of the legacy RandomState. It does not
guarantee a Generator's methods, such as `permutation`.
"""

import hashlib
from typing import Any

import numpy as np

Indices = np.ndarray[Any, np.dtype[np.int64]]


def order(n: int, *key: object) -> Indices:
    """Return a random order of 0 .. n - 1."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    seeds = np.random.SeedSequence(int.from_bytes(digest[:16], "big"))
    return np.argsort(np.random.PCG64(seeds).random_raw(n), kind="stable")


def by_class(labels: Indices, places: Indices, *key: object) -> list[Indices]:
    """Return the places of each class, each list in random order. labels: those of all images."""
    own = labels[places]
    sorted_places = places[np.argsort(own, kind="stable")]
    groups = np.split(sorted_places, np.unique(np.sort(own), return_index=True)[1][1:])
    return [group[order(len(group), *key, label)] for label, group in enumerate(groups)]


def stratified(labels: Indices, places: Indices, share: float, *key: object) -> tuple[Indices, Indices]:
    """Split into the first `share` of each class in a random order, and the rest. Larger shares contain smaller.

    The first part has at least one image per class; the rest too, if the class has two.
    """
    groups = by_class(labels, places, *key)
    cuts = [max(1, round(share * len(group))) for group in groups]
    cuts = [min(cut, max(1, len(group) - 1)) for cut, group in zip(cuts, groups, strict=True)]
    first = [group[:cut] for cut, group in zip(cuts, groups, strict=True)]
    rest = [group[cut:] for cut, group in zip(cuts, groups, strict=True)]
    return np.concatenate(first), np.concatenate(rest)


def folds(labels: Indices, count: int, *key: object) -> list[Indices]:
    """Deal all images into `count` stratified folds. Their sizes, also within a class, differ by at most one."""
    dealt = np.concatenate(by_class(labels, np.arange(len(labels)), *key))
    return [np.sort(dealt[fold::count]) for fold in range(count)]


def generator(*key: object) -> np.random.RandomState:
    """Return NumPy's legacy RandomState seeded by `key`; its streams never change."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, np.uint32))
