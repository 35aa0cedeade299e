"""The built-in datasets, which are checked against pinned sizes and checksums when their images are read.

The digits come with scikit-learn, and torchvision downloads the other datasets. CIFAR is read here, because torchvision
would unpickle any object. The archives of MNIST and Fashion-MNIST are checked, unless they were deleted.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitcore.data.files import read_regular, reason_with_file
from vitcore.data.shuffle import Indices

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR10, MNIST

FOLDS = 5
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Part = tuple[Bytes, list[int]]  # images and labels
LARGEST_BATCH = 1 << 28  # bytes in a CIFAR file; the published files have at most 154 million
ALLOWED = {  # the names to which a pickled array refers
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),  # in NumPy 2
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


@dataclass(frozen=True)
class About:
    """The facts about a dataset that are known without decoding all images.

    image_size: side of the square images, in pixels. fingerprint: values that identify the images. train_size: number
    of training images, including those for validation. folds: number of folds; each data seed tests one. None if
    there is a test set. mean, std: statistics of each channel's values; None to compute them from the training
    images. levels: number of possible values of a pixel, which start at 0.
    """

    image_size: int
    channels: int
    classes: int
    train_size: int
    test_size: int
    fingerprint: dict[str, str | int]
    folds: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    levels: int = 256

    def steps(self, epochs: float, batch: int, data_fraction: float, val_fraction: float) -> int:
        """Return the number of steps in `epochs` passes over the images that are trained on. It is at least 1."""
        return max(1, round(epochs * self.train_size * (1 - val_fraction) * data_fraction / batch))


@dataclass(frozen=True)
class Raw:
    """A dataset as stored: images (M, C, H, W), labels (M,), and the indices of its training and test images."""

    images: Bytes
    labels: Indices
    train: Indices
    test: Indices


def small_class(labels: Indices, train: Indices, classes: Sequence[str]) -> str:
    """Return a sentence about the first class with fewer than two training images, or "" if there is none.

    Training and validation each need an image of every class. labels (M,): labels of all images. train: indices of the
    images that are not for testing.
    """
    total, left = (np.bincount(known, minlength=len(classes)).tolist() for known in (labels, labels[train]))
    short = [place for place, count in enumerate(left) if count < 2]
    if not short:
        return ""
    first, more = short[0], f" ({len(short) - 1} more classes are as small)" if len(short) > 1 else ""
    there = f"{total[first]} image{'' if total[first] == 1 else 's'}"
    return (
        f"class '{classes[first]}' has {there}, {left[first]} beside the test's: "
        f"it needs at least 2, one to train and one to validate{more}"
    )


STATISTICS = {  # mean and standard deviation of the training images' intensities in [0, 1]
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "mnist": ((0.1307,), (0.3081,)),
    "fashion-mnist": ((0.2860,), (0.3530,)),
}


def torchvision_facts(name: str, size: int, classes: int, train: int, md5: str) -> About:
    """Return the facts about a torchvision dataset that has 10,000 test images.

    train: number of training images. md5: torchvision's checksum of the archive that holds them.
    """
    fingerprint: dict[str, str | int] = {"name": name, "images": train + 10_000, "md5": md5}
    mean, std = (tuple(255 * value for value in values) for values in STATISTICS[name])
    return About(size, len(mean), classes, train, 10_000, fingerprint, mean=mean, std=std)


BUILT_IN = {
    "digits": About(
        image_size=8,
        channels=1,
        classes=10,
        train_size=1437,
        test_size=360,
        fingerprint={
            "name": "digits",
            "images": 1797,
            "sha256": "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826",
        },
        folds=FOLDS,
        mean=(4.884165,),  # over all 1,797 images, whose intensities are 0 to 16
        std=(6.016788,),
        levels=17,
    ),
    "cifar10": torchvision_facts("cifar10", 32, 10, 50_000, "c58f30108f718f92721af3b95e74349a"),
    "cifar100": torchvision_facts("cifar100", 32, 100, 50_000, "eb9058c3a382ffc7106e4002c42a8d85"),
    "mnist": torchvision_facts("mnist", 28, 10, 60_000, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "fashion-mnist": torchvision_facts("fashion-mnist", 28, 10, 60_000, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
}
TORCHVISION = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "mnist": "MNIST", "fashion-mnist": "FashionMNIST"}


def read_digits() -> Raw:
    """Read scikit-learn's 1,797 digits (M, 1, 8, 8), which have no test set (UCI, Alpaydin and Kaynak 1998).

    Raises ValueError if scikit-learn is not installed, or if images and labels do not have the pinned checksum.
    """
    package = find_spec("sklearn")  # importing it is slow
    if package is None or not package.submodule_search_locations:
        raise ValueError("data=digits: they are part of scikit-learn, which is not installed")
    with gzip.open(Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")) as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.uint8)  # (1797, 64 + 1)
    images, labels = rows[:, :-1].reshape(-1, 1, 8, 8), rows[:, -1].astype(np.int64)
    found = hashlib.sha256(images.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()
    if found != BUILT_IN["digits"].fingerprint["sha256"]:
        raise ValueError(f"data=digits: these are not the images that results are filed under (sha256 {found})")
    return Raw(images, labels, train=np.arange(len(images)), test=np.empty(0, np.int64))


def read_torchvision(name: str, data_dir: Path) -> Raw:
    """Read CIFAR, MNIST or Fashion-MNIST from the folder `data_dir`. Training images precede test images.

    Raises ValueError if files are missing or damaged, or if the number of images is wrong.
    """
    import torchvision.datasets

    about, kind = BUILT_IN[name], getattr(torchvision.datasets, TORCHVISION[name])
    try:
        parts = read_cifar(kind, data_dir) if name.startswith("cifar") else read_mnist(kind, data_dir)
    except (RuntimeError, OSError) as error:
        raise ValueError(
            f"data={name}: not in {data_dir} ({reason_with_file(error)}); name another directory with --data-dir "
            f"or ABLATE_DATA, or fetch it with 'ablate data download {name}'"
        ) from None
    found = tuple(len(labels) for _, labels in parts)
    if found != (about.train_size, about.test_size):
        raise ValueError(f"data={name}: {data_dir} has {found} images, not {about.train_size, about.test_size}")
    images = np.concatenate([images for images, _ in parts])
    labels = np.concatenate([np.asarray(labels, np.int64) for _, labels in parts])
    places = np.arange(len(labels))
    return Raw(images, labels, places[: found[0]], places[found[0] :])


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler of arrays and builtin containers. Anything else raises UnpicklingError before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"holds {module}.{name}, which is no part of an array")
        return super().find_class(module, name)


def read_cifar(kind: type[CIFAR10], data_dir: Path) -> list[Part]:
    """Read the training part and the test part of CIFAR (Krizhevsky 2009), with images (M, 3, 32, 32) and labels.

    Raises OSError if a file cannot be read. Raises ValueError if a file is damaged.
    """
    parts = []
    for files in (kind.train_list, kind.test_list):
        batches = [read_batch(data_dir / kind.base_folder / name, md5) for name, md5 in files]
        labels = [label for _, labels in batches for label in labels]
        parts.append((np.concatenate([pixels for pixels, _ in batches]), labels))
    return parts


def read_batch(path: Path, md5: str) -> Part:
    """Return the images (m, 3, 32, 32) and labels in one file of CIFAR.

    Raises OSError if it cannot be read. Raises ValueError for a wrong md5 sum or content beyond arrays and containers.
    """
    content = read_regular(path, LARGEST_BATCH)
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise ValueError(f"{path}: damaged (its md5 sum is not {md5})")
    try:
        batch = ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path}: {error}") from None
    return batch["data"].reshape(-1, 3, 32, 32), batch["labels" if "labels" in batch else "fine_labels"]


def read_mnist(kind: type[MNIST], data_dir: Path) -> list[Part]:
    """Read the training part and the test part of MNIST or Fashion-MNIST, with images (M, 1, 28, 28) and labels.

    Torchvision reads the unpacked files, and only archives beside them are checked. Raises RuntimeError if files are
    missing. Raises ValueError if an archive is damaged.
    """
    from torchvision.datasets.utils import check_md5

    parts = [kind(data_dir, train=train, download=False) for train in (True, False)]
    for archive, md5 in kind.resources:
        path = os.path.join(parts[0].raw_folder, archive)
        if os.path.exists(path) and not check_md5(path, md5):
            raise ValueError(f"{path}: damaged (its md5 sum is not {md5})")
    return [(one.data.numpy()[:, None], one.targets.tolist()) for one in parts]


def download(name: str, data_dir: Path) -> None:
    """Download a built-in dataset into `data_dir`. No other function uses the network.

    Raises ValueError if the dataset has no download or the download fails.
    """
    if name not in TORCHVISION:
        raise ValueError(f"nothing to download for '{name}': one of {', '.join(TORCHVISION)}")
    import torchvision.datasets
    from torchvision.datasets.utils import download_and_extract_archive

    kind = getattr(torchvision.datasets, TORCHVISION[name])
    try:
        if name.startswith("cifar"):  # torchvision's class would read it at once, with pickle
            download_and_extract_archive(kind.url, data_dir, filename=kind.filename, md5=kind.tgz_md5)
        else:
            kind(data_dir, download=True)
    except (RuntimeError, OSError) as error:
        raise ValueError(f"download of {name} into {data_dir} failed: {reason_with_file(error)}") from None


def moments(counts: np.ndarray[Any, Any]) -> tuple[list[float], list[float]]:
    """Return each channel's mean and standard deviation from its histogram (C, 256). A deviation of 0 becomes 1."""
    share, level = counts / counts.sum(axis=1, keepdims=True), np.arange(256)
    mean = share @ level
    std = np.sqrt((share * (level - mean[:, None]) ** 2).sum(axis=1))
    return mean.tolist(), np.where(std > 0, std, 1.0).tolist()
