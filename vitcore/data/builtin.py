"""The built-in datasets. Reading them checks the number of images and checksums (MNIST: only of archives, if any)."""

import gzip
import hashlib
import io
import os
import pickle
import shutil
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from commonfloor.files import read_bytes
from commonfloor.messages import reason_with_file
from vitcore.data.dataset import About, Bytes, Raw

PARTIAL = ".download-"  # prefix of the folders of downloads that are not complete
DAY = 86_400  # seconds

Part = tuple[Bytes, list[int]]  # images (m, C, H, W) and labels
DIGITS_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"  # of images, then labels
LARGEST_BATCH = 1 << 28  # bytes in a file of CIFAR; the published files have at most 154 million
ALLOWED = {  # the globals that a pickled array refers to
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),  # in NumPy 2
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}
Channels = tuple[float, float, float]
DIGITS = " ".join("0123456789")
CLASS_NAMES = {  # of the labels in ascending order, separated by spaces
    "cifar10": "airplane automobile bird cat deer dog frog horse ship truck",
    "cifar100": (
        "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
        "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
        "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster "
        "man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck "
        "pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk "
        "skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger "
        "tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
    ),
    "mnist": DIGITS,
    "fashion-mnist": "T-shirt Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag Ankle-boot",
}


class Digits:
    """The 1,797 digits (M, 1, 8, 8) of scikit-learn. They have no test set, so each data seed tests a fold."""

    about = About(
        image_size=8,
        channels=1,
        classes=10,
        train_size=1437,
        test_size=360,
        fingerprint={"name": "digits", "images": 1797, "sha256": DIGITS_SHA256},
        folds=5,
        mean=(4.884165,),  # over all images, whose intensities are 0 to 16
        std=(6.016788,),
        levels=17,
        class_names=tuple(DIGITS.split()),
    )

    def read(self, data_dir: Path | None) -> Raw:
        """Read scikit-learn's images; raise ValueError if it is not installed or the images have changed."""
        package = find_spec("sklearn")  # importing it is slow
        if package is None or not package.submodule_search_locations:
            raise ValueError("data=digits: they are part of scikit-learn, which is not installed")
        with gzip.open(Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")) as file:
            rows = np.loadtxt(file, delimiter=",", dtype=np.uint8)  # (1797, 64 + 1)
        images = rows[:, :-1].reshape(-1, 1, 8, 8)
        labels = rows[:, -1].astype(np.int64)
        sha256 = hashlib.sha256(images.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()
        if sha256 != DIGITS_SHA256:
            raise ValueError(f"data=digits: these are not the images that results are filed under (sha256 {sha256})")
        return Raw(images, labels, train=np.arange(len(images)), test=np.empty(0, np.int64))


class Downloaded(ABC):
    """A dataset that torchvision downloads. To add a dataset, write a subclass, and add an instance to BUILT_IN.

    archives: glob pattern of the archives in a folder. size: side in pixels. md5: torchvision's checksum of the archive
    of training images. mean, std: of each channel of the training images, for intensities from 0 to 1.
    """

    test_size = 10_000  # number of test images

    def __init__(
        self,
        name: str,
        archives: str,
        size: int,
        classes: int,
        train_size: int,
        md5: str,
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ) -> None:
        fingerprint: dict[str, str | int] = {"name": name, "images": train_size + self.test_size, "md5": md5}
        self.name = name
        self.archives = archives
        sizes = size, len(mean), classes, train_size, self.test_size
        class_names = tuple(CLASS_NAMES[name].split())
        self.about = About(*sizes, fingerprint, mean=in_bytes(mean), std=in_bytes(std), class_names=class_names)

    @abstractmethod
    def read_parts(self, data_dir: Path) -> tuple[Part, Part]:
        """Return (training part, test part); raise RuntimeError, OSError or ValueError if one is missing or damaged."""

    @abstractmethod
    def fetch(self, data_dir: Path) -> None:
        """Download the files to `data_dir`. Raises RuntimeError or OSError if the download fails."""

    def read(self, data_dir: Path | None) -> Raw:
        """Read the images in `data_dir`, training images first; raise ValueError if they are missing or damaged."""
        command = f"'ablate data download {self.name}'"
        if data_dir is None:
            raise ValueError(
                f"data={self.name}: say where it is with --data-dir or ABLATE_DATA; {command} fetches it there"
            )
        try:
            parts = self.read_parts(data_dir)
        except (RuntimeError, OSError) as error:
            raise ValueError(
                f"data={self.name}: not in {data_dir} ({reason_with_file(error)}); name another directory with "
                f"--data-dir or ABLATE_DATA, or fetch it with {command}"
            ) from None
        counts = tuple(len(labels) for _, labels in parts)
        wanted = (self.about.train_size, self.about.test_size)
        if counts != wanted:
            raise ValueError(f"data={self.name}: {data_dir} has {counts} images, not {wanted}")
        images = np.concatenate([images for images, _ in parts])
        labels = np.concatenate([np.asarray(labels, np.int64) for _, labels in parts])
        train, test = np.split(np.arange(len(labels)), [counts[0]])
        return Raw(images, labels, train, test)

    def download(self, data_dir: Path) -> None:
        """Download the dataset into `data_dir`, unless it is there. Archives in the folder are used if they are intact.

        Raises OSError if the folder cannot be made, and RuntimeError if the download fails.
        """
        for partial in data_dir.glob(f"{PARTIAL}*"):
            with suppress(OSError):  # another download removes it too
                if time.time() - partial.stat().st_mtime > DAY:
                    shutil.rmtree(partial)
        with suppress(ValueError):
            self.read(data_dir)
            return
        folders = [folder for folder in (data_dir, *data_dir.parents) if not folder.exists()]
        data_dir.mkdir(parents=True, exist_ok=True)
        try:
            with TemporaryDirectory(prefix=PARTIAL, dir=data_dir) as temporary:  # another download may run here
                for archive in data_dir.glob(self.archives):
                    copy = Path(temporary, archive.relative_to(data_dir))
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(archive, copy)
                self.fetch(Path(temporary))
                for path in [path for path in Path(temporary).rglob("*") if path.is_file()]:
                    target = data_dir / path.relative_to(temporary)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    path.replace(target)
        except (RuntimeError, OSError) as error:
            with suppress(OSError):  # a folder that is not empty stays
                for folder in folders:
                    folder.rmdir()
            raise RuntimeError(f"download of {self.name} into {data_dir} failed: {error}") from None


def in_bytes(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(255 * value for value in values)


def torchvision_datasets() -> Any:
    """Return the module that reads and downloads datasets. It takes seconds to import."""
    import torchvision.datasets

    return torchvision.datasets


class Cifar(Downloaded):
    """CIFAR-10 or CIFAR-100 (Krizhevsky 2009), read without torchvision, which would unpickle any object."""

    def __init__(self, classes: int, md5: str, mean: Channels, std: Channels) -> None:
        super().__init__(f"cifar{classes}", f"cifar-{classes}-python.tar.gz", 32, classes, 50_000, md5, mean, std)

    @property
    def kind(self) -> Any:
        """The dataset's class in torchvision, which holds the names and md5 sums of the files."""
        return getattr(torchvision_datasets(), self.name.upper())

    def read_parts(self, data_dir: Path) -> tuple[Part, Part]:
        folder = data_dir / self.kind.base_folder
        return read_batches(folder, self.kind.train_list), read_batches(folder, self.kind.test_list)

    def fetch(self, data_dir: Path) -> None:
        # torchvision's class would read the files at once, with pickle
        download = torchvision_datasets().utils.download_and_extract_archive
        download(self.kind.url, data_dir, filename=self.kind.filename, md5=self.kind.tgz_md5)


def read_batches(folder: Path, files: list[list[str]]) -> Part:
    """Return the images (m, 3, 32, 32) and labels in the files of a part. files: a (name, md5 sum) for each file."""
    images = []
    labels: list[int] = []
    for name, md5 in files:
        pixels, batch_labels = read_batch(folder / name, md5)
        images.append(pixels)
        labels += batch_labels
    return np.concatenate(images), labels


def read_batch(path: Path, md5: str) -> Part:
    """Return the images (m, 3, 32, 32) and labels in a file. Raises OSError, or ValueError for wrong content."""
    content = read_bytes(path, LARGEST_BATCH)
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


class Mnist(Downloaded):
    """MNIST (LeCun 1998) or Fashion-MNIST (Xiao 2017). kind: name of torchvision's class, which reads them."""

    def __init__(self, name: str, kind: str, md5: str, mean: float, std: float) -> None:
        super().__init__(name, f"{kind}/raw/*.gz", 28, 10, 60_000, md5, (mean,), (std,))
        self.kind = kind

    def read_parts(self, data_dir: Path) -> tuple[Part, Part]:
        """Return (training part, test part) from the unpacked files. Archives in their folder must be intact."""
        try:
            train, test = (self.load(data_dir, train) for train in (True, False))
        except (AssertionError, LookupError, TypeError, ValueError):  # what torchvision raises for wrong headers
            raise ValueError(f"data={self.name}: the files in {data_dir / self.kind} are damaged") from None
        for archive, md5 in train.resources:
            path = os.path.join(train.raw_folder, archive)
            if os.path.exists(path) and not torchvision_datasets().utils.check_md5(path, md5):
                raise ValueError(f"{path}: damaged (its md5 sum is not {md5})")
        return part_of(train), part_of(test)

    def fetch(self, data_dir: Path) -> None:
        self.load(data_dir, train=True, download=True)

    def load(self, data_dir: Path, train: bool, download: bool = False) -> Any:
        return getattr(torchvision_datasets(), self.kind)(data_dir, train=train, download=download)


def part_of(images: Any) -> Part:
    return images.data.numpy()[:, None], images.targets.tolist()


BUILT_IN: dict[str, Digits | Downloaded] = {
    "digits": Digits(),
    "cifar10": Cifar(10, "c58f30108f718f92721af3b95e74349a", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Cifar(100, "eb9058c3a382ffc7106e4002c42a8d85", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "mnist": Mnist("mnist", "MNIST", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 0.1307, 0.3081),
    "fashion-mnist": Mnist("fashion-mnist", "FashionMNIST", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 0.2860, 0.3530),
}


def downloadable_dataset(name: str) -> Downloaded:
    """Return the built-in dataset `name`; raise ValueError if it cannot be downloaded."""
    datasets = {each: dataset for each, dataset in BUILT_IN.items() if isinstance(dataset, Downloaded)}
    if name not in datasets:
        raise ValueError(f"nothing to download for '{name}': one of {', '.join(datasets)}")
    return datasets[name]
