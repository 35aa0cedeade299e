"""Reader of CIFAR's pickled batches (Krizhevsky 2009) that builds only arrays and builtin containers."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitcore.data.files import read_regular

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR10

    from vitcore.data.datasets import Bytes

    Part = tuple[Bytes, list[int]]

LARGEST = 1 << 28  # bytes of a file; the published ones have at most 154 million
ALLOWED = {  # the names in a pickled array
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),  # of NumPy 2
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


class ArrayUnpickler(pickle.Unpickler):
    """Unpickler of arrays and builtin containers, which raises UnpicklingError before importing anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"holds {module}.{name}, which is no part of an array")
        return super().find_class(module, name)


def read(kind: type[CIFAR10], home: Path) -> tuple[Part, Part]:
    """Return the training images (M, 3, 32, 32) and labels, then the test images and labels.

    kind: torchvision's class, which names the files and their md5 sums. home: the folder that contains their folder.
    Raises OSError if a file cannot be read, ValueError if it is damaged.
    """
    return read_batches(kind.train_list, home / kind.base_folder), read_batches(kind.test_list, home / kind.base_folder)


def read_batches(files: Iterable[Sequence[str]], folder: Path) -> Part:
    batches = [read_batch(folder / name, md5) for name, md5 in files]
    return np.concatenate([pixels for pixels, _ in batches]), [label for _, labels in batches for label in labels]


def read_batch(path: Path, md5: str) -> Part:
    """Return the images (m, 3, 32, 32) and labels of one file.

    Raises OSError if it cannot be read, ValueError if it has another md5 sum or holds anything but arrays and builtin
    containers.
    """
    content = read_regular(path, LARGEST)
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise ValueError(f"{path}: damaged (its md5 sum is not {md5})")
    try:
        batch = ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path}: {error}") from None
    return batch["data"].reshape(-1, 3, 32, 32), batch["labels" if "labels" in batch else "fine_labels"]
