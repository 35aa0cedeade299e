"""Random orders and draws that depend only on a key, not on the machine or the version of NumPy.

NumPy never changes seed sequences, the raw output of PCG64 or the streams of the legacy RandomState. It may change
methods of Generator such as `permutation`.
"""

import hashlib
from typing import Any

import numpy as np

Indices = np.ndarray[Any, np.dtype[np.int64]]


def random_order(n: int, *key: object) -> Indices:
    """Return the numbers from 0 to n - 1 in a random order (n,) that `key` determines."""
    seeds = np.random.SeedSequence(int.from_bytes(digest(key)[:16], "big"))
    return np.argsort(np.random.PCG64(seeds).random_raw(n), kind="stable")


def class_indices(labels: Indices, places: Indices, *key: object) -> list[Indices]:
    """Split the indices `places` into one shuffled array per class. labels (M,): labels of all images."""
    chosen_labels = labels[places]
    sorted_places = places[np.argsort(chosen_labels, kind="stable")]
    groups = np.split(sorted_places, np.unique(np.sort(chosen_labels), return_index=True)[1][1:])
    return [group[random_order(len(group), *key, label)] for label, group in enumerate(groups)]


def stratified_split(labels: Indices, places: Indices, share: float, *key: object) -> tuple[Indices, Indices]:
    """Split the indices `places` into a random fraction `share` of each class, at least one image, and the rest.

    labels (M,): labels of all images. A larger fraction contains every smaller one. The rest has an image of each class
    with two or more.
    """
    first = []
    rest = []
    for group in class_indices(labels, places, *key):
        cut = min(max(1, round(share * len(group))), max(1, len(group) - 1))
        first.append(group[:cut])
        rest.append(group[cut:])
    return np.concatenate(first), np.concatenate(rest)


def folds(labels: Indices, count: int, *key: object) -> list[Indices]:
    """Return the indices in each of `count` stratified folds. Sizes differ by at most one, overall and per class."""
    dealt = np.concatenate(class_indices(labels, np.arange(len(labels)), *key))
    return [np.sort(dealt[fold::count]) for fold in range(count)]


def generator(*key: object) -> np.random.RandomState:
    """Return NumPy's legacy RandomState, seeded by `key`. Its streams are equal in every version of NumPy."""
    return np.random.RandomState(np.frombuffer(digest(key), np.uint32))


def digest(key: tuple[object, ...]) -> bytes:
    return hashlib.sha256("/".join(map(str, key)).encode()).digest()
