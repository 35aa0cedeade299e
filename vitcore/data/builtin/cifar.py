"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), read without torchvision, which would unpickle any object."""

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from vitcore.data.builtin.base import Downloaded, Part
from vitcore.data.files import read_regular

LARGEST_BATCH = 1 << 28  # bytes in a file; the published files have at most 154 million
ALLOWED = {  # the globals that a pickled array refers to
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),  # in NumPy 2
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}
Channels = tuple[float, float, float]


class Cifar(Downloaded):
    """CIFAR-10 or CIFAR-100, chosen by `classes`: 50,000 training and 10,000 test images (M, 3, 32, 32)."""

    def __init__(self, classes: int, md5: str, mean: Channels, std: Channels) -> None:
        super().__init__(f"cifar{classes}", f"cifar-{classes}-python.tar.gz", 32, classes, 50_000, md5, mean, std)

    @property
    def kind(self) -> Any:
        """The dataset's class in torchvision, which holds the names and md5 sums of the files."""
        import torchvision.datasets  # late: takes seconds to import

        return getattr(torchvision.datasets, self.name.upper())

    def read_parts(self, data_dir: Path) -> tuple[Part, Part]:
        folder = data_dir / self.kind.base_folder
        return read_batches(folder, self.kind.train_list), read_batches(folder, self.kind.test_list)

    def fetch(self, data_dir: Path) -> None:
        from torchvision.datasets.utils import download_and_extract_archive

        # torchvision's class would read the files at once, with pickle
        download_and_extract_archive(self.kind.url, data_dir, filename=self.kind.filename, md5=self.kind.tgz_md5)


def read_batches(folder: Path, files: list[list[str]]) -> Part:
    """Return the images (m, 3, 32, 32) and labels in the files of a part. files: a (name, md5 sum) for each file."""
    batches = [read_batch(folder / name, md5) for name, md5 in files]
    return np.concatenate([pixels for pixels, _ in batches]), [label for _, labels in batches for label in labels]


def read_batch(path: Path, md5: str) -> Part:
    """Return the images (m, 3, 32, 32) and labels in a file. Raises OSError, or ValueError for wrong content."""
    content = read_regular(path, LARGEST_BATCH)
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise ValueError(f"{path}: damaged (its md5 sum is not {md5})")
    try:
        batch = ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path}: {error}") from None
    return batch["data"].reshape(-1, 3, 32, 32), batch["labels" if "labels" in batch else "fine_labels"]


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler of arrays and builtin containers. Anything else raises UnpicklingError before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"holds {module}.{name}, which is no part of an array")
        return super().find_class(module, name)
