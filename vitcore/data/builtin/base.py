"""The base class of built-in datasets that torchvision downloads."""

import shutil
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from vitcore.data.dataset import About, Bytes, Raw
from vitcore.data.files import reason_with_file

PARTIAL = ".download-"  # prefix of the folders of downloads that are not complete
DAY = 86_400  # seconds

Part = tuple[Bytes, list[int]]  # images (m, C, H, W) and labels


class Downloaded(ABC):
    """A dataset that torchvision downloads. Subclasses read and download its files.

    To add a dataset, write a subclass in this folder, with its own `test_size` if that differs, and add an instance to
    BUILT_IN in __init__.py.

    archives: glob pattern of the archives in a folder. size: side of the images, in pixels. train_size: number of
    training images. md5: torchvision's checksum of their archive. mean, std: statistics of each channel of the training
    images, for intensities from 0 to 1.
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
        mean, std = (tuple(255 * value for value in values) for values in (mean, std))
        self.name, self.archives = name, archives
        self.about = About(size, len(mean), classes, train_size, self.test_size, fingerprint, mean=mean, std=std)

    @abstractmethod
    def read_parts(self, data_dir: Path) -> tuple[Part, Part]:
        """Return (training part, test part); raise RuntimeError, OSError or ValueError if one is missing or damaged."""

    @abstractmethod
    def fetch(self, data_dir: Path) -> None:
        """Download the files to `data_dir`. Raises RuntimeError or OSError if the download fails."""

    def read(self, data_dir: Path | None) -> Raw:
        """Read the images from the folder `data_dir`. Training images precede test images.

        Raises ValueError if no folder is given, if files are missing or damaged, or if the number of images is wrong.
        """
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
        found, wanted = tuple(len(labels) for _, labels in parts), (self.about.train_size, self.about.test_size)
        if found != wanted:
            raise ValueError(f"data={self.name}: {data_dir} has {found} images, not {wanted}")
        images = np.concatenate([images for images, _ in parts])
        labels = np.concatenate([np.asarray(labels, np.int64) for _, labels in parts])
        train, test = np.split(np.arange(len(labels)), [found[0]])
        return Raw(images, labels, train, test)

    def download(self, data_dir: Path) -> None:
        """Download the dataset into `data_dir`, unless it is there. Archives in the folder are used if they are intact.

        Raises OSError if the folder cannot be made, and RuntimeError if the download fails. Partial downloads are
        removed at once. Those of killed processes are removed by the first call after a day.
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
